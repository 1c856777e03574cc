// A shell inside a running job, as plain text: what is typed goes a line at a time, what comes back is shown and not obeyed.
import { at } from "./api.js";
import { h } from "./dom.js";
import { Lines } from "./log_text.js";

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const END = 3;
const KEPT = 2000;
const SIZE = { Width: 120, Height: 40 };
/** The same as `federator exec` without a command. */
const SHELL = ["/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"];

/**
 * A panel that opens a shell in a rank of a job when asked to. The dispatcher lets only the job's owner in.
 * @param {string} job Its id.
 * @param {number} ranks
 */
export function terminalPanel(job, ranks) {
  /** @type {WebSocket | null} */
  let socket = null;
  let lines = new Lines(KEPT);
  const rank = h("input", { id: "terminal-rank", type: "number", min: 0, max: ranks - 1, value: 0, class: "number" });
  const begin = h("button", { type: "button", on: { click: open } }, "Open a shell");
  const screen = h("pre", { class: "log", role: "log", tabindex: 0, "aria-label": "Shell" });
  const line = h("input", { type: "text", class: "mono wide-input", "aria-label": "Line to send", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
  const interrupt = h("button", { type: "button", on: { click: () => send("\u0003") } }, "Ctrl-C");
  const leave = h("button", { type: "button", on: { click: () => socket?.close() } }, "Leave");
  const form = h("form", { class: "row", hidden: true, on: { submit: typed } }, line, h("button", { type: "submit" }, "Send"), interrupt, leave);
  const choice = h("div", { class: "row" }, ranks > 1 && [h("label", { for: "terminal-rank" }, `Rank (0 to ${ranks - 1})`), rank], begin);
  screen.hidden = true;
  const element = h("div", { class: "stack" }, choice, screen, form);

  function open() {
    socket?.close();
    lines = new Lines(KEPT);
    const path = `${at`/v1/jobs/${job}/tunnel`}?rank=${Math.max(0, Number(rank.value) || 0)}`;
    const opened = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`);
    const decoder = new TextDecoder();
    socket = opened;
    opened.binaryType = "arraybuffer";
    opened.onopen = () => {
      opened.send(JSON.stringify({ type: "exec", command: SHELL, tty: true, term: "dumb", size: SIZE }));
      shown(true);
      line.focus();
    };
    opened.onmessage = ({ data }) => {
      const frame = new Uint8Array(data);
      if (frame[0] === STDOUT || frame[0] === STDERR) lines.add(decoder.decode(frame.subarray(1), { stream: true }));
      else if (frame[0] === END) lines.add(`\n${ended(frame.subarray(1))}\n`);
      draw();
    };
    let met = false;
    opened.addEventListener("open", () => (met = true));
    opened.onclose = () => {
      if (socket !== opened) return;
      if (!met) lines.add("The shell could not be opened: only the job's owner may, and it must be running.\n");
      shown(false);
      draw();
      socket = null;
    };
    screen.hidden = false;
    draw();
  }

  /** @param {boolean} on */
  function shown(on) {
    form.hidden = !on;
    begin.disabled = on;
  }

  function draw() {
    screen.textContent = lines.all().join("\n");
    screen.scrollTop = screen.scrollHeight;
  }

  /** @param {Event} event */
  function typed(event) {
    event.preventDefault();
    send(`${line.value}\n`);
    line.value = "";
  }

  /** @param {string} text */
  function send(text) {
    const bytes = new TextEncoder().encode(text);
    const frame = new Uint8Array(bytes.length + 1);
    frame[0] = STDIN;
    frame.set(bytes, 1);
    if (socket?.readyState === WebSocket.OPEN) socket.send(frame);
  }

  return { element, close: () => socket?.close() };
}

/** @param {Uint8Array} told */
function ended(told) {
  const { exit_code: code, error } = JSON.parse(new TextDecoder().decode(told));
  return error ? `It ended: ${error}.` : `It ended with exit code ${code ?? 0}.`;
}
