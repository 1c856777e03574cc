// Submit a job: a form that writes a job file, the file to edit, what the schema says of the field at hand, and what would become of it while typing.
import { get, Problem, request } from "../api.js";
import { capital, notice, problemBox } from "../dialog.js";
import { h, show } from "../dom.js";
import { field, select, text } from "../form.js";
import { duration, money, time } from "../format.js";
import { now } from "../api.js";
import { shape } from "../states.js";
import { Table } from "../table.js";
import { described, pathAt, written } from "../yaml.js";

export const title = "Submit";

const PAUSE_MS = 350;
const YAML = "application/yaml";
const DRAFT = "federator-draft";

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  const queues = context.who.queues.map((/** @type {any} */ each) => each.queue);
  const fields = {
    run: field("Command", h("textarea", { name: "run", rows: 3, spellcheck: "false", placeholder: "python train.py" }), "A line or a script for /bin/sh, run once per node."),
    name: field("Name", text("name", { placeholder: "train" })),
    gpus: field("GPUs per node", text("gpus", { placeholder: "A100:4" }), "Models and count: 4, A100:4, A100|H100:80GB:4"),
    nodes: field("Nodes", h("input", { type: "number", name: "nodes", min: 1, placeholder: "1" })),
    cpus: field("Processors per node", text("cpus", { placeholder: "8" })),
    memory: field("Memory per node", text("memory", { placeholder: "32GiB" })),
    queue: field("Queue", queues.length ? select("queue", [["", context.who.default_queue || "the usual one"], ...queues]) : text("queue", { placeholder: context.who.default_queue || "default" })),
    max_duration: field("Longest run", text("max_duration", { placeholder: "8h" }), "It is stopped after this."),
    deadline: field("Deadline", h("input", { type: "datetime-local", name: "deadline" }), "By your clock."),
    max_cost: field("Highest cost", text("max_cost", { placeholder: "50 USD" })),
    array: field("Array", text("array", { placeholder: "0-99%10" }), "Indices, and how many at once."),
    outputs: field("Outputs", text("outputs", { placeholder: "results, *.ckpt" }), "Collected when it has ended; commas in between."),
  };
  const editor = h("textarea", { class: "editor", spellcheck: "false", "aria-label": "Job file, as YAML", autocapitalize: "off" });
  const help = h("div", { class: "help", "aria-live": "polite" });
  const outcome = h("div", { class: "stack", "aria-live": "polite" });
  const submit = h("button", { type: "submit", class: "main" }, "Submit");
  const again = h("button", { type: "button", hidden: true, on: { click: overwrite } }, "Write it from the form again");
  const places = placeTable();
  const form = h(
    "form",
    { class: "two", on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), void send()) } },
    h("section", { class: "panel", "aria-labelledby": "submit-form" }, h("h2", { id: "submit-form" }, "The job"), h("div", { class: "fields", on: { input: formed } }, Object.entries(fields).map(([name, each]) => (name === "run" ? h("div", { class: "full" }, each.element) : each.element)))),
    h("section", { class: "panel", "aria-labelledby": "submit-file" }, h("div", { class: "row between" }, h("h2", { id: "submit-file" }, "Its file"), again), editor, help, h("div", { class: "row" }, submit, h("span", { class: "faint" }, "or keep the file and write: federator submit FILE"))),
  );
  show(view, h("h1", null, title), form, h("section", { class: "panel", "aria-labelledby": "submit-preview" }, h("h2", { id: "submit-preview" }, "What would become of it"), outcome, places.element));
  places.element.hidden = true;
  /** @type {any} */
  let schema = null;
  let generated = "";
  let key = "";
  let typing = 0;
  let pending = new AbortController();
  editor.value = sessionStorage.getItem(DRAFT) ?? "";
  editor.addEventListener("input", typed);
  for (const event of ["keyup", "click", "focus"]) editor.addEventListener(event, explainField);
  get("/v1/schemas/job").then(
    (found) => ((schema = found), explainField()),
    () => {},
  );
  typed();
  return () => {
    window.clearTimeout(typing);
    pending.abort();
  };

  /** The form has changed: it writes the file, unless that was edited by hand. */
  function formed() {
    if (editor.value.trim() && editor.value !== generated) {
      again.hidden = false;
      return;
    }
    overwrite();
  }

  function overwrite() {
    const value = (/** @type {keyof typeof fields} */ name) => fields[name].input.value.trim();
    const number = (/** @type {string} */ given) => (/^\d+$/.test(given) ? Number(given) : given);
    generated = written({
      run: value("run"),
      name: value("name"),
      queue: value("queue"),
      nodes: number(value("nodes")),
      resources: { gpus: number(value("gpus")), cpus: number(value("cpus")), memory: value("memory") },
      max_duration: value("max_duration"),
      deadline: value("deadline") ? new Date(value("deadline")).toISOString().replace(".000", "") : "",
      max_cost: value("max_cost"),
      array: value("array"),
      outputs: value("outputs") ? value("outputs").split(",").map((each) => each.trim()).filter(Boolean) : [],
    });
    editor.value = generated;
    again.hidden = true;
    typed();
  }

  function typed() {
    sessionStorage.setItem(DRAFT, editor.value);
    again.hidden = again.hidden || editor.value === generated;
    key = "";
    explainField();
    window.clearTimeout(typing);
    typing = window.setTimeout(preview, PAUSE_MS);
  }

  function explainField() {
    if (!schema) return;
    const path = pathAt(editor.value, editor.selectionStart);
    const found = described(schema, path) ?? described(schema, path.slice(0, -1));
    if (!found) return show(help);
    show(
      help,
      found.name && h("p", null, h("strong", null, path.join(".")), " ", found.text.split("`").map((each, index) => (index % 2 ? h("code", null, each) : each))),
      found.examples.length > 0 && h("p", null, "Such as ", found.examples.map((each, index) => [index ? ", " : "", h("code", null, each)]).flat()),
      found.known.length > 0 && h("p", null, found.name ? "In it: " : "Fields: ", found.known.map((each, index) => [index ? ", " : "", h("code", null, each)]).flat()),
    );
  }

  async function preview() {
    pending.abort();
    pending = new AbortController();
    const mine = pending;
    refuse(null);
    if (!editor.value.trim()) {
      places.element.hidden = true;
      show(outcome, h("p", { class: "faint" }, "Write a command, and here stands where and when it would run, and what it would cost."));
      submit.disabled = true;
      return;
    }
    try {
      const found = await request("POST", "/v1/preview", { body: editor.value, type: YAML, signal: mine.signal });
      if (mine !== pending) return;
      submit.disabled = false;
      drawOutcome(found);
    } catch (error) {
      if (mine.signal.aborted) return;
      places.element.hidden = true;
      submit.disabled = true;
      refuse(error);
      show(outcome, problemBox(error));
    }
  }

  /** Say it at the field that it is about. @param {any} error */
  function refuse(error) {
    const about = error instanceof Problem ? (error.field.split(".").pop() ?? "") : "";
    for (const [name, each] of Object.entries(fields)) each.refuse(error && (name === about || (name === "gpus" && about === "accelerators")) ? capital(error.message) : "");
  }

  /** @param {any} found */
  function drawOutcome(found) {
    const told = found.explanation;
    const best = told.sites.find((/** @type {any} */ each) => !each.filter && !each.extra_cost_usd) ?? told.sites.find((/** @type {any} */ each) => !each.filter);
    const late = told.deadline_at && told.expected_finish_at && told.expected_finish_at > told.deadline_at;
    show(
      outcome,
      h(
        "dl",
        { class: "figures" },
        figure("Starts", told.expected_start_at ? (told.expected_start_at - now() < 2 ? "at once" : time(told.expected_start_at)) : "nobody knows"),
        figure("Ends", told.expected_finish_at ? time(told.expected_finish_at) : "nobody knows"),
        figure("Where", best ? `${best.site}/${best.pool}` : "nowhere now"),
        figure("Costs", money(found.cost_usd ?? best?.direct_usd)),
        told.finish_low_at && figure("Likely between", h("span", null, time(told.finish_low_at), " and ", time(told.finish_high_at))),
      ),
      late && h("p", { class: "state tone-bad" }, shape("bad"), `It would miss its deadline by ${duration(told.expected_finish_at - told.deadline_at)}${told.deadline_usd === null ? ", and nothing that could begin now meets it" : `; meeting it costs at least ${money(told.deadline_usd)}`}.`),
      told.because && h("p", null, capital(told.because), "."),
      found.notes.map((/** @type {string} */ each) => h("p", { class: "state tone-leaving" }, shape("leaving"), capital(each))),
      told.remedies.length > 0 && h("p", null, "Would help: ", told.remedies.map((/** @type {any} */ each) => each.text).join("; "), "."),
    );
    places.show(told.sites);
    places.element.hidden = false;
  }

  async function send() {
    key ||= [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
    submit.disabled = true;
    try {
      const made = await request("POST", "/v1/jobs", { body: editor.value, type: YAML, headers: { "Idempotency-Key": key } });
      sessionStorage.removeItem(DRAFT);
      notice(made.series ? `${made.name} is a series now` : `${made.name} is submitted`);
      context.go(made.jobs.length === 1 ? `/jobs/${encodeURIComponent(made.jobs[0])}` : `/jobs?text=${encodeURIComponent(made.name)}`);
    } catch (error) {
      refuse(error);
      show(outcome, problemBox(error));
    }
    submit.disabled = false;
  }
}

/** @param {string} name @param {import("../dom.js").Children} value */
const figure = (name, value) => h("div", null, h("dt", null, name), h("dd", null, h("strong", null, value)));

function placeTable() {
  /** @type {Table<any>} */
  const table = new Table({
    caption: "Every place, and whether the job could run there",
    keyOf: (row) => `${row.site}/${row.pool}`,
    empty: "There is no place at all: no site has joined, and nothing can be rented.",
    columns: [
      { id: "place", title: "Place", cell: (row) => `${row.site}/${row.pool}`, by: (row) => `${row.site}/${row.pool}` },
      { id: "fits", title: "Fits", cell: (row) => h("span", { class: `state tone-${row.filter ? "bad" : "good"}` }, shape(row.filter ? "bad" : "good"), row.filter || "fits"), by: (row) => row.filter },
      { id: "text", title: "Why", long: true, cell: (row) => capital(row.text) },
      { id: "start", title: "Could start", numeric: true, cell: (row) => time(row.start_at), by: (row) => row.start_at },
      { id: "finish", title: "Could end", numeric: true, cell: (row) => time(row.finish_at), by: (row) => row.finish_at },
      { id: "direct", title: "Cost there", numeric: true, cell: (row) => money(row.direct_usd), by: (row) => row.direct_usd },
    ],
  });
  return table;
}
