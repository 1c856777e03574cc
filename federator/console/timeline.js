// A job in time: when it waited, and each of its attempts from its place to its end, up to where it is expected to be done.
import { now } from "./api.js";
import { h, show, svg } from "./dom.js";
import { absolute, duration, money, number } from "./format.js";
import { outline, patterns, ticksOf } from "./gantt.js";
import { wordOf } from "./states.js";

/** @typedef {{from: number, to: number, state: string, word: string}} Phase */

const ROW = 26;
const BAR = 18;
const AXIS = 22;
const LEFT = 92;
const OVER = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
const LEAST_S = 5;

/**
 * A part of the page of a job.
 * @param {HTMLElement} view
 */
export function part(view) {
  const drawing = svg("svg", { class: "chart timeline", width: "100%", role: "img" });
  const list = h("ol", { class: "unseen" });
  /** @type {Api.JobDetail | null} */
  let last = null;
  view.setAttribute("aria-labelledby", "job-time");
  show(view, h("h2", { id: "job-time" }, "In time"), drawing, list);
  const watch = new ResizeObserver(() => last && draw(drawing, last));
  watch.observe(view);
  return {
    /** @param {Api.JobDetail} detail */
    show(detail) {
      last = detail;
      draw(drawing, detail);
      show(list, rowsOf(detail).flatMap(({ name, phases }) => phases.map((phase) => h("li", null, `${name}: ${told(phase)}`))));
    },
    close: () => watch.disconnect(),
  };
}

/** Rows with their phases: waiting first, then each attempt. @param {Api.JobDetail} detail @returns {{name: string, phases: Phase[]}[]} */
export function rowsOf(detail) {
  const { job, attempts } = detail;
  const at = now();
  const end = job.finished_at ?? at;
  /** @type {Phase[]} */
  const waits = [];
  let since = job.submitted_at;
  const last = attempts.at(-1);
  const rows = attempts.map((each) => {
    const assigned = each.assigned_at ?? each.started_at ?? since;
    if (assigned > since) waits.push({ from: since, to: assigned, state: "local", word: "waited" });
    since = each.ended_at ?? end;
    return { name: `attempt ${each.attempt}`, phases: phasesOf(each, assigned, detail, at) };
  });
  if (!last && job.finished_at) waits.push({ from: since, to: job.finished_at, state: "local", word: "waited" });
  if (!OVER.has(job.status) && (!last || last.ended_at)) {
    waits.push({ from: since, to: at, state: "local", word: job.status === "HELD" ? "held" : "waits" });
    const start = detail.expected_start_at;
    if (start && start > at) waits.push({ from: start, to: detail.expected_finish_at ?? start, state: "planned", word: "is to run" });
  }
  return [...(waits.length ? [{ name: "waiting", phases: waits }] : []), ...rows];
}

/** @param {Api.AttemptRow} attempt @param {number} assigned @param {Api.JobDetail} detail @param {number} at @returns {Phase[]} */
function phasesOf(attempt, assigned, detail, at) {
  const where = `${attempt.site}${attempt.members?.length ? ` on ${[...new Set(attempt.members)].slice(0, 3).join(", ")}${new Set(attempt.members).size > 3 ? " …" : ""}` : ""}`;
  const end = attempt.ended_at ?? at;
  const made = [];
  if ((attempt.started_at ?? end) > assigned) made.push({ from: assigned, to: attempt.started_at ?? end, state: "starting", word: `started at ${where}` });
  if (attempt.started_at) {
    const failed = attempt.ended_at && !["SUCCEEDED", "STOPPED"].includes(attempt.status);
    const how = attempt.ended_at ? `${wordOf(attempt.status)}${attempt.exit_code ? `, exit code ${attempt.exit_code}` : attempt.cause && attempt.cause !== "exit" ? `, ${attempt.cause}` : ""}` : "running";
    const cost = attempt.usd ? `, ${money(attempt.usd)}` : "";
    made.push({ from: attempt.started_at, to: end, state: failed ? "failed" : attempt.ended_at ? "ended" : "running", word: `${how} at ${where}, ${number(attempt.gpus ?? 0, 2)} GPUs${cost}` });
    if (!attempt.ended_at && detail.expected_finish_at !== null && detail.expected_finish_at > at) made.push({ from: at, to: detail.expected_finish_at, state: "planned", word: "is expected to go on" });
  }
  return made;
}

/** @param {Phase} phase */
const told = (phase) => `${phase.word}, from ${absolute(phase.from)}, for ${duration(phase.to - phase.from)}`;

/** @param {SVGSVGElement} drawing @param {Api.JobDetail} detail */
function draw(drawing, detail) {
  const width = drawing.clientWidth;
  if (!width) return;
  const rows = rowsOf(detail);
  const moments = rows.flatMap((row) => row.phases.flatMap((phase) => [phase.from, phase.to]));
  const deadline = detail.job.deadline_at;
  const low = Math.min(detail.job.submitted_at, ...moments);
  const end = Math.max(...moments, low + LEAST_S);
  // A deadline far away would leave no room for what there is.
  const high = (deadline && deadline < low + 4 * (end - low) ? Math.max(end, deadline) : end) + (end - low) * 0.04;
  const x = (/** @type {number} */ moment) => LEFT + ((moment - low) / (high - low)) * (width - LEFT - 12);
  const height = AXIS + rows.length * ROW + 6;
  drawing.setAttribute("height", String(height));
  drawing.setAttribute("aria-label", rows.flatMap(({ name, phases }) => phases.map((phase) => `${name}: ${told(phase)}`)).join("; ") || "nothing has happened yet");
  const ticks = ticksOf(low, high, (width - LEFT) / 90);
  const made = [patterns(), svg("path", { class: "chart-grid", d: ticks.map(([at]) => `M${round(x(at))} ${AXIS}V${height}`).join("") }), ...ticks.filter(([at, word]) => x(at) < width - 3.4 * word.length).map(([at, word]) => svg("text", { class: "chart-x", x: round(x(at)), y: 14 }, word))];
  rows.forEach((row, index) => {
    const top = AXIS + index * ROW + (ROW - BAR) / 2;
    made.push(svg("text", { class: "gantt-name", x: 4, y: top + 13 }, row.name));
    for (const phase of row.phases) {
      const wide = Math.max(2, x(phase.to) - x(phase.from));
      made.push(svg("path", { class: `gantt-bar bar-${phase.state}`, d: outline(phase.state, x(phase.from), top, wide, BAR) }, svg("title", null, told(phase))));
      const word = phase.word.split(" at ")[0] ?? "";
      if (wide > 7 * word.length + 10 && phase.state !== "ended") made.push(svg("text", { class: `gantt-label on-${phase.state}`, x: round(x(phase.from)) + (phase.state === "planned" ? 10 : 5), y: top + 13 }, word));
    }
  });
  const at = now();
  if (!detail.job.finished_at && at <= high) made.push(svg("path", { class: "gantt-now", d: `M${round(x(at))} ${AXIS}V${height}` }));
  if (deadline && deadline <= high) made.push(svg("path", { class: "gantt-deadline", d: `M${round(x(deadline))} ${AXIS - 4}V${height}` }), svg("text", { class: `chart-word${x(deadline) > width - 70 ? " end" : ""}`, x: round(x(deadline)) + (x(deadline) > width - 70 ? -4 : 4), y: AXIS + 6 }, "deadline"));
  show(drawing, made);
}

/** @param {number} value */
const round = (value) => Math.round(value * 10) / 10;
