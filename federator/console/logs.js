// The log of a rank, live: follows it, searches in it, and shows it as text.
//
// A tab that nobody looks at gives its connection back, as with streams: a browser has six to one address, for all its tabs together.
import { at, fetchAnswer } from "./api.js";
import { problemBox } from "./dialog.js";
import { h, show } from "./dom.js";
import { number, plural } from "./format.js";
import { Lines } from "./log_text.js";
import { painted } from "./sgr.js";

/** The newest lines, which are followed. */
const KEPT = 5000;
/** Lines that have what is searched for and are shown: the newest of them. */
const FOUND = 2000;
const DRAW_MS = 100;
const AGAIN_MS = 2000;

/**
 * A panel with the log of one rank of a job.
 * @param {string} job Its id.
 */
export function logPanel(job) {
  let lines = new Lines(KEPT);
  let stop = new AbortController();
  let drawn = 0;
  let ended = false;
  /** @type {{rank: number, attempt: number | null}} */
  let which = { rank: 0, attempt: null };
  const search = h("input", { type: "search", placeholder: "Search the log", "aria-label": "Search the log", on: { input: sought } });
  const wider = h("button", { type: "button", hidden: true, on: { click: () => void searchAll() } }, "Search the whole log");
  /** What was found in the whole log, from its beginning. @type {{wanted: string, lines: import("./log_text.js").Line[], found: number, of: number, stop: AbortController, done: boolean} | null} */
  let all = null;
  const pinned = h("input", { type: "checkbox", checked: true, id: "log-pinned" });
  const text = h("pre", { class: "log", tabindex: 0, role: "log", "aria-label": "Log", "aria-live": "off" });
  const said = h("span", { class: "faint", role: "status" });
  const whole = h("a", { class: "button", download: "" }, "Download");
  const element = h("div", { class: "stack" }, h("div", { class: "row" }, search, wider, h("label", { class: "row tight" }, pinned, "follow the end"), whole, said), text);
  text.addEventListener("scroll", () => {
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 24;
    if (!atEnd && pinned.checked && !drawing) pinned.checked = false;
    else if (atEnd) pinned.checked = true;
  });
  let drawing = false;

  function draw() {
    window.clearTimeout(drawn);
    drawn = 0;
    const wanted = search.value.toLowerCase();
    const newest = lines.all();
    const found = all ? all.lines : wanted ? newest.filter((each) => each.text.toLowerCase().includes(wanted)) : newest;
    drawing = true;
    if (wanted) show(text, found.slice(-FOUND).flatMap((line) => [...marked(line.text, wanted), "\n"]));
    else show(text, looks(found));
    if (pinned.checked) text.scrollTop = text.scrollHeight;
    requestAnimationFrame(() => (drawing = false));
    wider.hidden = !wanted || newest.length < KEPT || all !== null;
    const earlier = lines.dropped ? `, the newest of ${number(lines.dropped + newest.length)}` : "";
    if (all) said.textContent = `${plural(all.found, "line")} of ${number(all.of)}${all.done ? ", the whole log" : " …"}${all.found > FOUND ? `; the newest ${number(FOUND)} are shown` : ""}`;
    else if (wanted) said.textContent = `${plural(found.length, "line")} of ${newest.length < KEPT ? "" : "the newest "}${number(newest.length)}`;
    else said.textContent = newest.length ? `${plural(newest.length, "line")}${earlier}${ended ? ", complete" : ""}` : ended ? "The log is empty." : "Nothing is written yet.";
  }

  /** Something else is searched for. */
  function sought() {
    all?.stop.abort();
    all = null;
    draw();
  }

  /** Read the log from its beginning, and keep what has the words. */
  async function searchAll() {
    const mine = { wanted: search.value.toLowerCase(), lines: /** @type {import("./log_text.js").Line[]} */ ([]), found: 0, of: 0, stop: new AbortController(), done: false };
    all = mine;
    draw();
    try {
      const answer = await fetchAnswer("GET", at("/v1/jobs/{id}/logs", job), { query: { node: which.rank, attempt: which.attempt }, signal: mine.stop.signal });
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      const read = new Lines(Infinity);
      for (let done = false; !done; ) {
        const part = await reader?.read();
        done = !part || part.done;
        if (part?.value) read.add(part.value);
        for (const line of done ? read.all() : read.lines.splice(0)) {
          mine.of += 1;
          if (line.text.toLowerCase().includes(mine.wanted)) {
            mine.found += 1;
            mine.lines.push(line);
          }
        }
        if (mine.lines.length > 2 * FOUND) mine.lines.splice(0, mine.lines.length - FOUND);
        mine.done = done;
        drawn ||= window.setTimeout(draw, DRAW_MS);
      }
    } catch (error) {
      if (mine.stop.signal.aborted) return;
      sought();
      show(text, problemBox(error));
    }
  }

  async function read() {
    const mine = stop.signal;
    for (;;) {
      lines = new Lines(KEPT);
      ended = false;
      try {
        const answer = await fetchAnswer("GET", at("/v1/jobs/{id}/logs", job), { query: { node: which.rank, attempt: which.attempt, follow: true, tail: KEPT }, signal: mine });
        const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const part = await reader?.read();
          if (!part || part.done) break;
          lines.add(part.value);
          drawn ||= window.setTimeout(draw, DRAW_MS);
        }
        ended = true;
        draw();
        return;
      } catch (error) {
        if (mine.aborted) return;
        const { status, code } = /** @type {import("./api.js").Problem} */ (error);
        if (status && code !== "unavailable" && status < 500) {
          show(text, problemBox(error));
          return;
        }
        await new Promise((resolve) => window.setTimeout(resolve, AGAIN_MS));
        if (mine.aborted) return;
      }
    }
  }

  function look() {
    if (document.hidden) stop.abort();
    else if (stop.signal.aborted && !ended) {
      stop = new AbortController();
      void read();
    }
  }
  document.addEventListener("visibilitychange", look);

  return {
    element,
    /** Show the log of that rank; of an attempt, or of the newest. @param {number} rank @param {number | null} [attempt] */
    open(rank, attempt = null) {
      stop.abort();
      stop = new AbortController();
      which = { rank, attempt };
      whole.setAttribute("href", `${at("/v1/jobs/{id}/logs", job)}?node=${rank}${attempt ? `&attempt=${attempt}` : ""}`);
      whole.setAttribute("download", `${job}-${rank}.log`);
      text.textContent = "";
      ended = false;
      if (document.hidden) stop.abort();
      else void read();
      sought();
    },
    close() {
      document.removeEventListener("visibilitychange", look);
      stop.abort();
      all?.stop.abort();
      window.clearTimeout(drawn);
    },
  };
}

/** Lines in their looks; what looks as usual is one text, however many lines it has. @param {readonly import("./log_text.js").Line[]} lines */
function looks(lines) {
  /** @type {(string | HTMLElement)[]} */
  const parts = [];
  let usual = "";
  for (const { runs } of lines) {
    for (const { text, style } of runs) {
      const made = painted(text, style);
      if (typeof made === "string") usual += made;
      else {
        parts.push(usual, made);
        usual = "";
      }
    }
    usual += "\n";
  }
  return [...parts, usual];
}

/** @param {string} line @param {string} wanted In small letters. @returns {import("./dom.js").Child[]} */
function marked(line, wanted) {
  const low = line.toLowerCase();
  if (low.length !== line.length) return [line];
  const parts = [];
  let from = 0;
  for (let found = low.indexOf(wanted); found >= 0; found = low.indexOf(wanted, from)) {
    parts.push(line.slice(from, found), h("mark", null, line.slice(found, found + wanted.length)));
    from = found + wanted.length;
  }
  parts.push(line.slice(from));
  return parts;
}
