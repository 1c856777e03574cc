// Money: what is spent and committed under caps with where that leads, what is rented and on what evidence, and what everybody has used.
import { get, now } from "../api.js";
import { bar, legend, patterns } from "../bars.js";
import { BarChart, LineChart } from "../chart.js";
import { ask, problemBox } from "../dialog.js";
import { h, show } from "../dom.js";
import { select } from "../form.js";
import { NOTHING, day, duration, money, number, plural, time } from "../format.js";
import { stateMark } from "../states.js";
import { followRows } from "../stream.js";
import { Table } from "../table.js";

export const title = "Money";

const DAY_S = 86_400;
/** The curve of what was spent is read so often at most. */
const EVERY_MS = 30_000;
const MOST_LEASES = 100;
/** @typedef {"team" | "user" | "queue" | "site" | "model" | "month" | "day"} Key */
/** @type {Key[]} */
const KEYS = ["team", "user", "queue", "site", "model", "month", "day"];
const SPANS = /** @type {[string, string][]} */ ([["7", "the last 7 days"], ["30", "the last 30 days"], ["90", "the last 90 days"], ["365", "the last year"]]);
/** Whether usage is added up by it. @param {string | null} word @returns {word is Key} */
const isKey = (word) => KEYS.some((each) => each === word);
/** Columns of the exported file, as `federator usage -o csv` has them. @type {(keyof Api.UsageRow)[]} */
const FIELDS = ["gpu_s", "rented_gpu_s", "owned_usd", "rented_usd", "data_usd", "usd", "jobs", "succeeded", "wait_s", "longest_wait_s", "deadlines", "deadlines_met"];

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  const figures = h("dl", { class: "figures" });
  const caps = capTable();
  const forecast = new Forecast();
  const leases = leaseTable();
  const more = h("p", { class: "faint" });
  const usage = new Usage(context);
  show(
    view,
    h("h1", null, title),
    patterns(),
    figures,
    panel("Under caps", legend([["spent", "spent"], ["committed", "committed"], ["over", "over the cap"]]), caps.element, forecast.element),
    panel("Rented", leases.element, more),
    usage.element,
  );
  const unfollow = followRows(["budgets", "leases"], (rows) => {
    const budgets = rows("budgets");
    const rented = rows("leases").sort((one, other) => (one.id < other.id ? 1 : -1));
    drawFigures(figures, rented);
    caps.show(budgets);
    void forecast.show(budgets);
    leases.show(rented.slice(0, MOST_LEASES));
    more.hidden = rented.length <= MOST_LEASES;
    more.textContent = `The newest ${number(MOST_LEASES)} of ${number(rented.length)}; federator leases lists all.`;
  });
  return () => {
    unfollow();
    forecast.close();
    usage.close();
  };
}

/** @param {Element} place @param {Api.LeaseRow[]} leases */
function drawFigures(place, leases) {
  const open = leases.filter((each) => !["GONE", "FAILED"].includes(each.status));
  const sum = (/** @type {Api.LeaseRow[]} */ rows, /** @type {"price_usd_h" | "billed_usd" | "committed_usd"} */ key) => rows.reduce((total, each) => total + each[key], 0);
  /** @type {[string, string][]} */
  const figures = [
    ["Rented now", plural(open.length, "machine")],
    ["An hour", money(sum(open, "price_usd_h"))],
    ["Billed so far", money(sum(leases, "billed_usd"))],
    ["Committed beyond", money(sum(open, "committed_usd"))],
  ];
  show(place, figures.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, h("strong", null, value)))));
}

/** A cap from the beginning of its period to its end: the one of which most is used, or the one that is chosen. */
class Forecast {
  constructor() {
    this.chart = new LineChart({ label: "Money under the fullest cap until the end of its period", times: true, format: money, height: 220 });
    this.heading = h("h3");
    this.caps = select("cap", []);
    this.caps.setAttribute("aria-label", "Cap whose money is drawn");
    this.caps.addEventListener("change", () => void this.show(this.budgets));
    this.element = h("div", { class: "stack", hidden: true }, h("div", { class: "row between" }, this.heading, this.caps), this.chart.element);
    /** @type {Api.BudgetRow[]} */
    this.budgets = [];
    this.asked = -Infinity;
    this.shown = "";
  }

  close() {
    this.chart.close();
  }

  /** @param {Api.BudgetRow[]} budgets */
  async show(budgets) {
    const ends = budgets.filter((row) => row.ends_at && row.limit > 0);
    ends.sort((one, other) => other.spent / other.limit - one.spent / one.limit);
    this.budgets = budgets;
    const chosen = this.caps.value;
    const row = ends.find((each) => keyOf(each) === chosen) ?? ends[0];
    this.element.hidden = !row;
    if (!row) return;
    const key = keyOf(row);
    this.caps.hidden = ends.length < 2;
    if ([...this.caps.options].map((each) => each.value).sort().join() !== ends.map(keyOf).sort().join()) show(this.caps, ends.map((each) => h("option", { value: keyOf(each) }, wordsOf(each))));
    this.caps.value = key;
    // The curve is read from the ledger: again when the cap is another, or after a while.
    if (key === this.shown && performance.now() - this.asked < EVERY_MS) return;
    this.asked = performance.now();
    const found = await get("/v1/spending", { policy: row.policy, period: row.period, share: row.share }).catch(() => null);
    if (!found) return;
    this.shown = key;
    this.#draw(found);
  }

  /** @param {Api.Spending} found */
  #draw({ cap, since, points }) {
    show(this.heading, wordsOf(cap));
    const at = points[points.length - 1]?.at ?? now();
    const ends = cap.ends_at ?? at;
    const lines = [{ name: "spent", points: points.map((each) => /** @type {[number, number]} */ ([each.at, each.usd])) }];
    if (cap.committed > 0) lines.push({ name: "with all that is committed", points: [[at, cap.spent + cap.committed], [ends, cap.spent + cap.committed]] });
    if (cap.forecast !== null) lines.push({ name: "as it goes on", points: [[at, cap.spent], [ends, cap.forecast]] });
    lines.push({ name: "cap", points: [[since, cap.limit], [ends, cap.limit]] });
    this.chart.set(lines, [{ at: now(), name: "now" }]);
  }
}

/** @param {Api.BudgetRow} row */
const keyOf = (row) => `${row.policy}/${row.period}/${row.share}`;

/** @param {Api.BudgetRow} row */
const wordsOf = (row) => `${row.policy}${row.share ? `, ${row.share}` : ""}: ${row.period}`;

function capTable() {
  /** @type {Table<Api.BudgetRow>} */
  const table = new Table({
    caption: "Money under caps",
    keyOf,
    empty: h("div", null, "No cap is set. A Budget among the ", h("a", { href: "/policies" }, "policies"), " sets one."),
    columns: [
      { id: "policy", title: "Policy", cell: (row) => [row.policy, row.hard ? null : h("span", { class: "faint" }, " warns only")], by: (row) => row.policy },
      { id: "who", title: "For", cell: (row) => row.share || row.who || "everybody", by: (row) => row.share || row.who },
      { id: "period", title: "Period", cell: (row) => (row.period === "now" ? "an hour, at once" : row.period) },
      { id: "bar", title: "Used", long: true, cell: capBar },
      { id: "spent", title: "Spent", numeric: true, cell: (row) => money(row.spent), by: (row) => row.spent },
      { id: "committed", title: "Committed", numeric: true, cell: (row) => money(row.committed), by: (row) => row.committed },
      { id: "limit", title: "Cap", numeric: true, cell: (row) => money(row.limit), by: (row) => row.limit },
      { id: "forecast", title: "At the end", numeric: true, cell: (row) => (row.forecast !== null && row.forecast > row.limit ? h("strong", { class: "tone-bad" }, money(row.forecast), h("span", { class: "unseen" }, " over the cap")) : money(row.forecast)), by: (row) => row.forecast },
      { id: "ends", title: "Ends", cell: (row) => time(row.ends_at), by: (row) => row.ends_at },
    ],
  });
  return table;
}

/** @param {Api.BudgetRow} row */
function capBar(row) {
  const over = Math.max(0, row.spent + row.committed - row.limit);
  const marks = row.forecast !== null && row.forecast !== undefined ? [{ at: Math.min(row.forecast, 1.2 * row.limit), word: `${money(row.forecast)} at the end of the period` }] : [];
  return bar(
    [
      { part: "spent", size: Math.min(row.spent, row.limit), word: `${money(row.spent)} spent` },
      { part: "committed", size: Math.max(0, Math.min(row.committed, row.limit - row.spent)), word: `${money(row.committed)} committed` },
      { part: "over", size: over, word: `${money(over)} over` },
    ],
    { whole: Math.max(row.limit, row.spent + row.committed), marks },
  );
}

function leaseTable() {
  /** @type {Table<Api.LeaseRow>} */
  const table = new Table({
    caption: "What is and was rented",
    keyOf: (row) => row.id,
    empty: h("div", null, "Nothing has been rented. A BurstPolicy among the ", h("a", { href: "/policies" }, "policies"), " permits it."),
    columns: [
      { id: "offer", title: "Machine", cell: (row) => [row.offer, h("span", { class: "faint" }, ` ${row.market}${row.zone && `, ${row.zone}`}`)], by: (row) => row.offer },
      { id: "site", title: "Site", cell: (row) => h("a", { href: `/sites/${encodeURIComponent(row.site)}` }, row.site), by: (row) => row.site, wide: true },
      { id: "status", title: "Status", cell: (row) => h("span", { title: row.failure || row.kept_because || null }, stateMark(row.status)), by: (row) => row.status },
      { id: "gpus", title: "GPUs", numeric: true, cell: (row) => number(row.gpus), by: (row) => row.gpus },
      { id: "price", title: "An hour", numeric: true, cell: (row) => money(row.price_usd_h), by: (row) => row.price_usd_h },
      { id: "billed", title: "Billed", numeric: true, cell: (row) => money(row.billed_usd), by: (row) => row.billed_usd },
      { id: "committed", title: "Committed", numeric: true, cell: (row) => money(row.committed_usd), by: (row) => row.committed_usd },
      { id: "at", title: "Rented", cell: (row) => time(row.requested_at), by: (row) => row.requested_at },
      { id: "why", title: "Why", long: true, cell: (row) => [row.because, " ", row.evidence && h("button", { type: "button", class: "plain link", "aria-label": `Evidence for ${row.offer}`, on: { click: () => void evidence(row) } }, "evidence")] },
    ],
  });
  return table;
}

/** Why a machine was rented, as it was known then. @param {Api.LeaseRow} row */
async function evidence(row) {
  const known = row.evidence;
  if (!known) return;
  /** @type {[string, import("../dom.js").Children][]} */
  const facts = [
    ["For the job", h("a", { href: `/jobs/${encodeURIComponent(known.job)}` }, known.job)],
    ["Deadline", time(known.deadline_at)],
    ["Done at home by", known.home_finish_at ? time(known.home_finish_at) : "nobody knows"],
    ["Missed at home", known.home_risk ? `${Math.round(100 * known.home_risk)} % likely` : null],
    ["Done when rented by", time(known.burst_finish_at)],
    ["If a spot machine is lost", known.fallback_finish_at ? time(known.fallback_finish_at) : null],
    ["Costs", money(known.cost_usd)],
    ["Meeting it is worth", money(known.value_usd)],
    ["Permitted by", `${known.policy} (${known.mode})`],
    ["Decided in", known.decision ? h("a", { href: `/decisions/${encodeURIComponent(known.decision)}` }, "this decision") : null],
  ];
  await ask({ title: `Why ${row.offer} was rented`, consequence: h("div", { class: "stack" }, h("p", null, row.because), h("dl", { class: "facts" }, facts.filter(([, value]) => value !== null).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))))), action: "Close", told: true });
}

/** Use and chargeback, by whatever is asked for. */
class Usage {
  /** @param {import("../main.js").Context} context */
  constructor(context) {
    this.context = context;
    this.turn = 0;
    /** @type {Api.UsageReport | null} */
    this.report = null;
    const { query, who } = context;
    const administers = who.role !== "user" || who.queues.some((each) => each.administer);
    this.by = select("by", KEYS.map((each) => /** @type {[string, string]} */ ([each, `by ${each}`])), isKey(query.get("by")) ? (query.get("by") ?? "") : administers && who.teams.length ? "team" : "queue");
    this.and = select("and", [["", "and nothing else"], ...KEYS.map((each) => /** @type {[string, string]} */ ([each, `and by ${each}`]))], query.get("and") ?? "");
    this.span = select("span", SPANS, SPANS.some(([each]) => each === query.get("days")) ? (query.get("days") ?? "30") : "30");
    this.whose = select("whose", administers ? [["everybody", "of all whom I administer"], ["mine", "of mine"]] : [["mine", "of mine"]], administers ? (query.get("whose") ?? "everybody") : "mine");
    for (const [input, word] of /** @type {[HTMLElement, string][]} */ ([[this.by, "Added up by"], [this.and, "And by"], [this.span, "Of which time"], [this.whose, "Whose"]])) {
      input.setAttribute("aria-label", word);
      input.addEventListener("change", () => void this.load());
    }
    this.said = h("div");
    this.head = h("p", { class: "faint", role: "status" });
    this.chart = new BarChart({ label: "Money by group", series: ["owned GPUs", "rent", "moved data"], format: money });
    this.rows = h("div", { class: "stack" });
    this.csv = h("button", { type: "button", disabled: true, on: { click: () => this.#save() } }, "Export as CSV");
    this.element = panel("Use and chargeback", h("div", { class: "row" }, this.by, this.and, this.span, this.whose, this.csv), this.said, this.head, this.chart.element, this.rows);
    void this.load();
  }

  close() {
    this.turn += 1;
    this.chart.close();
  }

  /** What the rows are of. */
  get keys() {
    return [...new Set([this.by.value, this.and.value].filter(isKey))];
  }

  async load() {
    const turn = ++this.turn;
    const keys = this.keys;
    this.context.remember({ by: this.by.value, and: this.and.value, days: this.span.value, whose: this.whose.value });
    try {
      const report = await get("/v1/usage", { by: keys.join(","), since: now() - Number(this.span.value) * DAY_S, everybody: this.whose.value === "everybody" });
      if (turn !== this.turn) return;
      this.report = report;
      show(this.said);
      this.#draw(report, keys);
    } catch (error) {
      if (turn === this.turn) show(this.said, problemBox(error));
    }
  }

  /** @param {Api.UsageReport} report @param {Key[]} keys */
  #draw(report, keys) {
    const name = (/** @type {Api.UsageRow} */ row) => keys.map((key) => row[key] || "none").join(", ");
    const dated = keys[0] === "month" || keys[0] === "day" ? keys[0] : "";
    const rows = report.rows.slice().sort((one, other) => (dated ? (one[dated] < other[dated] ? -1 : 1) : other.usd - one.usd));
    this.csv.disabled = rows.length === 0;
    show(this.head, `Use of ${report.whose} since ${day(report.since)}: ${number(report.total.gpu_s / 3600, 1)} GPU-hours, ${plural(report.total.jobs, "job")}, ${money(report.total.usd)}`);
    this.chart.element.hidden = report.total.usd === 0;
    this.chart.set(rows.slice(0, 12).map((row) => ({ name: name(row), parts: [row.owned_usd, row.rented_usd, row.data_usd] })));
    /** @type {Table<Api.UsageRow>} */
    const table = new Table({
      caption: "Use and chargeback",
      keyOf: name,
      order: dated ? { id: dated, down: false } : { id: "usd", down: true },
      empty: "Nothing was used in that time.",
      columns: [
        ...keys.map((key) => /** @type {import("../table.js").Column<Api.UsageRow>} */ ({ id: key, title: key === "user" ? "User" : key.charAt(0).toUpperCase() + key.slice(1), cell: (row) => row[key] || NOTHING, by: (row) => row[key] })),
        { id: "gpu", title: "GPU-hours", numeric: true, cell: (row) => number(row.gpu_s / 3600, 1), by: (row) => row.gpu_s },
        { id: "rented", title: "of them rented", numeric: true, cell: (row) => number(row.rented_gpu_s / 3600, 1), by: (row) => row.rented_gpu_s, wide: true },
        { id: "owned", title: "Owned", numeric: true, cell: (row) => money(row.owned_usd), by: (row) => row.owned_usd },
        { id: "rent", title: "Rent", numeric: true, cell: (row) => money(row.rented_usd), by: (row) => row.rented_usd },
        { id: "data", title: "Data", numeric: true, cell: (row) => money(row.data_usd), by: (row) => row.data_usd, wide: true },
        { id: "usd", title: "All", numeric: true, cell: (row) => h("strong", null, money(row.usd)), by: (row) => row.usd },
        { id: "jobs", title: "Jobs", numeric: true, cell: (row) => number(row.jobs), by: (row) => row.jobs },
        { id: "wait", title: "Mean wait", numeric: true, cell: (row) => duration(row.wait_s), by: (row) => row.wait_s },
        { id: "deadlines", title: "Deadlines met", numeric: true, cell: (row) => (row.deadlines ? `${number(row.deadlines_met)} of ${number(row.deadlines)}` : NOTHING), by: (row) => (row.deadlines ? row.deadlines_met / row.deadlines : null) },
      ],
    });
    table.show(rows);
    show(this.rows, table.element);
  }

  /** The same as a file. */
  #save() {
    const { keys, report } = this;
    if (!report) return;
    const lines = [[...keys, ...FIELDS], ...report.rows.map((row) => [...keys, ...FIELDS].map((each) => row[each] ?? ""))];
    const file = URL.createObjectURL(new Blob([lines.map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" }));
    h("a", { href: file, download: `federator-usage-${new Date(report.until * 1000).toISOString().slice(0, 10)}.csv` }).click();
    window.setTimeout(() => URL.revokeObjectURL(file), 10_000);
  }
}

/** A cell of CSV that no spreadsheet takes for a formula. @param {string | number} value */
function cell(value) {
  const words = String(value);
  const safe = /^[=+@\t\r-]/.test(words) && !Number.isFinite(Number(words)) ? `'${words}` : words;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @param {string} heading @param {...import("../dom.js").Children} children */
function panel(heading, ...children) {
  const name = `money-${heading.toLowerCase().replaceAll(" ", "-")}`;
  return h("section", { class: "panel", "aria-labelledby": name }, h("h2", { id: name }, heading), ...children);
}
