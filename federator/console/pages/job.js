// One job: how it is and why, its attempts and ranks, its log, where it could run, and what can be done about it.
import { act, change, suiting, wordFor } from "../actions.js";
import { at, get, now } from "../api.js";
import { capital, problemBox } from "../dialog.js";
import { h, show } from "../dom.js";
import { absolute, duration, gang, money, NOTHING, number, time } from "../format.js";
import { visible } from "../log_text.js";
import { logPanel } from "../logs.js";
import { shape, stateMark } from "../states.js";
import { keepFresh } from "../stream.js";
import { Table } from "../table.js";
import { terminalPanel } from "../terminal.js";

export const title = "Job";

/** Parts of the page that have a module of their own: `part(view, context)` answers how to show a new state of the job, and how to end.
 * @typedef {{part: (view: HTMLElement, context: {go: (path: string) => void, again: () => void}) => {show: (detail: any, explanation: any) => void, close: () => void}}} PartModule */
/** @type {(() => Promise<PartModule>)[]} */
const PARTS = [() => import("../timeline.js"), () => import("../deadline.js")];

const OVER = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  const id = context.rest[0] ?? "";
  const said = h("div");
  const head = h("div", { class: "stack" });
  const acts = h("div", { class: "row", "aria-label": "What can be done" });
  const facts = h("dl", { class: "facts" });
  const parts = h("div", { class: "stack" });
  const attempts = attemptTable();
  const why = explainPanel();
  const log = h("section", { class: "panel", "aria-labelledby": "job-log", hidden: true });
  const inside = h("details", { class: "panel", hidden: true });
  const spec = h("details", { class: "panel" });
  show(
    view,
    said,
    head,
    acts,
    h("section", { class: "panel", "aria-label": "Facts" }, facts),
    parts,
    why.element,
    h("section", { class: "panel", "aria-labelledby": "job-attempts" }, h("h2", { id: "job-attempts" }, "Attempts"), attempts.element),
    log,
    inside,
    spec,
  );
  /** @type {any} */
  let explanation = null;
  /** @type {any} */
  let detail = null;
  let explained = "";
  let acted = "";
  /** @type {ReturnType<typeof logPanel> | null} */
  let reader = null;
  /** @type {ReturnType<typeof terminalPanel> | null} */
  let shell = null;
  /** @type {ReturnType<PartModule["part"]>[]} */
  let opened = [];
  let closed = false;
  const fresh = keepFresh(load, { stream: at`/v1/jobs/${id}/events`, onError: failed });
  void Promise.all(PARTS.map((each) => each())).then((modules) => {
    if (closed) return;
    opened = modules.map((each) => each.part(parts.appendChild(h("section", { class: "panel" })), { go: context.go, again: fresh.again }));
    if (detail) for (const each of opened) each.show(detail, explanation);
  });
  return () => {
    closed = true;
    fresh.stop();
    reader?.close();
    shell?.close();
    for (const each of opened) each.close();
  };

  /** @param {any} error */
  function failed(error) {
    if (error.code === "unreachable") return;
    if (error.status === 404 || error.status === 400) {
      fresh.stop();
      show(view, h("h1", null, "There is no such job"), problemBox(error), h("p", null, h("a", { href: "/jobs" }, "See all jobs")));
    } else show(said, problemBox(error));
  }

  async function load() {
    detail = await get(at`/v1/jobs/${id}`);
    show(said);
    context.name(labelOf(detail.job));
    drawHead();
    drawFacts(facts, detail);
    attempts.show([...detail.attempts].reverse());
    openLog();
    drawInside();
    drawSpec();
    const state = `${detail.job.status}/${detail.job.placement}/${detail.decision}/${detail.job.deadline_at}/${detail.job.priority}/${detail.job.queue}`;
    if (state !== explained) {
      explained = state;
      explanation = await get(at`/v1/jobs/${id}/explain`);
      why.show(detail, explanation);
    }
    for (const each of opened) each.show(detail, explanation);
  }

  function drawHead() {
    const { job } = detail;
    const because = detail.waiting?.because || job.because;
    const told = `${job.status}${because}${job.priority}${detail.outputs}`;
    if (told === acted) return;
    acted = told;
    show(head, h("div", { class: "row" }, h("h1", null, labelOf(job)), stateMark(job.status), h("span", { class: "faint mono" }, job.id)), because && h("p", null, capital(because), "."));
    const row = { id: job.id, name: labelOf(job), status: job.status, started_at: job.started_at };
    show(
      acts,
      suiting(job.status).map((verb) => h("button", { type: "button", class: verb === "cancel" ? "grave" : null, on: { click: async () => void ((await act(verb, [row])) && fresh.again()) } }, wordFor(verb))),
      !OVER.has(job.status) && h("form", { class: "row tight", on: { submit: prioritise } }, h("label", { for: "job-priority" }, "Priority"), h("input", { id: "job-priority", type: "number", min: 0, max: 100, value: job.priority, class: "number" }), h("button", { type: "submit" }, "Change")),
      detail.outputs && h("a", { class: "button", href: at`/v1/jobs/${id}/outputs`, download: `${job.name}.tar.gz` }, "Download outputs"),
    );
  }

  /** @param {Event} event */
  async function prioritise(event) {
    event.preventDefault();
    const input = /** @type {HTMLInputElement} */ (/** @type {HTMLElement} */ (event.target).querySelector("input"));
    const told = "Of the jobs of one queue that wait, those of higher priority come first. What runs is stopped for nobody by this alone.";
    if (await change({ id, name: labelOf(detail.job) }, { priority: Number(input.value) }, `priority ${input.value}`, h("p", null, told))) fresh.again();
  }

  function openLog() {
    if (reader || !detail.attempts.length) return;
    const panel = logPanel(detail.job.id);
    reader = panel;
    const ranks = Math.max(1, detail.members.length, detail.spec.nodes);
    const rank = h("input", { type: "number", id: "log-rank", min: 0, max: ranks - 1, value: 0, class: "number" });
    const attempt = h("select", { id: "log-attempt" }, h("option", { value: "" }, "newest"), detail.attempts.map((/** @type {any} */ each) => h("option", { value: each.attempt }, String(each.attempt))));
    const again = () => panel.open(Math.min(ranks - 1, Math.max(0, Number(rank.value) || 0)), attempt.value ? Number(attempt.value) : null);
    const choice = h("div", { class: "row" }, ranks > 1 && [h("label", { for: "log-rank" }, `Rank (0 to ${ranks - 1})`), rank], detail.attempts.length > 1 && [h("label", { for: "log-attempt" }, "Attempt"), attempt]);
    rank.addEventListener("change", again);
    attempt.addEventListener("change", again);
    show(log, h("h2", { id: "job-log" }, "Log"), choice, panel.element);
    log.hidden = false;
    panel.open(0);
  }

  /** A shell, for whoever may. */
  function drawInside() {
    const { job } = detail;
    const may = job.owner === context.who.name && job.status === "RUNNING";
    if (may && !shell) {
      shell = terminalPanel(job.id, Math.max(1, detail.members.length));
      show(inside, h("summary", null, "A shell inside"), shell.element);
      inside.hidden = false;
    } else if (!may && shell && OVER.has(job.status)) {
      inside.hidden = !inside.hasAttribute("open");
    }
  }

  function drawSpec() {
    if (spec.childElementCount) return;
    show(spec, h("summary", null, "What it runs"), h("pre", { class: "log" }, JSON.stringify(trimmed(detail.spec), null, 2)));
  }

  function explainPanel() {
    /** @type {Table<any>} */
    const places = new Table({
      caption: "Every place, and why it runs there or not",
      keyOf: (row) => `${row.site}/${row.pool}`,
      empty: "There is no place at all: no site has joined, and nothing can be rented.",
      columns: [
        { id: "place", title: "Place", cell: (row) => `${row.site}/${row.pool}`, by: (row) => `${row.site}/${row.pool}` },
        { id: "filter", title: "Fits", cell: (row) => (row.filter ? mark("bad", row.filter) : mark("good", row.tie ? "as good as the best" : "fits")), by: (row) => row.filter },
        { id: "text", title: "Why", long: true, cell: (row) => [capital(row.text), row.change && h("div", { class: "faint" }, `Would help: ${row.change}`)] },
        { id: "start", title: "Could start", numeric: true, cell: (row) => time(row.start_at), by: (row) => row.start_at },
        { id: "finish", title: "Could end", numeric: true, cell: (row) => time(row.finish_at), by: (row) => row.finish_at },
        { id: "direct", title: "Cost there", numeric: true, cell: (row) => money(row.direct_usd), by: (row) => row.direct_usd },
        { id: "extra", title: "More than the best", numeric: true, cell: (row) => money(row.extra_cost_usd), by: (row) => row.extra_cost_usd },
      ],
    });
    const remedies = h("div", { class: "stack" });
    const ahead = h("div");
    const element = h("section", { class: "panel", "aria-labelledby": "job-why" }, h("h2", { id: "job-why" }, "Where it could run, and why not"), remedies, ahead, places.element);
    return {
      element,
      /** @param {any} of @param {any} told */
      show(of, told) {
        places.show(told.sites);
        const name = labelOf(of.job);
        show(
          remedies,
          told.remedies.length > 0 && h("h3", null, "What would help"),
          told.remedies.map((/** @type {any} */ each) => {
            const change = patchOf(each, told.job);
            return h("div", { class: "row tight" }, change ? h("button", { type: "button", on: { click: () => void apply(name, change, each) } }, capital(each.text)) : h("span", null, capital(each.text)), h("span", { class: "faint" }, each.certain ? "" : "an estimate"));
          }),
        );
        show(
          ahead,
          told.ahead.length > 0 && [
            h("h3", null, "Before it"),
            h("ul", { class: "lines" }, told.ahead.map((/** @type {any} */ each) => h("li", null, each.job ? h("a", { href: `/jobs/${encodeURIComponent(each.job)}` }, each.name) : each.name, h("span", { class: "faint" }, ` ${each.owner ?? ""} ${number(each.gpus, 1)} GPUs ${each.waits ? "waits, too" : `runs at ${each.site}`} `), each.until_at ? ["until ", time(each.until_at)] : null))),
          ],
        );
      },
    };
  }

  /** @param {string} name @param {Record<string, string>} wanted @param {any} remedy */
  async function apply(name, wanted, remedy) {
    const told = [h("p", null, `${capital(remedy.text)}.`), h("p", null, remedy.certain ? "By the rules as they are, it may then run at: " : "As it is reckoned from what waits and runs now, it would then run at: ", remedy.places.join(", ") || "where it may now", ".")];
    if (await change({ id, name }, wanted, Object.entries(wanted).map(([field, value]) => `${field.replaceAll("_", " ")} ${value}`).join(", "), told)) {
      explained = "";
      fresh.again();
    }
  }
}

/** @param {any} job */
const labelOf = (job) => (job.array_index === null ? job.name : `${job.name}[${job.array_index}]`);

/** @param {import("../states.js").Tone} tone @param {string} word */
const mark = (tone, word) => h("span", { class: `state tone-${tone}` }, shape(tone), word);

/** @param {Element} place @param {any} detail */
function drawFacts(place, detail) {
  const { job, spec, used } = detail;
  const over = OVER.has(job.status);
  /** @type {[string, import("../dom.js").Children][]} */
  const all = [
    ["Owner", job.team ? `${job.owner}, team ${job.team}` : job.owner],
    ["Queue", h("a", { href: `/jobs?queue=${encodeURIComponent(job.queue)}` }, job.queue)],
    ["GPUs", gang(spec.nodes, spec.resources.gpus.count, spec.resources.gpus.models.join("|"))],
    ["Place", detail.site ? [h("a", { href: `/sites/${encodeURIComponent(detail.site)}` }, detail.site), `/${detail.pool}`, detail.market && detail.market !== "owned" ? ` (${detail.market})` : ""] : NOTHING],
    ["Submitted", time(job.submitted_at)],
    [job.started_at ? "Started" : "Should start", range(job.started_at ?? detail.expected_start_at, job.started_at ? null : detail.start_low_at, detail.start_high_at)],
    [over ? "Ended" : "Should end", range(job.finished_at ?? detail.expected_finish_at, over ? null : detail.finish_low_at, detail.finish_high_at)],
    ["Deadline", job.deadline_at ? time(job.deadline_at) : "none"],
    [over ? "Ran" : "Has run", job.started_at ? duration((job.finished_at ?? now()) - job.started_at) : NOTHING],
    ["Spent", `${money(job.spent_usd)}, ${number(job.gpu_s / 3600, 1)} GPU-hours`],
  ];
  if (used?.gpus_sampled_s) all.push(["GPUs in use", `${Math.round((100 * used.gpus_busy_s) / used.gpus_sampled_s)} %${used.idle_s > 60 ? `, idle for ${duration(used.idle_s)}` : ""}`]);
  if (used?.sampled_s) all.push(["Processors", `${number(used.cpu_s / used.sampled_s, 1)} busy, ${number(used.memory_peak_mib)} MiB at most`]);
  if (detail.members.length > 1) all.push(["Ranks", detail.parts.length ? detail.parts.map((/** @type {any} */ each) => h("div", null, `${each.member}: ${String(each.status ?? "").toLowerCase()}`)) : `${detail.members.length} on ${new Set(detail.members).size} hosts`]);
  if (job.after.length) all.push(["After", job.after.join(", ")]);
  if (detail.series) all.push(["Series", detail.series]);
  if (detail.decision) all.push(["Decided by", h("a", { href: `/decisions/${encodeURIComponent(detail.decision)}` }, detail.winner || detail.decision)]);
  show(
    place,
    all.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

/** @param {number | null} at @param {number | null} low @param {number | null} high */
function range(at, low, high) {
  return low && high ? h("span", { title: `80 of 100 such jobs: between ${absolute(low)} and ${absolute(high)}` }, time(at), h("span", { class: "faint" }, " ± ", duration((high - low) / 2))) : time(at);
}

/** @param {{members?: string[]}} attempt */
function hostsOf({ members = [] }) {
  const hosts = [...new Set(members)];
  return hosts.length > 3 ? h("span", { title: hosts.join(", ") }, `${hosts.slice(0, 2).join(", ")} and ${hosts.length - 2} more`) : hosts.join(", ") || NOTHING;
}

function attemptTable() {
  /** @type {Table<any>} */
  const table = new Table({
    caption: "Attempts, the newest first",
    keyOf: (row) => String(row.attempt),
    empty: "It has not been started yet.",
    columns: [
      { id: "attempt", title: "Attempt", cell: (row) => String(row.attempt) },
      { id: "status", title: "Status", cell: (row) => stateMark(row.status) },
      { id: "site", title: "Site", cell: (row) => [row.site, h("span", { class: "faint" }, ` ${row.model ?? ""} ${row.market && row.market !== "owned" ? row.market : ""}`)] },
      { id: "started", title: "Started", numeric: true, cell: (row) => time(row.started_at) },
      { id: "ran", title: "Ran", numeric: true, cell: (row) => (row.started_at && row.ended_at ? duration(row.ended_at - row.started_at) : NOTHING) },
      { id: "hosts", title: "Hosts", cell: (row) => hostsOf(row) },
      { id: "gpus", title: "GPUs", numeric: true, cell: (row) => number(row.gpus, 2) },
      { id: "usd", title: "Cost", numeric: true, cell: (row) => money(row.usd) },
      { id: "exit", title: "Exit code", numeric: true, cell: (row) => (row.exit_code ?? NOTHING) },
      { id: "detail", title: "How it ended", long: true, cell: (row) => [capital(row.detail ?? ""), row.last_lines && h("pre", { class: "log short" }, visible(row.last_lines))] },
    ],
  });
  return table;
}

/** What may be changed while a job lives, by the field that advice is about, and as it is written. @type {Record<string, [string, (value: any) => string]>} */
const PATCHED = {
  deadline_at: ["deadline", (at) => new Date(1000 * Math.ceil(at)).toISOString().replace(".000", "")],
  value_usd: ["value", (usd) => `${usd} USD`],
  max_cost_usd: ["max_cost", (usd) => `${usd} USD`],
  max_duration_s: ["max_duration", (seconds) => `${Math.ceil(seconds)}s`],
  queue: ["queue", String],
};

/** The change of the job that advice comes to; null where that is not the job's to change. @param {any} remedy @param {string} job */
function patchOf(remedy, job) {
  /** @type {Record<string, string>} */
  const made = {};
  for (const each of remedy.changes) {
    const known = each.type === "ask" && each.job === job ? PATCHED[each.field] : undefined;
    if (!known) return null;
    made[known[0]] = each.value === null ? "none" : known[1](each.value);
  }
  return made;
}

/** Without what was left out. @param {any} value @returns {any} */
function trimmed(value) {
  if (Array.isArray(value)) return value.map(trimmed);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).map(([name, each]) => [name, trimmed(each)]);
  return Object.fromEntries(kept.filter(([, each]) => each !== null && each !== "" && !(typeof each === "object" && Object.keys(each).length === 0)));
}
