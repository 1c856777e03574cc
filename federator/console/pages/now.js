// What happens now: sites, queues, money, what waits and why, and what a person should hear of.
import { get } from "../api.js";
import { bar, legend, patterns, siteBar } from "../bars.js";
import { capital, problemBox } from "../dialog.js";
import { h, keyed, show } from "../dom.js";
import { money, number, plural, time } from "../format.js";
import { shape, stateMark } from "../states.js";
import { followRows, keepFresh } from "../stream.js";
import { Table } from "../table.js";

export const title = "Now";

const FEW = 40;
/** Jobs whose deadlines are at risk that are shown; a link leads to all. */
const MOST_AT_RISK = 5;
/** Alerts that are more than news. */
const GRAVE = new Set(["deadline", "turn", "identity", "ledger", "set-aside"]);

/** @param {HTMLElement} view */
export function open(view) {
  const said = h("div");
  const figures = h("dl", { class: "figures" });
  const alerts = h("section", { class: "panel", "aria-label": "Alerts", hidden: true });
  const sites = sitePanel();
  const waits = waitTable();
  const risks = riskPanel();
  const queues = queueTable();
  const caps = capTable();
  show(
    view,
    h("h1", { class: "unseen" }, title),
    patterns(),
    said,
    figures,
    alerts,
    h("section", { class: "panel", "aria-labelledby": "now-sites" }, h("h2", { id: "now-sites" }, "Sites"), sites.element),
    h("section", { class: "panel", "aria-labelledby": "now-waits" }, h("h2", { id: "now-waits" }, "What waits, and why"), waits.element),
    risks.element,
    h("section", { class: "panel", "aria-labelledby": "now-queues" }, h("h2", { id: "now-queues" }, "Queues"), legend([["busy", "in use"]]), queues.element),
    h("section", { class: "panel", "aria-labelledby": "now-money" }, h("h2", { id: "now-money" }, "Money under caps"), legend([["spent", "spent"], ["committed", "committed"]]), caps.element),
  );
  /** @type {Api.WaitingNow | null} */
  let waiting = null;
  /** @type {import("../stream.js").Present | null} */
  let rows = null;
  function draw() {
    const rent = rows?.("rent")[0];
    if (!rows || !rent) return;
    sites.show(rows("sites"), waiting?.reserved ?? []);
    if (waiting) drawFigures(figures, rows("sites"), rent, waiting);
  }
  const unfollow = followRows(["sites", "queues", "budgets", "rent", "jobs", "plan", "alerts"], (present, changed) => {
    rows = present;
    if (changed.has("queues")) queues.show(present("queues"));
    if (changed.has("budgets")) caps.show(present("budgets"));
    draw();
    if (changed.has("jobs") || changed.has("plan") || changed.has("alerts")) fresh.again();
  });
  const fresh = keepFresh(
    async () => {
      const late = { at_risk: true, collapse: true, sort: "deadline", limit: MOST_AT_RISK };
      const [found, raised, page] = await Promise.all([get("/v1/waiting"), get("/v1/alerts"), get("/v1/jobs", late)]);
      waiting = found;
      show(said);
      drawAlerts(alerts, raised);
      waits.show(waiting.reasons);
      risks.show(page);
      draw();
    },
    { onError: (error) => error.code !== "unreachable" && show(said, problemBox(error)) },
  );
  return () => {
    unfollow();
    fresh.stop();
  };
}

/** @param {Element} place @param {Api.SiteLine[]} sites @param {Api.RentLine} rent @param {Api.WaitingNow} waiting */
function drawFigures(place, sites, rent, waiting) {
  const gpus = sum(sites, "gpus");
  const busy = sum(sites, "busy");
  const running = sum(sites, "running");
  /** @type {[string, string, string][]} */
  const figures = [
    ["GPUs busy", `${number(busy, 1)} of ${number(gpus, 1)}`, gpus ? `${Math.round((100 * busy) / gpus)} %` : ""],
    ["Running", number(running), running === 1 ? "job" : "jobs"],
    ["Waiting", number(waiting.jobs), waiting.jobs ? `for ${number(waiting.gpus, 1)} GPU${waiting.gpus === 1 ? "" : "s"}` : "jobs"],
    ["Rented", plural(rent.machines, "machine"), rent.machines ? `${money(rent.price_usd_h)} an hour` : ""],
    ["Spent on rent", money(rent.billed_usd), `${money(rent.committed_usd)} more committed`],
  ];
  keyed(
    place,
    figures,
    ([name]) => name,
    ([name, value, more]) => h("div", null, h("dt", null, name), h("dd", null, h("strong", null, value), " ", h("span", { class: "faint" }, more))),
    (element, [, value, more]) => {
      element.querySelector("strong").textContent = value;
      element.querySelector("span").textContent = more;
    },
  );
}

/** @param {HTMLElement} place @param {Api.AlertRow[]} rows */
function drawAlerts(place, rows) {
  place.hidden = rows.length === 0;
  const list = place.querySelector("ul") ?? h("ul", { class: "lines" });
  if (!list.parentElement) show(place, h("h2", null, "Alerts"), list);
  keyed(
    list,
    rows.slice(0, 8),
    (row) => `${row.kind}/${row.at}/${row.text}`,
    (row) => h("li", null, h("span", { class: `state tone-${GRAVE.has(row.kind) ? "bad" : "leaving"}` }, shape(GRAVE.has(row.kind) ? "bad" : "leaving"), row.kind), " ", row.job ? h("a", { href: `/jobs/${encodeURIComponent(row.job)}` }, row.text) : row.text, " ", h("span", { class: "faint" }, time(row.at))),
  );
}

function sitePanel() {
  /** @type {Table<Api.SiteLine & {reserved: Api.ReservedGpus[]}>} */
  const table = new Table({
    caption: "Sites and their GPUs",
    keyOf: (row) => row.name,
    empty: h("div", null, "No site has joined yet. ", h("a", { href: "/sites" }, "Join one"), " by a command to copy."),
    few: FEW,
    columns: [
      { id: "name", title: "Site", cell: (row) => h("a", { href: `/sites/${encodeURIComponent(row.name)}` }, row.name), by: (row) => row.name },
      { id: "status", title: "Status", cell: (row) => h("span", { title: row.because || null }, stateMark(row.status)), by: (row) => row.status },
      { id: "bar", title: "GPUs", long: true, cell: (row) => siteBar(row, sum(row.reserved, "gpus")) },
      { id: "busy", title: "Busy", numeric: true, cell: (row) => `${number(row.busy, 1)} of ${number(row.gpus, 1)}`, by: (row) => row.busy },
      { id: "gang", title: "Largest gang", numeric: true, cell: (row) => row.largest_gang || "–" },
      { id: "held", title: "Kept for", long: true, cell: (row) => row.reserved.map((each) => h("div", null, each.job ? h("a", { href: `/jobs/${encodeURIComponent(each.job)}` }, each.name) : each.policy ? h("a", { href: "/policies", title: each.policy }, each.name) : each.name, h("span", { class: "faint" }, ` ${plural(each.gpus, "GPU")}, ${each.policy ? "ends" : "starts"} `, time(each.until_at)))) },
      { id: "age", title: "Report", numeric: true, cell: (row) => (row.reported_at === null ? "never" : time(row.reported_at)), by: (row) => row.reported_at },
    ],
  });
  return {
    element: h("div", { class: "stack" }, legend([["busy", "busy"], ["free", "free"], ["held", "kept for somebody"], ["draining", "starts nothing new"], ["sick", "sick"]]), table.element),
    /** @param {Api.SiteLine[]} sites @param {Api.ReservedGpus[]} reserved */
    show: (sites, reserved) => table.show(sites.map((site) => ({ ...site, reserved: reserved.filter((each) => each.site === site.name) }))),
  };
}

function waitTable() {
  /** @type {Table<Api.WaitReason>} */
  const table = new Table({
    caption: "Why jobs wait",
    keyOf: (row) => row.reason,
    empty: h("div", null, "Nothing waits. ", h("a", { href: "/submit" }, "Submit a job")),
    columns: [
      { id: "reason", title: "Reason", cell: (row) => (row.reason ? h("a", { href: `/jobs?status=PENDING&reason=${encodeURIComponent(row.reason)}` }, reasonWords(row.reason)) : "waits for other jobs") },
      { id: "jobs", title: "Jobs", numeric: true, cell: (row) => number(row.jobs), by: (row) => row.jobs },
      { id: "gpus", title: "GPUs", numeric: true, cell: (row) => number(row.gpus, 1), by: (row) => row.gpus },
      { id: "since", title: "First submitted", numeric: true, cell: (row) => time(row.first_at), by: (row) => row.first_at },
      { id: "because", title: "The first of them", long: true, cell: (row) => h("a", { href: `/jobs/${encodeURIComponent(row.first)}` }, capital(row.because || "look why")) },
    ],
  });
  return table;
}

function riskPanel() {
  /** @type {Table<Api.JobRow>} */
  const table = new Table({
    caption: "Jobs that are not expected to be done by their deadline",
    keyOf: (row) => row.id,
    empty: "No deadline is at risk.",
    columns: [
      { id: "job", title: "Job", cell: (row) => (row.indices ? h("a", { href: `/jobs?array=${encodeURIComponent(row.array ?? "")}` }, `${row.name}[${row.indices}]`) : h("a", { href: `/jobs/${encodeURIComponent(row.id)}` }, row.name)) },
      { id: "status", title: "Status", cell: (row) => stateMark(row.status) },
      { id: "owner", title: "Owner", cell: (row) => row.owner },
      { id: "deadline", title: "Deadline", numeric: true, cell: (row) => time(row.deadline_at) },
      { id: "end", title: "Expected end", numeric: true, cell: (row) => (row.expected_finish_at ? time(row.expected_finish_at) : "nobody knows") },
      { id: "because", title: "Why", long: true, cell: (row) => capital(row.because) },
    ],
  });
  const all = h("a", { href: "/jobs?at_risk=1&sort=deadline" });
  const more = h("p", { hidden: true }, all);
  return {
    element: h("section", { class: "panel", "aria-labelledby": "now-risks" }, h("h2", { id: "now-risks" }, "Deadlines at risk"), table.element, more),
    /** @param {Api.JobPage} page */
    show(page) {
      table.show(page.jobs);
      more.hidden = page.total === 0;
      all.textContent = page.total > page.jobs.length ? `See all ${number(page.total)}` : "See them among the jobs";
    },
  };
}

/** @param {string} kind */
export const reasonWords = (kind) => kind.replaceAll("-", " ");

function queueTable() {
  /** @type {Table<Api.QueueRow>} */
  const table = new Table({
    caption: "Queues against guarantee and limit",
    keyOf: (row) => row.queue,
    empty: "There are no queues: everything is in one. A policy of kind Queue makes some.",
    columns: [
      { id: "queue", title: "Queue", cell: (row) => h("a", { href: `/jobs?queue=${encodeURIComponent(row.queue)}` }, row.queue), by: (row) => row.queue },
      { id: "bar", title: "GPUs in use", long: true, cell: queueBar },
      { id: "gpus", title: "In use", numeric: true, cell: (row) => number(row.gpus, 1), by: (row) => row.gpus },
      { id: "guarantee", title: "Guaranteed", numeric: true, cell: (row) => number(row.guaranteed_gpus), by: (row) => row.guaranteed_gpus },
      { id: "limit", title: "Limit", numeric: true, cell: (row) => (row.limit_gpus === null ? "none" : number(row.limit_gpus)) },
      { id: "running", title: "Running", numeric: true, cell: (row) => number(row.running), by: (row) => row.running },
      { id: "pending", title: "Waiting", numeric: true, cell: (row) => number(row.pending), by: (row) => row.pending },
      { id: "spent", title: "Spent", numeric: true, cell: (row) => money(row.spent_usd), by: (row) => row.spent_usd },
    ],
  });
  return table;
}

/** @param {Api.QueueRow} row */
function queueBar(row) {
  const whole = Math.max(row.limit_gpus ?? 0, row.guaranteed_gpus, row.gpus, 1);
  const marks = [];
  if (row.guaranteed_gpus) marks.push({ at: row.guaranteed_gpus, word: `${number(row.guaranteed_gpus)} guaranteed` });
  if (row.limit_gpus) marks.push({ at: row.limit_gpus, word: `limit ${number(row.limit_gpus)}` });
  return bar([{ part: "busy", size: row.gpus, word: `${number(row.gpus, 1)} in use` }], { whole, marks });
}

function capTable() {
  /** @type {Table<Api.BudgetRow>} */
  const table = new Table({
    caption: "Money under caps",
    keyOf: (row) => `${row.policy}/${row.share}/${row.period}`,
    empty: h("div", null, "No policy caps money. ", h("a", { href: "/policies" }, "See the policies")),
    columns: [
      { id: "policy", title: "Policy", cell: (row) => [row.policy, h("span", { class: "faint" }, ` ${row.share || row.who || "everybody"}, ${row.period}`)], by: (row) => row.policy },
      { id: "bar", title: "Used", long: true, cell: (row) => bar([{ part: "spent", size: row.spent, word: `${money(row.spent)} spent` }, { part: "committed", size: row.committed, word: `${money(row.committed)} committed` }], { whole: Math.max(row.limit, row.spent + row.committed) || 1, marks: [{ at: row.limit, word: `limit ${money(row.limit)}` }] }) },
      { id: "spent", title: "Spent", numeric: true, cell: (row) => money(row.spent), by: (row) => row.spent },
      { id: "committed", title: "Committed", numeric: true, cell: (row) => money(row.committed), by: (row) => row.committed },
      { id: "limit", title: "Limit", numeric: true, cell: (row) => money(row.limit), by: (row) => row.limit },
      { id: "forecast", title: "Forecast", numeric: true, cell: (row) => money(row.forecast), by: (row) => row.forecast },
    ],
  });
  return table;
}

/** @template {string} F @param {readonly Record<F, number>[]} rows @param {F} field */
const sum = (rows, field) => rows.reduce((total, row) => total + row[field], 0);
