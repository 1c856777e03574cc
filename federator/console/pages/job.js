// One job: how it is and why, its attempts and ranks, its log, where it could run, and what can be done about it.
import { act, change, suiting, wordFor, wouldBecome } from "../actions.js";
import { at, get, now, post } from "../api.js";
import { capital, namesNone, problemBox, showNone } from "../dialog.js";
import { h, show } from "../dom.js";
import { absolute, bytes, duration, gang, money, NOTHING, number, plural, time } from "../format.js";
import { visible } from "../log_text.js";
import { logPanel } from "../logs.js";
import { shape, stateMark } from "../states.js";
import { keepFresh } from "../stream.js";
import { Table } from "../table.js";

export const title = "Job";

/** Parts of the page that have a module of their own: `part(view, context)` answers how to show a new state of the job, and how to end.
 * @typedef {{part: (view: HTMLElement, context: {go: (path: string) => void, again: () => void}) => {show: (detail: Api.JobDetail, explanation: Api.Explanation | null) => void, close: () => void}}} PartModule */
/** @type {(() => Promise<PartModule>)[]} */
const PARTS = [() => import("../timeline.js"), () => import("../gpu_use.js"), () => import("../deadline.js")];

const OVER = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
const WAITS = new Set(["PENDING", "HELD"]);
/** Places that are shown at first: with hundreds of sites the log would be far below. */
const FEW = 8;
const NOWHERE = "There is no place at all: no site has joined, and nothing can be rented.";
const NOT_YET = "No place was looked at for it yet: what is said at the top comes first.";
/** A running job's use is read so often, in seconds; sites measure it at this pace. */
const USE_S = 10;
/** For so long after its end something may still be collected of a job. */
const COLLECTING_S = 60;

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  const id = context.rest[0] ?? "";
  const said = h("div");
  const head = h("div", { class: "stack" });
  const acts = h("div", { class: "row", "aria-label": "What can be done" });
  const facts = h("dl", { class: "facts" });
  const parts = h("div", { class: "parts" });
  const attempts = attemptTable();
  const why = explainPanel();
  const log = h("section", { class: "panel", "aria-labelledby": "job-log", hidden: true });
  const outputs = outputTable();
  const collected = h("details", { class: "panel", hidden: true, on: { toggle: () => void listOutputs() } }, h("summary", null, "Outputs"), outputs.element);
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
    collected,
    inside,
    spec,
  );
  /** @type {Api.Explanation | null} */
  let explanation = null;
  /** The job as it was read last; there from the first load on. @type {Api.JobDetail} */
  let detail;
  let explained = "";
  let acted = "";
  /** @type {ReturnType<typeof logPanel> | null} */
  let reader = null;
  /** @type {ReturnType<typeof import("../terminal.js").terminalPanel> | null} */
  let shell = null;
  let enterable = false;
  /** The job may have another attempt: it is offered, and the newest is followed. */
  let retried = () => {};
  /** @type {ReturnType<PartModule["part"]>[]} */
  let opened = [];
  let closed = false;
  const fresh = keepFresh(load, { stream: at("/v1/jobs/{id}/events", id), topics: ["plan"], soonestS: 2, everyS: untold, onError: failed });
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

  /** After how long to look for what no stream tells: what a running job uses, and what is collected of one that has just ended. */
  function untold() {
    const { job, used } = detail;
    if (OVER.has(job.status)) return now() - (job.finished_at ?? 0) < COLLECTING_S ? USE_S : 0;
    return used ? USE_S : 0;
  }

  /** @param {import("../api.js").Problem} error */
  function failed(error) {
    if (error.code === "unreachable") return;
    if (namesNone(error)) {
      fresh.stop();
      showNone(view, "job", error, "/jobs", context.name);
    } else show(said, problemBox(error));
  }

  async function load() {
    const found = await get(at("/v1/jobs/{id}", id));
    // The id of an array: the page of its tasks is another one.
    if (found.job.array === id) return location.replace(`/jobs?array=${encodeURIComponent(id)}`);
    detail = found;
    show(said);
    context.name(labelOf(detail.job));
    drawHead();
    drawFacts(facts, detail);
    attempts.show([...detail.attempts].reverse());
    openLog();
    drawInside();
    collected.hidden = !detail.outputs || !detail.may.includes("read");
    drawSpec();
    const state = `${detail.job.status}/${detail.job.placement}/${detail.decision}/${detail.planned_at}/${detail.job.deadline_at}/${detail.job.priority}/${detail.job.queue}`;
    if (state !== explained) {
      explained = state;
      explanation = await get(at("/v1/jobs/{id}/explain", id));
      why.show(detail, explanation);
    }
    for (const each of opened) each.show(detail, explanation);
    // Its events have ended with it, and a stream that ends is taken for one that broke.
    if (OVER.has(detail.job.status)) fresh.settle();
  }

  function drawHead() {
    const { job } = detail;
    const because = detail.waiting?.because || job.because;
    const change = detail.may.includes("change");
    const told = `${job.status}${because}${job.priority}${detail.outputs}${detail.may}`;
    if (told === acted) return;
    acted = told;
    show(head, h("div", { class: "row" }, h("h1", null, labelOf(job)), stateMark(job.status), h("span", { class: "faint mono" }, job.id)), because && h("p", null, capital(because), "."));
    const row = { id: job.id, name: labelOf(job), status: job.status, started_at: job.started_at };
    show(
      acts,
      change && suiting(job.status).map((verb) => h("button", { type: "button", class: verb === "cancel" ? "grave" : null, on: { click: async () => void ((await act(verb, [row])) && fresh.again()) } }, wordFor(verb))),
      change && !OVER.has(job.status) && h("form", { class: "row tight", on: { submit: prioritise } }, h("label", { for: "job-priority" }, "Priority"), h("input", { id: "job-priority", type: "number", min: 0, max: 100, value: job.priority, class: "number" }), h("button", { type: "submit" }, "Change")),
      !change && !OVER.has(job.status) && h("p", { class: "faint" }, `It is changed by ${job.owner}, by who administers its team or queue, and by the platform team.`),
      detail.outputs && detail.may.includes("read") && h("a", { class: "button", href: at("/v1/jobs/{id}/outputs", id), download: `${job.name}.tar.gz` }, "Download outputs"),
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
    if (!detail.attempts.length) return;
    if (!log.hidden) return retried();
    log.hidden = false;
    if (!detail.may.includes("read")) {
      show(log, h("h2", { id: "job-log" }, "Log"), h("p", { class: "faint" }, `It belongs to ${detail.job.owner}: ask them, an administrator of queue ${detail.job.queue}, or a user with the role platform.`));
      return;
    }
    const panel = logPanel(detail.job.id);
    reader = panel;
    const ranks = Math.max(1, detail.members.length, detail.spec.nodes);
    const rank = h("input", { type: "number", id: "log-rank", min: 0, max: ranks - 1, value: 0, class: "number" });
    const attempt = h("select", { id: "log-attempt" }, h("option", { value: "" }, "newest"));
    const which = h("span", { class: "row tight" }, h("label", { for: "log-attempt" }, "Attempt"), attempt);
    let offered = 0;
    const offer = () => {
      attempt.append(...detail.attempts.slice(offered).map((each) => h("option", { value: each.attempt }, String(each.attempt))));
      offered = detail.attempts.length;
      which.hidden = offered < 2;
    };
    const again = () => panel.open(Math.min(ranks - 1, Math.max(0, Number(rank.value) || 0)), attempt.value ? Number(attempt.value) : null);
    const choice = h("div", { class: "row" }, ranks > 1 && [h("label", { for: "log-rank" }, `Rank (0 to ${ranks - 1})`), rank], which);
    rank.addEventListener("change", again);
    attempt.addEventListener("change", again);
    show(log, h("h2", { id: "job-log" }, "Log"), choice, panel.element);
    offer();
    panel.open(0);
    retried = () => {
      if (detail.attempts.length === offered) return;
      offer();
      if (!attempt.value) again();
    };
  }

  /** What was collected, looked up when somebody wants to see it. */
  async function listOutputs() {
    if (!collected.open) return;
    try {
      const found = await get(at("/v1/jobs/{id}/outputs/files", detail.job.id));
      outputs.show(found.files);
      show(outputs.more, !found.complete && "There are more: only the first are listed.");
      outputs.more.hidden = found.complete;
    } catch (error) {
      show(outputs.more, problemBox(error));
      outputs.more.hidden = false;
    }
  }

  /** A shell, for whoever may: what draws it is fetched when it is wanted. */
  function drawInside() {
    const { job } = detail;
    const may = detail.may.includes("exec") && job.status === "RUNNING";
    if (may && !enterable) {
      enterable = true;
      show(inside, h("summary", null, "A shell inside"));
      inside.addEventListener("toggle", () => void drawShell(), { once: true });
      inside.hidden = false;
    } else if (!may && OVER.has(job.status)) inside.hidden = !inside.hasAttribute("open");
  }

  async function drawShell() {
    const { terminalPanel } = await import("../terminal.js");
    if (closed) return;
    shell = terminalPanel(detail.job.id, Math.max(1, detail.members.length));
    inside.append(shell.element);
  }

  function drawSpec() {
    if (spec.childElementCount) return;
    show(spec, h("summary", null, "What it runs"), h("pre", { class: "log" }, JSON.stringify(trimmed(detail.spec), null, 2)));
  }

  function explainPanel() {
    /** @type {Table<Api.SiteReason>} */
    const places = new Table({
      caption: "Every place, and why it runs there or not",
      keyOf: (row) => `${row.site}/${row.pool}`,
      empty: NOWHERE,
      few: FEW,
      columns: [
        { id: "place", title: "Place", cell: (row) => h("div", { class: "place" }, `${row.site}/${row.pool}`), by: (row) => `${row.site}/${row.pool}` },
        { id: "filter", title: "Fits", cell: (row) => (row.filter ? mark("bad", row.filter) : mark("good", row.tie ? "as good as the best" : "fits")), by: (row) => row.filter },
        { id: "text", title: "Why", long: true, cell: (row) => [capital(row.text), row.change && h("div", { class: "faint" }, `Would help: ${row.change}`)] },
        { id: "start", title: "Could start", numeric: true, cell: (row) => time(row.start_at), by: (row) => row.start_at },
        { id: "finish", title: "Could end", numeric: true, cell: (row) => time(row.finish_at), by: (row) => row.finish_at },
        { id: "direct", title: "Cost there", numeric: true, cell: (row) => money(row.direct_usd), by: (row) => row.direct_usd },
        { id: "extra", title: "More than the best", numeric: true, cell: (row) => money(row.extra_cost_usd), by: (row) => row.extra_cost_usd },
      ],
    });
    let drawn = "";
    const remedies = h("div", { class: "stack" });
    const ahead = h("div");
    const element = h("section", { class: "panel", "aria-labelledby": "job-why" }, h("h2", { id: "job-why" }, "Where it could run, and why not"), remedies, ahead, places.element);
    return {
      element,
      /** @param {Api.JobDetail} of @param {Api.Explanation} told */
      show(of, told) {
        places.show([...told.sites].sort((one, other) => rank(one) - rank(other)));
        show(places.none, of.job.status === "HELD" ? "Nothing is planned for a job that is held: release it, and this says where it could run." : OVER.has(of.job.status) ? "It is over, and nothing is planned for it any more." : of.waiting?.kind === "filter" ? NOWHERE : NOT_YET);
        // Each plan says it anew, and a button that is pressed must not go away when it is the same.
        const said = JSON.stringify([told.remedies, told.ahead, of.may]);
        if (said === drawn) return;
        drawn = said;
        const name = labelOf(of.job);
        show(
          remedies,
          told.remedies.length > 0 && h("h3", null, "What would help"),
          told.remedies.length > 0 && h("ol", { class: "advice" }, told.remedies.map((each) => {
            const change = of.may.includes("change") && patchOf(each, told.job, of.spec);
            return h("li", null, change ? h("button", { type: "button", on: { click: () => void apply(name, change, each) } }, capital(each.text)) : [capital(each.text), " ", elsewhere(each, told.job)], h("span", { class: "faint" }, each.certain ? "" : " an estimate"));
          })),
        );
        show(
          ahead,
          told.ahead.length > 0 && [
            h("h3", null, "Before it"),
            h("ul", { class: "lines" }, told.ahead.map((each) => h("li", null, each.job ? h("a", { href: `/jobs/${encodeURIComponent(each.job)}` }, each.name) : each.name, h("span", { class: "faint" }, ` ${each.owner ?? ""} ${each.gpus ? `${number(each.gpus, 1)} GPU${each.gpus === 1 ? "" : "s"}` : "CPU only"} ${each.waits ? "waits, too" : `runs at ${each.site}`} `), each.until_at ? ["until ", time(each.until_at)] : null))),
          ],
        );
      },
    };
  }

  /** @param {string} name @param {Record<string, string | number>} wanted @param {Api.Remedy} remedy */
  async function apply(name, wanted, remedy) {
    const told = [h("p", null, `${capital(remedy.text)}.`), h("p", null, remedy.certain ? "By the rules as they are, it may then run at: " : "As it is reckoned from what waits and runs now, it would then run at: ", remedy.places.join(", ") || "where it may now", ".")];
    /** Where it waits, what follows is previewed. */
    const preview = async () => (WAITS.has(detail.job.status) ? [...told, ...wouldBecome(await post(at("/v1/jobs/{id}/preview", id), wanted))] : told);
    if (await change({ id, name }, wanted, Object.entries(wanted).map(([field, value]) => `${field.replaceAll("_", " ")} ${value}`).join(", "), preview())) {
      explained = "";
      fresh.again();
    }
  }
}

/** Where it fits comes first, then where something would help. @param {Api.SiteReason} place */
const rank = (place) => (!place.filter ? 0 : place.change ? 1 : place.start_at ? 2 : 3);

/** @param {Api.Job} job */
const labelOf = (job) => (job.array_index === null ? job.name : `${job.name}[${job.array_index}]`);

/** @param {import("../states.js").Tone} tone @param {string} word */
const mark = (tone, word) => h("span", { class: `state tone-${tone}` }, shape(tone), word);

/** @param {Element} place @param {Api.JobDetail} detail */
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
  if (used?.gpus_sampled_s) all.push(["GPUs in use", `${Math.round((100 * (used.gpus_busy_s ?? 0)) / used.gpus_sampled_s)} %${(used.idle_s ?? 0) > 60 ? `, idle for ${duration(used.idle_s)}` : ""}`]);
  if (used?.sampled_s) all.push(["Processors", `${number((used.cpu_s ?? 0) / used.sampled_s, 1)} busy, ${number(used.memory_peak_mib ?? 0)} MiB at most`]);
  if (detail.members.length > 1) all.push(["Ranks", detail.parts.length ? detail.parts.map((each) => h("div", null, `${each.member}: ${String(each.status ?? "").toLowerCase()}`)) : `${detail.members.length} on ${plural(new Set(detail.members).size, "host")}`]);
  if (job.after.length) all.push(["After", job.after.map((id) => h("div", null, h("a", { href: `/jobs/${encodeURIComponent(id)}` }, id)))]);
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
  /** @type {Table<Api.AttemptRow>} */
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

function outputTable() {
  /** @type {Table<Api.OutputFile>} */
  const table = new Table({
    caption: "What was collected",
    keyOf: (row) => row.path,
    empty: "No file was collected.",
    few: FEW,
    columns: [
      { id: "path", title: "File", cell: (row) => h("span", { class: "mono" }, visible(row.path)), by: (row) => row.path },
      { id: "size", title: "Size", numeric: true, cell: (row) => bytes(row.size), by: (row) => row.size },
    ],
  });
  const more = h("div", { hidden: true });
  return { element: h("div", { class: "stack" }, table.element, more), more, show: table.show.bind(table) };
}

/** @param {unknown} names */
const listed = (names) => /** @type {string[]} */ (names).join("|") || "none";
/** What may be changed while a job lives, by the field that advice is about, and as it is written. @type {Record<string, [string, (value: unknown) => string | number]>} */
const PATCHED = {
  priority: ["priority", Number],
  deadline_at: ["deadline", (at) => new Date(1000 * Math.ceil(Number(at))).toISOString().replace(".000", "")],
  value_usd: ["value", (usd) => `${usd} USD`],
  max_cost_usd: ["max_cost", (usd) => `${usd} USD`],
  max_duration_s: ["max_duration", (seconds) => `${Math.ceil(Number(seconds))}s`],
  queue: ["queue", String],
  models: ["models", listed],
  nodes: ["nodes", Number],
  gpus: ["gpus", Number],
  gpu_memory_mib: ["gpu_memory", (mib) => `${mib}MiB`],
  cpus_milli: ["cpus", (milli) => Number(milli) / 1000],
  memory_mib: ["memory", (mib) => `${mib}MiB`],
  sites: ["sites", listed],
  not_sites: ["not_sites", listed],
};

/** What is changed only of a job that may run in one form. */
const SIZES = new Set(["models", "nodes", "gpus", "gpu_memory_mib", "cpus_milli", "memory_mib"]);

/** The change of the job that advice comes to; null where that is not the job's to change. @param {Api.Remedy} remedy @param {string} job @param {Api.JobSpec} spec */
function patchOf(remedy, job, spec) {
  /** @type {Record<string, string | number>} */
  const made = {};
  for (const each of remedy.changes) {
    if (each.type !== "ask" || each.job !== job || each.form) return null;
    const known = PATCHED[each.field];
    if (!known || (spec.forms?.length && SIZES.has(each.field)) || (each.field === "gpus" && spec.resources?.gpus?.share_milli)) return null;
    made[known[0]] = each.value === null ? "none" : known[1](each.value);
  }
  return made;
}

/** Where advice is followed that is not the job's to change. @param {Api.Remedy} remedy @param {string} job */
function elsewhere({ changes }, job) {
  if (changes.some((each) => each.type === "cap" || each.type === "rule" || each.type === "permit" || (each.type === "ask" && each.field === "approved_usd"))) return h("a", { href: "/policies" }, "in the policies");
  const asked = changes.flatMap((each) => (each.type === "ask" ? [each.job] : []));
  const other = asked.find((each) => each !== job);
  if (other) return h("a", { href: `/jobs/${encodeURIComponent(other)}` }, "in the other job");
  if (asked.length) return h("span", { class: "faint" }, "takes another job file: submit it anew, and cancel this one");
  return changes.some((each) => each.type === "open") ? h("a", { href: "/sites" }, "at its site") : null;
}

/** Without what was left out. @param {unknown} value @returns {unknown} */
function trimmed(value) {
  if (Array.isArray(value)) return value.map(trimmed);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).map(([name, each]) => [name, trimmed(each)]);
  return Object.fromEntries(kept.filter(([, each]) => each !== null && each !== "" && !(typeof each === "object" && Object.keys(each).length === 0)));
}
