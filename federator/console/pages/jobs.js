// All jobs: filtered, sorted and paged by the dispatcher, with arrays as one line.
import { at, get, now, post } from "../api.js";
import { act, suiting, wordFor } from "../actions.js";
import { ask, notice, problemBox } from "../dialog.js";
import { h, show } from "../dom.js";
import { select, text } from "../form.js";
import { duration, gang, money, number, plural, time } from "../format.js";
import { maySubmit } from "../rights.js";
import { stateMark, wordOf } from "../states.js";
import { keepFresh } from "../stream.js";
import { Pager, Table } from "../table.js";

export const title = "Jobs";

const LIMIT = 100;
const OPEN = "PENDING,PLACED,STARTING,RUNNING,SUSPENDING,RECOVERING,CANCELLING,HELD";
/** @type {[string, string][]} */
const STATUSES = [["", "any status"], [OPEN, "not over"], ["PENDING", "waiting"], ["RUNNING", "running"], ["HELD", "held"], ["FAILED", "failed"], ["SUCCEEDED", "succeeded"], ["CANCELLED", "cancelled"]];
/** @type {[string, string][]} */
const TIMES = [["", "submitted at any time"], ["3600", "in the last hour"], ["86400", "in the last day"], ["604800", "in the last week"]];
/** Filters as the API names them, and as they stand in the address. */
const NAMES = ["text", "status", "queue", "owner", "site", "reason", "at_risk", "array", "label", "sort", "within", "mine", "tasks"];
/** @type {import("../actions.js").Verb[]} */
const VERBS = ["hold", "release", "requeue", "cancel"];

/** What is said of an array begins with its tasks by status, which have a column of their own. */
const TALLY = /^(\d+ [A-Z]+(, |: |$))+/;

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  /** @type {Record<string, string>} */
  const wanted = {};
  for (const name of NAMES) wanted[name] = context.query.get(name) ?? "";
  /** Rows that are chosen, by id. @type {Map<string, Api.JobRow>} */
  const chosen = new Map();
  const said = h("div");
  const search = text("text", { type: "search", value: wanted["text"], placeholder: "Name or id", "aria-label": "Name or id" });
  const status = select("status", STATUSES, wanted["status"]);
  if (status.value !== wanted["status"]) {
    status.append(h("option", { value: wanted["status"] ?? "" }, (wanted["status"] ?? "").toLowerCase()));
    status.value = wanted["status"] ?? "";
  }
  status.setAttribute("aria-label", "Status");
  const queue = text("queue", { value: wanted["queue"], placeholder: "Queue", "aria-label": "Queue", class: "short" });
  const owner = text("owner", { value: wanted["owner"], placeholder: "Owner", "aria-label": "Owner", class: "short" });
  const site = text("site", { value: wanted["site"], placeholder: "Site", "aria-label": "Site", class: "short" });
  const within = select("within", TIMES, wanted["within"]);
  within.setAttribute("aria-label", "Submitted");
  const mine = check("mine", "mine", wanted["mine"] === "1");
  const tasks = check("tasks", "each task of arrays", wanted["tasks"] === "1" || Boolean(wanted["array"]));
  const chips = h("div", { class: "row" });
  const form = h("form", { class: "row filters", role: "search", on: { submit: (/** @type {Event} */ event) => event.preventDefault(), input: typed, change: changed } }, search, status, queue, owner, site, within, mine.element, tasks.element, chips);
  const whole = h("section", { class: "panel", "aria-label": "The array", hidden: true });
  const acts = h("div", { class: "row", "aria-label": "What to do to the chosen jobs" });
  const pager = new Pager(() => fresh.again());
  const table = jobTable();
  show(view, h("div", { class: "row between" }, h("h1", null, title), maySubmit(context.who) && h("a", { class: "button", href: "/submit" }, "Submit a job")), form, said, whole, acts, table.element, pager.element);
  drawChips();
  drawActs();
  let typing = 0;
  const fresh = keepFresh(load, { topics: ["jobs", "plan"], onError: (error) => error.code !== "unreachable" && show(said, problemBox(error)) });
  return () => {
    window.clearTimeout(typing);
    fresh.stop();
  };

  async function load() {
    const page = await get("/v1/jobs", query());
    show(said);
    for (const row of page.jobs) {
      if (!isChoosable(row)) chosen.delete(row.id);
      else if (chosen.has(row.id)) chosen.set(row.id, row);
    }
    table.show(page.jobs);
    const first = (pager.begun.length - 1) * LIMIT;
    pager.show(page.next_after, page.total ? `${number(first + 1)} to ${number(first + page.jobs.length)} of ${plural(page.total, tasks.input.checked ? "job" : "line")}` : "");
    drawActs();
    if (wanted["array"] && page.jobs.length) drawArray(whole, await get(at("/v1/jobs/{id}/array", wanted["array"])), maySubmit(context.who) ? again : null);
    else whole.hidden = true;
  }

  /** Submit again what failed of an array. @param {Api.ArrayDetail} array */
  async function again(array) {
    const failed = array.tasks["FAILED"] ?? 0;
    const agreed = await ask({ title: `Submit what failed of ${array.name} again?`, action: "Submit", consequence: h("p", null, `${plural(failed, "task")}, as they were, become a new array. Those that failed stay on record.`) });
    if (!agreed) return;
    try {
      const made = await post("/v1/jobs/rerun", { job: array.id, failed: true });
      notice(`${made.name} is submitted`);
      context.go(`/jobs?text=${encodeURIComponent(made.name)}`);
    } catch (error) {
      notice(/** @type {Error} */ (error));
    }
  }

  function query() {
    return {
      text: wanted["text"],
      status: wanted["status"],
      queue: wanted["queue"],
      owner: mine.input.checked ? "" : wanted["owner"],
      site: wanted["site"],
      reason: wanted["reason"],
      at_risk: wanted["at_risk"] === "1",
      array: wanted["array"],
      label: wanted["label"],
      since: wanted["within"] ? Math.floor(now() - Number(wanted["within"])) : "",
      mine: mine.input.checked,
      collapse: !tasks.input.checked,
      sort: wanted["sort"],
      after: pager.after,
      limit: LIMIT,
    };
  }

  function typed() {
    window.clearTimeout(typing);
    typing = window.setTimeout(changed, 250);
  }

  function changed() {
    window.clearTimeout(typing);
    Object.assign(wanted, { text: search.value.trim(), status: status.value, queue: queue.value.trim(), owner: owner.value.trim(), site: site.value.trim(), within: within.value, mine: mine.input.checked ? "1" : "", tasks: tasks.input.checked ? "1" : "" });
    pager.reset();
    context.remember(wanted);
    fresh.again();
  }

  function drawChips() {
    show(
      chips,
      ["reason", "at_risk", "array", "label"].filter((name) => wanted[name]).map((name) =>
        h("button", { type: "button", class: "chip", title: "Take this filter away", on: { click: () => ((wanted[name] = ""), drawChips(), changed()) } }, name === "at_risk" ? "deadline at risk" : `${name} ${wanted[name]}`, " ×"),
      ),
    );
  }

  function drawActs() {
    acts.hidden = chosen.size === 0;
    if (acts.hidden) return;
    const rows = [...chosen.values()];
    const kinds = new Set(rows.flatMap(verbsFor));
    const told = `${plural(chosen.size, "line")} chosen`;
    if (acts.dataset["told"] === told + [...kinds]) return;
    acts.dataset["told"] = told + [...kinds];
    show(
      acts,
      h("span", { role: "status" }, told),
      VERBS.filter((verb) => kinds.has(verb)).map((verb) => h("button", { type: "button", class: verb === "cancel" ? "grave" : null, on: { click: () => void doIt(verb) } }, wordFor(verb))),
      h("button", { type: "button", class: "plain", on: { click: forget } }, "Choose none"),
    );
  }

  /** @param {import("../actions.js").Verb} verb */
  async function doIt(verb) {
    if (await act(verb, [...chosen.values()])) forget();
  }

  function forget() {
    chosen.clear();
    for (const each of table.body.querySelectorAll("input")) each.checked = false;
    drawActs();
    fresh.again();
  }

  function jobTable() {
    const sort = wanted["sort"] ?? "";
    /** @type {Table<Api.JobRow>} */
    const made = new Table({
      caption: "Jobs",
      keyOf: (row) => row.id,
      order: sort ? { id: sort.replace(/^-/, ""), down: sort.startsWith("-") } : { id: "submitted", down: true },
      onOrder: ({ id, down }) => {
        wanted["sort"] = id === "submitted" && down ? "" : `${down ? "-" : ""}${id}`;
        changed();
      },
      empty: h("div", null, "No job is like that. ", h("a", { href: "/submit" }, "Submit one"), ", or take a filter away."),
      columns: [
        { id: "name", title: "Name", sorted: true, cell: nameCell },
        { id: "status", title: "Status", sorted: true, cell: (row) => (row.indices ? tally(row.tasks) : stateMark(row.status)) },
        { id: "owner", title: "Owner", sorted: true, cell: (row) => row.owner },
        { id: "queue", title: "Queue", sorted: true, cell: (row) => row.queue },
        { id: "gpus", title: "GPUs", sorted: true, numeric: true, cell: (row) => gang(row.nodes, row.gpus, row.models) },
        { id: "site", title: "Site", sorted: true, cell: (row) => [row.site, row.market && row.market !== "owned" ? h("span", { class: "faint" }, ` ${row.market}`) : null] },
        { id: "submitted", title: "Submitted", sorted: true, numeric: true, wide: true, cell: (row) => time(row.submitted_at) },
        { id: "starts", title: "Starts", sorted: true, numeric: true, cell: (row) => (row.started_at ? time(row.started_at) : row.expected_start_at ? time(row.expected_start_at) : "–") },
        { id: "ends", title: "Ends", sorted: true, numeric: true, cell: endCell },
        { id: "spent", title: "Spent", sorted: true, numeric: true, wide: true, cell: (row) => money(row.spent_usd) },
        { id: "because", title: "Why", long: true, cell: becauseCell },
      ],
    });
    return made;
  }

  /** @param {Api.JobRow} row */
  function nameCell(row) {
    const label = row.indices ? `${row.name}[${row.indices}]` : row.array_index === null ? row.name : `${row.name}[${row.array_index}]`;
    const box = h("input", { type: "checkbox", "aria-label": `Choose ${label}`, checked: chosen.has(row.id), on: { change: () => (box.checked ? chosen.set(row.id, row) : chosen.delete(row.id), drawActs()) } });
    const href = row.indices ? `/jobs?array=${encodeURIComponent(row.array ?? "")}` : `/jobs/${encodeURIComponent(row.id)}`;
    return h("span", { class: "named" }, isChoosable(row) ? box : h("span", { class: "no-box" }), h("a", { href, title: `${label} ${row.id}` }, label));
  }
}

/** What could be done to it, or to some task of it. @param {Api.JobRow} row */
const verbsFor = (row) => (Object.keys(row.tasks).length ? Object.keys(row.tasks) : [row.status]).flatMap(suiting);

/** Whether there is something that who looks may do to it. @param {Api.JobRow} row */
const isChoosable = (row) => row.may_change && verbsFor(row).length > 0;

/** @param {Api.JobRow} row */
function becauseCell({ because, indices }) {
  const told = indices ? because.replace(TALLY, "") : because;
  return told && h("span", { class: "because", title: because }, told);
}

/** @param {Api.JobRow} row */
function endCell(row) {
  const at = row.finished_at ?? row.expected_finish_at;
  const late = row.missed_deadline || (row.deadline_at && at && at > row.deadline_at);
  return at ? (late ? h("span", { class: "tone-bad", title: "after its deadline" }, "⚠ ", time(at)) : time(at)) : "–";
}

/** An array, added up. @param {HTMLElement} place @param {Api.ArrayDetail} array @param {((array: Api.ArrayDetail) => void) | null} again Submit again what failed, for who may. */
function drawArray(place, array, again) {
  place.hidden = false;
  const ended = Object.entries(array.ended);
  show(
    place,
    h("div", { class: "row between" }, h("h2", null, `${array.name}[${array.indices}]`), tally(array.tasks), array.tasks["FAILED"] && again ? h("button", { type: "button", on: { click: () => void again(array) } }, "Submit what failed again") : null),
    h(
      "dl",
      { class: "facts" },
      fact("At once", array.at_once ? `at most ${number(array.at_once)}` : "as many as fit"),
      fact("Started", time(array.started_at)),
      fact(array.finished_at ? "Ended" : "Should end", time(array.finished_at ?? array.expected_finish_at)),
      fact("Each ran", duration(array.mean_run_s)),
      fact("Spent", `${money(array.spent_usd)}, ${number(array.gpu_s / 3600, 1)} GPU-hours`),
      fact("Places", Object.entries(array.sites).map(([name, count]) => `${name} ${count}`).join(", ") || "–"),
      array.outputs && fact("Outputs of", array.outputs),
    ),
    array.waits && h("p", null, `The first that waits: ${array.waits}`),
    ended.length > 0 && h("ul", { class: "lines" }, ended.slice(0, 10).map(([why, which]) => h("li", null, why, ": ", h("span", { class: "mono" }, String(which))))),
  );
}

/** @param {string} name @param {import("../dom.js").Children} value */
const fact = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));

/** How many tasks are in each status. @param {Record<string, number>} tasks */
function tally(tasks) {
  return h("span", { class: "tally" }, Object.entries(tasks).map(([name, count]) => stateMark(name, `${number(count)} ${wordOf(name)}`)));
}

/** @param {string} name @param {string} label @param {boolean} on */
function check(name, label, on) {
  const input = h("input", { type: "checkbox", name, checked: on });
  return { input, element: h("label", { class: "row tight" }, input, label) };
}
