// A shell inside a running job: a terminal that is coupled to a rank through the dispatcher.
import { at, get } from "./api.js";
import { capital } from "./dialog.js";
import { h } from "./dom.js";
import { sentFor } from "./keys.js";
import { ScreenView } from "./screen_view.js";

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const END = 3;
const RESIZE = 4;
/** Most bytes in one frame. */
const FRAME = 2 ** 15;
const TERM = "xterm-256color";
/** Pauses before a lost connection is made again. */
const AGAIN_S = [0.5, 1, 2, 4, 8, 15];
/** The same as `federator exec` without a command. */
const SHELL = ["/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"];
/** Keys that a screen to touch lacks. @type {readonly [string, string, import("./keys.js").Key][]} */
const KEYS = [["Esc", "Esc", { key: "Escape" }], ["Tab", "Tab", { key: "Tab" }], ["Ctrl-C", "Ctrl-C", { key: "c", ctrlKey: true }], ["←", "Left", { key: "ArrowLeft" }], ["↑", "Up", { key: "ArrowUp" }], ["↓", "Down", { key: "ArrowDown" }], ["→", "Right", { key: "ArrowRight" }]];

/**
 * A panel that opens a shell in a rank of a job when asked to. The dispatcher lets only the job's owner in. The shell goes on without the page until the job
 * ends: who opens it again comes back to it, and a connection that is lost is made again.
 * @param {string} job Its id.
 * @param {number} ranks
 */
export function terminalPanel(job, ranks) {
  /** @type {WebSocket | null} */
  let socket = null;
  let again = 0;
  let closed = false;
  /** Whether a shell was seen since one was asked for. */
  let begun = false;
  const encoder = new TextEncoder();
  const rank = h("input", { id: "terminal-rank", type: "number", min: 0, max: ranks - 1, value: 0, class: "number" });
  const begin = h("button", { type: "button", on: { click: open } }, "Open a shell");
  const leave = h("button", { type: "button", on: { click: () => over("The shell goes on until the job ends: open it again to come back to it.") } }, "Leave");
  const view = new ScreenView({ label: "Shell", send, resized, leave: () => leave.focus() });
  const large = h("button", { type: "button", on: { click: () => void view.element.requestFullscreen().then(() => view.focus()) } }, "Full screen");
  const keys = KEYS.map(([word, said, key]) => h("button", { type: "button", "aria-label": said, on: { click: () => (send(sentFor(key, view.screen.modes.arrows) ?? ""), view.focus()) } }, word));
  const tools = h("div", { class: "row tight" }, keys, large, leave, h("span", { class: "help" }, "Ctrl+Shift+C copies, Ctrl+Shift+V pastes, Ctrl+Shift+L leaves the keyboard to the page"));
  const choice = h("div", { class: "row" }, ranks > 1 && [h("label", { for: "terminal-rank" }, `Rank (0 to ${ranks - 1})`), rank], begin);
  const said = h("p", { role: "status" });
  view.element.hidden = tools.hidden = true;

  /** Come back to the shell that the rank has, or begin one. */
  function open() {
    said.textContent = "";
    view.element.hidden = false;
    begun = false;
    shown(true);
    view.clear();
    connect("attach", 0);
  }

  /**
   * Come back once the connection was lost or could not be made, and look now and then whether that is possible again.
   * @param {number} failures @param {string} why
   */
  function rejoin(failures, why) {
    if (closed) return;
    said.textContent = begun ? "The connection was lost; the page comes back to the shell as soon as it can." : `${capital(why)}. The page tries again.`;
    socket = null;
    again = window.setTimeout(() => connect("attach", failures), 1000 * /** @type {number} */ (AGAIN_S[Math.min(failures, AGAIN_S.length - 1)]));
  }

  /** A handshake that is refused does not say why, an answer without one does. @param {string} path @param {number} failures */
  async function refused(path, failures) {
    const opened = socket;
    const problem = await get(path).catch((/** @type {import("./api.js").Problem} */ error) => error);
    if (socket !== opened) return;
    const { status, message } = /** @type {import("./api.js").Problem} */ (problem);
    if (![403, 404, 409, 422].includes(status)) rejoin(failures + 1, "the shell cannot be reached just now");
    else over(begun ? `The shell has ended: ${message}.` : `The shell could not be opened: ${message}.`);
  }

  /**
   * One connection, until it ends.
   * @param {"attach" | "exec"} way To the shell that the rank has, or to a new one.
   * @param {number} failures Before it, one after another.
   */
  function connect(way, failures) {
    const path = `${at("/v1/jobs/{id}/tunnel", job)}?rank=${Math.max(0, Number(rank.value) || 0)}`;
    const opened = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`);
    const decoder = new TextDecoder();
    let met = false;
    let heard = false;
    /** @type {{error?: string, exit_code?: number | null, lost?: boolean} | null} */
    let end = null;
    socket = opened;
    opened.binaryType = "arraybuffer";
    opened.onopen = () => {
      met = true;
      const size = sizeOf(view.screen.columns, view.screen.height);
      if (way === "exec") view.focus(); // what is typed from now on reaches the shell
      opened.send(JSON.stringify(way === "attach" ? { type: "attach", size } : { type: "exec", command: SHELL, tty: true, keep: true, term: TERM, size }));
    };
    opened.onmessage = ({ data }) => {
      const frame = new Uint8Array(data);
      if (frame[0] === STDOUT || frame[0] === STDERR) {
        if (!heard && way === "attach") {
          said.textContent = "";
          view.clear(); // the last of its output comes once more
          view.focus();
        }
        heard = begun = true;
        view.write(decoder.decode(frame.subarray(1), { stream: true }));
      } else if (frame[0] === END) end = JSON.parse(new TextDecoder().decode(frame.subarray(1)));
    };
    opened.onclose = () => {
      if (socket !== opened) return;
      if (!met) void refused(path, failures);
      // The tunnel broke, or could not be made: that says nothing of the shell.
      else if (!end || end.lost) rejoin(heard ? 0 : failures + 1, end?.error || "the connection was lost");
      else if (heard || way === "exec") over(words(end, begun));
      else if (begun) over("The shell has ended meanwhile.");
      else connect("exec", failures);
    };
  }

  /** Nothing is connected any more. @param {string} why */
  function over(why) {
    window.clearTimeout(again);
    const had = socket;
    socket = null;
    had?.close();
    said.textContent = why;
    shown(false);
    if (!closed) begin.focus();
  }

  /** @param {boolean} on */
  function shown(on) {
    tools.hidden = !on;
    begin.disabled = on;
  }

  /** @param {string} text */
  function send(text) {
    const bytes = encoder.encode(text);
    for (let from = 0; from < bytes.length; from += FRAME - 1) frame(STDIN, bytes.subarray(from, from + FRAME - 1));
  }

  /** @param {number} columns @param {number} rows */
  function resized(columns, rows) {
    frame(RESIZE, encoder.encode(JSON.stringify(sizeOf(columns, rows))));
  }

  /** @param {number} channel @param {Uint8Array} bytes */
  function frame(channel, bytes) {
    if (socket?.readyState !== WebSocket.OPEN) return;
    const made = new Uint8Array(bytes.length + 1);
    made[0] = channel;
    made.set(bytes, 1);
    socket.send(made);
  }

  return {
    element: h("div", { class: "stack" }, choice, said, view.element, tools),
    close() {
      closed = true;
      over("");
      view.close();
    },
  };
}

/** A size as the tunnel spells it. @param {number} columns @param {number} rows */
const sizeOf = (columns, rows) => ({ Width: columns, Height: rows });

/** How a tunnel ended by the job's side. Without an exit code the shell may go on, as when another page has taken its place. @param {{error?: string, exit_code?: number | null}} end @param {boolean} begun */
function words({ error, exit_code: code }, begun) {
  if (!error) return `The shell ended with exit code ${code ?? 0}.`;
  return begun ? `The page has left the shell: ${error}.` : `The shell could not be opened: ${error}.`;
}
