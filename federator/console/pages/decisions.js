// Decisions: each turn that did something, how good it was, who won, what was stale; decided again by a button.
import { at, get, post } from "../api.js";
import { capital, namesNone, problemBox, showNone } from "../dialog.js";
import { h, show } from "../dom.js";
import { absolute, bytes, money, number, plural, time } from "../format.js";
import { mayTry } from "../rights.js";
import { shape } from "../states.js";
import { keepFresh } from "../stream.js";
import { Table } from "../table.js";

export const title = "Decisions";

const PAGE = 50;

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  const [name] = context.rest;
  return name === undefined ? openAll(view) : openOne(view, context, name);
}

const path = (/** @type {string} */ id) => `/decisions/${encodeURIComponent(id)}`;
const gap = (/** @type {Api.DecisionRow} */ row) => (row.proof ? `${(100 * row.proof.gap).toFixed(2)} %` : "–");

/** @param {HTMLElement} view */
function openAll(view) {
  const said = h("div");
  /** Before which decision each page begins; the first one is the newest. @type {string[]} */
  const begun = [""];
  let more = false;
  const back = h("button", { type: "button", on: { click: () => (begun.pop(), fresh.again()) } }, "Newer");
  const on = h("button", { type: "button", on: { click: () => (begun.push(table.rows[table.rows.length - 1]?.id ?? ""), fresh.again()) } }, "Older");
  /** @type {Table<Api.DecisionRow>} */
  const table = new Table({
    caption: "Recorded decisions, newest first",
    keyOf: (row) => row.id,
    empty: h("div", null, "Nothing has been decided yet. ", h("a", { href: "/submit" }, "Submit a job")),
    columns: [
      { id: "at", title: "Decided", cell: (row) => h("a", { href: path(row.id) }, time(row.at)) },
      { id: "winner", title: "Winner", cell: (row) => h("span", { title: row.winner_because }, row.winner) },
      { id: "objective", title: "Objective", numeric: true, cell: (row) => money(row.objective_usd) },
      { id: "gap", title: "Gap", numeric: true, cell: (row) => gap(row) },
      { id: "actions", title: "Actions", numeric: true, cell: (row) => number(row.actions) },
      { id: "stale", title: "Stale", numeric: true, cell: (row) => (row.stale ? h("span", { class: "state tone-leaving" }, shape("leaving"), number(row.stale)) : "0") },
      { id: "jobs", title: "Jobs seen", numeric: true, cell: (row) => number(row.jobs) },
      { id: "waiting", title: "Left waiting", numeric: true, cell: (row) => number(row.waiting) },
      { id: "stages", title: "Stages", cell: (row) => row.stages, wide: true },
      { id: "size", title: "Record", numeric: true, cell: (row) => bytes(row.size_bytes), wide: true },
      { id: "plan", title: "As of then", cell: (row) => h("a", { href: `/plan?decision=${encodeURIComponent(row.id)}`, "aria-label": `The plan of ${absolute(row.at)}` }, "Plan") },
    ],
  });
  show(
    view,
    h("h1", null, title),
    h("p", { class: "faint" }, "Turns that did something, and now and then one that did not. The gap is how far a decision was from the best that is proven possible; stale is what was not done because the world had moved."),
    said,
    table.element,
    h("div", { class: "pager" }, back, on),
  );
  const fresh = keepFresh(
    async () => {
      const before = begun[begun.length - 1];
      const rows = await get("/v1/decisions", { last: PAGE + 1, before });
      more = rows.length > PAGE;
      table.show(rows.slice(-PAGE).reverse());
      back.disabled = begun.length < 2;
      on.disabled = !more;
      show(said);
    },
    {
      topics: ["plan"],
      onError: (error) => {
        if (error.status === 404) begun.length = 1; // the page before which this one begins is kept no more
        else if (error.code !== "unreachable") show(said, problemBox(error));
      },
    },
  );
  return fresh.stop;
}

/** @param {HTMLElement} view @param {import("../main.js").Context} context @param {string} id */
function openOne(view, context, id) {
  context.name("A decision");
  const said = h("div");
  const parts = h("div", { class: "stack" });
  const verdict = h("div", { class: "stack", role: "status" });
  const again = h("button", { type: "button", on: { click: () => void replay() } }, "Decide again");
  const plan = h("a", { class: "button", href: `/plan?decision=${encodeURIComponent(id)}` }, "The plan as of then");
  show(view, h("div", { class: "row apart" }, h("h1", null, "A decision"), h("div", { class: "row" }, plan, mayTry(context.who) && again)), said, verdict, parts);
  let closed = false;
  get(at("/v1/decisions/{id}/told", id)).then(
    (found) => !closed && draw(found),
    (error) => !closed && (namesNone(error) ? showNone(view, "decision", error, "/decisions", context.name) : show(said, problemBox(error))),
  );

  async function replay() {
    again.disabled = true;
    show(verdict, h("p", { class: "faint" }, "Deciding again from the record …"));
    try {
      const found = await post(at("/v1/decisions/{id}/replay", id));
      show(
        verdict,
        found.identical
          ? h("p", { class: "state tone-good" }, shape("good"), "Identical: the same problem gives the same plan, byte for byte.")
          : [h("p", { class: "state tone-bad" }, shape("bad"), "It came out otherwise:"), h("ul", { class: "lines" }, found.differences.slice(0, 50).map((each) => h("li", null, each)))],
      );
    } catch (error) {
      show(verdict, problemBox(error));
    }
    again.disabled = false;
  }

  /** @param {Api.ToldDecision} found */
  function draw({ row, plan: made, names: known, pools, offers, policy_version: version }) {
    const names = new Map(Object.entries(known));
    /** @type {[string, import("../dom.js").Children][]} */
    const facts = [
      ["Taken", time(made.taken_at)],
      ["Winner", [made.winner, h("span", { class: "faint" }, ` ${made.winner_because}`)]],
      ["Objective", money(made.objective_usd)],
      ["Gap", row.proof ? `${gap(row)} above the model; no plan costs less than ${money(row.proof.bound_usd)}` : "not certified"],
      ["Actions", `${number(row.actions)} done, ${number(row.stale)} stale`],
      ["Looked at", `${plural(row.jobs, "waiting job")}, ${plural(pools, "pool")}, ${plural(offers, "offer")}, policies version ${version}`],
    ];
    show(
      parts,
      h("p", { class: "mono" }, id),
      h("dl", { class: "figures" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
      panel("What it does", actions(made.actions, names)),
      panel("What made its price", terms(made.terms)),
      panel("Stages", stages(made.stages)),
      panel("What it lets wait", waits(made.waiting, names)),
    );
  }
  return () => void (closed = true);
}

/** @template T @param {string} heading @param {Table<T>} table */
function panel(heading, table) {
  const name = heading.toLowerCase().replaceAll(" ", "-");
  return h("section", { class: "panel", "aria-labelledby": name }, h("h2", { id: name }, heading), table.element);
}

/** @template T @param {Table<T>} table @param {T[]} rows */
function filled(table, rows) {
  table.show(rows);
  return table;
}

/** @param {string} id @param {Map<string, string>} names */
const job = (id, names) => h("a", { href: `/jobs/${encodeURIComponent(id)}` }, names.get(id) ?? id);

/** @param {Api.Plan["actions"]} rows @param {Map<string, string>} names */
function actions(rows, names) {
  return filled(
    new Table({
      caption: "Actions",
      keyOf: (row) => `${row.type}/${row.job}/${row.placement ?? ""}`,
      empty: "Nothing.",
      columns: [
        { id: "job", title: "Job", cell: (row) => job(row.job, names), by: (row) => names.get(row.job) ?? row.job },
        { id: "type", title: "Action", cell: (row) => row.type ?? "", by: (row) => row.type },
        { id: "site", title: "Where", cell: (row) => [row.site ?? "", row.pool ? `/${row.pool}` : ""].join(""), by: (row) => row.site },
        { id: "end", title: "Expected end", cell: (row) => time(row.expected_end_at ?? row.finish_at), by: (row) => row.expected_end_at },
        { id: "why", title: "Why", long: true, cell: (row) => row.because },
      ],
    }),
    rows.slice(0, 1000),
  );
}

/** @param {Record<string, number>} found */
function terms(found) {
  return filled(
    new Table({
      caption: "Terms of the objective",
      keyOf: (row) => row[0],
      empty: "Nothing.",
      columns: [
        { id: "term", title: "Term", cell: (row) => capital(row[0].replaceAll("_", " ")), by: (row) => row[0] },
        { id: "usd", title: "Dollars", numeric: true, cell: (row) => money(row[1]), by: (row) => row[1] },
      ],
    }),
    Object.entries(found).filter(([, usd]) => usd !== 0),
  );
}

/** @param {Api.StageReport[]} rows */
function stages(rows) {
  return filled(
    new Table({
      caption: "Stages of deciding",
      keyOf: (row) => row.stage,
      empty: "Nothing.",
      columns: [
        { id: "stage", title: "Stage", cell: (row) => row.stage },
        { id: "done", title: "Completed", cell: (row) => (row.completed ? "yes" : "no") },
        { id: "usd", title: "Objective", numeric: true, cell: (row) => money(row.objective_usd) },
        { id: "bound", title: "Bound", numeric: true, cell: (row) => money(row.bound_usd) },
        { id: "work", title: "Work", numeric: true, cell: (row) => number(row.work) },
        { id: "note", title: "Note", cell: (row) => row.note || (row.columns ? `${plural(row.columns, "column")}, ${plural(row.rows, "row")}` : ""), wide: true },
      ],
    }),
    rows,
  );
}

/** @param {Api.Waiting[]} rows @param {Map<string, string>} names */
function waits(rows, names) {
  return filled(
    new Table({
      caption: "Jobs that wait",
      keyOf: (row) => row.job,
      empty: "Nothing waits.",
      few: 50,
      columns: [
        { id: "job", title: "Job", cell: (row) => job(row.job, names), by: (row) => names.get(row.job) ?? row.job },
        { id: "kind", title: "For", cell: (row) => row.kind, by: (row) => row.kind },
        { id: "why", title: "Reason", long: true, cell: (row) => row.because },
        { id: "start", title: "Expected start", cell: (row) => time(row.expected_start_at), by: (row) => row.expected_start_at },
      ],
    }),
    rows.slice(0, 1000),
  );
}
