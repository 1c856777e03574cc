// Submit a job: a form and its job file, of which each fills the other, what the schema says of the field at hand, and what would become of it while typing.
import { get, Problem, request } from "../api.js";
import { capital, notice, problemBox } from "../dialog.js";
import { h, show } from "../dom.js";
import { field, select, text } from "../form.js";
import { duration, money, time } from "../format.js";
import { now } from "../api.js";
import { maySubmit } from "../rights.js";
import { shape } from "../states.js";
import { Table } from "../table.js";
import { described, pathAt, replaced, written } from "../yaml.js";

export const title = "Submit";

const PAUSE_MS = 350;
const YAML = "application/yaml";
const DRAFT = "federator-draft";
/** Fields of the form that are not outermost keys of the file. @type {Record<string, string>} */
const WITHIN = { gpus: "resources", cpus: "resources", memory: "resources" };

/** Fields that take more than one column of the form. @type {Record<string, string>} */
const WIDER = { run: "full", deadline: "double" };

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  if (!maySubmit(context.who)) {
    show(view, h("h1", null, title), h("p", { class: "empty" }, "Your token does not submit jobs: it is limited to ", context.who.scopes.join(", "), ". Sign in with another, or ask an administrator for one with the scope submit."));
    return () => {};
  }
  const queues = context.who.queues.map((each) => each.queue);
  const fields = {
    run: field("Command", h("textarea", { name: "run", rows: 3, spellcheck: "false", placeholder: "python train.py" }), "A line or a script for /bin/sh, run once per node."),
    name: field("Name", text("name", { placeholder: "train" })),
    gpus: field("GPUs per node", text("gpus", { placeholder: "A100:4" }), "Models and count: 4, A100:4, A100|H100:80GB:4"),
    nodes: field("Nodes", h("input", { type: "number", name: "nodes", min: 1, placeholder: "1" })),
    cpus: field("Processors per node", text("cpus", { placeholder: "8" })),
    memory: field("Memory per node", text("memory", { placeholder: "32GiB" })),
    queue: field("Queue", queues.length ? select("queue", [["", context.who.default_queue || "the usual one"], ...queues]) : text("queue", { placeholder: context.who.default_queue || "default" })),
    deadline: field("Deadline", h("input", { type: "datetime-local", name: "deadline" }), "By your clock."),
    max_duration: field("Longest run", text("max_duration", { placeholder: "8h" }), "It is stopped after this."),
    max_cost: field("Highest cost", text("max_cost", { placeholder: "50 USD" })),
    array: field("Array", text("array", { placeholder: "0-99%10" }), "Indices, and how many at once."),
    outputs: field("Outputs", text("outputs", { placeholder: "results, *.ckpt" }), "Collected when it has ended; commas in between."),
  };
  const editor = h("textarea", { class: "editor", spellcheck: "false", "aria-label": "Job file, as YAML", autocapitalize: "off" });
  const help = h("div", { class: "help", "aria-live": "polite" });
  const outcome = h("div", { class: "stack", "aria-live": "polite" });
  const submit = h("button", { type: "submit", class: "main", disabled: true }, "Submit");
  const others = h("p", { class: "help", role: "status" });
  const places = placeTable();
  const form = h(
    "form",
    { class: "two", on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), void send()) } },
    h("section", { class: "panel", "aria-labelledby": "submit-form" }, h("h2", { id: "submit-form" }, "The job"), h("div", { class: "fields", on: { input: (/** @type {Event} */ event) => formed(/** @type {any} */ (event.target).name) } }, Object.entries(fields).map(([name, each]) => (WIDER[name] ? h("div", { class: WIDER[name] }, each.element) : each.element))), others),
    h("section", { class: "panel", "aria-labelledby": "submit-file" }, h("h2", { id: "submit-file" }, "Its file"), editor, help, h("div", { class: "row" }, submit, h("span", { class: "faint" }, "or keep the file and write: federator submit FILE"))),
  );
  show(view, h("h1", null, title), form, h("section", { class: "panel", "aria-labelledby": "submit-preview" }, h("h2", { id: "submit-preview" }, "What would become of it"), outcome, places.element));
  places.element.hidden = true;
  /** @type {any} */
  let schema = null;
  /** What the file says, as far as it could be read. @type {Record<string, any>} */
  let known = {};
  /** The text of which that is so. */
  let read = "";
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

  /** A field of the form has changed: so does what the file says of it, and nothing else in the file. @param {string} name */
  function formed(name) {
    const field = fields[/** @type {keyof typeof fields} */ (name)];
    if (!field) return;
    const value = fromField(name, field.input.value.trim());
    const within = WITHIN[name];
    const current = editor.value === read;
    if (current) known = { ...known, ...(within ? { [within]: { ...known[within], [name]: value } } : { [name]: value }) };
    editor.value = replaced(editor.value, within ? [within, name] : [name], value) ?? (current ? written(known) : editor.value);
    if (current) read = editor.value;
    typed();
  }

  /** The file has been read: the form shows what it says. @param {Record<string, any>} file */
  function fill(file) {
    known = file;
    read = editor.value;
    for (const [name, { input }] of Object.entries(fields)) {
      const value = WITHIN[name] ? file[WITHIN[name] ?? ""]?.[name] : file[name];
      const shown = name === "run" && file["command"] ? null : toField(name, value);
      input.disabled = shown === null;
      input.title = shown === null ? "The file says it in a way that this form has not" : "";
      if (input !== document.activeElement && input.value !== (shown ?? "")) {
        if (input instanceof HTMLSelectElement && shown && ![...input.options].some((each) => each.value === shown)) input.append(h("option", { value: shown }, shown));
        input.value = shown ?? "";
      }
    }
    const more = [...Object.keys(file), ...Object.keys(file["resources"] ?? {}).map((each) => `resources.${each}`)].filter((each) => each !== "resources" && !(each.replace("resources.", "") in fields));
    others.textContent = more.length ? `Only in the file, and kept: ${more.join(", ")}.` : "";
  }

  function typed() {
    sessionStorage.setItem(DRAFT, editor.value);
    key = "";
    explainField();
    window.clearTimeout(typing);
    pending.abort(); // what it would answer is of an older text
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
      fill({});
      places.element.hidden = true;
      show(outcome, h("p", { class: "faint" }, "Write a command, and here stands where and when it would run, and what it would cost."));
      submit.disabled = true;
      return;
    }
    try {
      const found = await request("POST", "/v1/preview", { body: editor.value, type: YAML, signal: mine.signal });
      if (mine !== pending) return;
      submit.disabled = false;
      fill(found.file);
      drawOutcome(found);
    } catch (error) {
      if (mine.signal.aborted) return;
      places.element.hidden = true;
      submit.disabled = true;
      refuse(error);
      show(outcome, problemBox(error));
    }
  }

  /** Say it at the field that it is about; without a problem nothing is wrong. @param {unknown} [error] */
  function refuse(error) {
    const about = error instanceof Problem ? (error.field.split(".").pop() ?? "") : "";
    for (const [name, each] of Object.entries(fields)) each.refuse(error instanceof Problem && (name === about || (name === "gpus" && about === "accelerators")) ? capital(error.message) : "");
  }

  /** @param {Api.Preview} found */
  function drawOutcome(found) {
    const told = found.explanation;
    const best = told.sites.find((each) => !each.filter && !each.extra_cost_usd) ?? told.sites.find((each) => !each.filter);
    const late = told.deadline_at && told.expected_finish_at ? Math.max(0, told.expected_finish_at - told.deadline_at) : 0;
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
      late > 0 && h("p", { class: "state tone-bad" }, shape("bad"), `It would miss its deadline by ${duration(late)}${told.deadline_usd === null ? ", and nothing that could begin now meets it" : `; meeting it costs at least ${money(told.deadline_usd)}`}.`),
      told.because && h("p", null, capital(told.because), "."),
      found.notes.map((each) => h("p", { class: "state tone-leaving" }, shape("leaving"), capital(each))),
      told.remedies.length > 0 && [h("h3", null, "What would help"), h("ol", { class: "advice" }, told.remedies.map((each) => h("li", null, capital(each.text))))],
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

/** What the file says, from what a field says. @param {string} name @param {string} text @returns {string | string[] | number} */
function fromField(name, text) {
  if (name === "outputs") return text.split(",").map((each) => each.trim()).filter(Boolean);
  if (name === "deadline") return text ? new Date(text).toISOString().replace(".000", "") : "";
  return ["nodes", "gpus", "cpus"].includes(name) && /^\d+$/.test(text) ? Number(text) : text;
}

/** What a field says, from what the file says; null where the field cannot say it. @param {string} name @param {unknown} value @returns {string | null} */
function toField(name, value) {
  if (value === undefined || value === null) return "";
  if (name === "outputs" && Array.isArray(value)) return value.every((each) => !String(each).includes(",")) ? value.join(", ") : null;
  if (typeof value === "object") return null;
  if (name !== "deadline") return String(value);
  const at = new Date(String(value));
  if (Number.isNaN(at.getTime())) return null;
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** @param {string} name @param {import("../dom.js").Children} value */
const figure = (name, value) => h("div", null, h("dt", null, name), h("dd", null, h("strong", null, value)));

function placeTable() {
  /** @type {Table<Api.SiteReason>} */
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
