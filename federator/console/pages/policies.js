// Policies: the set in force and its history, an editor that checks as one types, compares, tries on the last days, and applies; and rentals that wait for approval.
import { get, post, Problem, request } from "../api.js";
import { ask, capital, notice, problemBox } from "../dialog.js";
import { h, show } from "../dom.js";
import { field, select, text } from "../form.js";
import { duration, money, number, plural, time } from "../format.js";
import { mayRun, mayTry } from "../rights.js";
import { shape } from "../states.js";
import { keepFresh } from "../stream.js";
import { Table } from "../table.js";

export const title = "Policies";

/** After so long without a key the text is checked, in milliseconds. */
const PAUSE_MS = 400;
/** Under what name the tab keeps a text that is not applied yet. */
const DRAFT = "federator-policies";
/** Versions that are listed. */
const VERSIONS = 200;
const SPANS = /** @type {[string, string][]} */ ([["86400", "the last day"], ["259200", "the last 3 days"], ["604800", "the last 7 days"], ["2592000", "the last 30 days"]]);

/** @param {Api.PolicySet} set */
const textOf = (set) => set.documents.map((each) => each.text.trimEnd() + "\n").join("---\n");

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  const said = h("div");
  const runs = mayRun(context.who);
  const editor = new Editor(context.who, () => fresh.again());
  const approvals = approvalTable(runs ? (row) => void approve(row) : null);
  const rules = burstTable();
  const paused = h("div", { class: "row" });
  const versions = historyTable((row) => void look(row));
  show(
    view,
    h("h1", null, title),
    said,
    panel("Rentals that wait for a person", approvals.element),
    editor.element,
    panel("Policies that rent", paused, rules.element),
    panel("History", versions.element),
  );
  const fresh = keepFresh(
    async () => {
      const [current, burst] = await Promise.all([get("/v1/policies"), get("/v1/burst")]);
      // All versions with their documents: read again only when there is another.
      if (current.version !== editor.version) versions.show((await get("/v1/policies/history")).reverse().slice(0, VERSIONS));
      show(said);
      editor.inForce(current);
      approvals.show(burst.proposals);
      rules.show(burst.policies);
      drawPaused(burst);
    },
    { topics: ["policies", "plan"], soonestS: 2, onError: (error) => error.code !== "unreachable" && show(said, problemBox(error)) },
  );

  /** @param {Api.BurstStatus} burst */
  function drawPaused(burst) {
    const words = burst.paused ? ["Renting is paused by ", burst.paused_by, " ", time(burst.paused_at)] : ["Policies decide what may be rented."];
    const verb = burst.paused ? "resume" : "pause";
    const word = burst.paused ? "Resume renting" : "Pause renting";
    if (paused.querySelector("button")?.textContent === word) return;
    show(paused, h("span", null, words), runs && h("button", { type: "button", on: { click: () => void turn(verb, word) } }, word));
  }
  /** @param {string} verb @param {string} word */
  async function turn(verb, word) {
    const told = verb === "pause" ? "Nothing new is rented until somebody resumes it. What is rented stays until it is over." : "Policies decide again what may be rented.";
    if (await ask({ title: word, consequence: h("p", null, told), action: word })) await act(() => post(`/v1/burst/${verb}`));
  }
  /** @param {Api.ProposalRow} row */
  async function approve(row) {
    const usd = field("At most, in USD", text("usd", { inputmode: "decimal", value: String(Math.ceil(row.worst_usd * 100) / 100) }), "What it may cost in the worst case.");
    const why = field("Why", text("why"));
    const told = h("p", null, `Rents ${row.offer} for ${row.name} of ${row.owner}: ${money(row.cost_usd)} expected, ${money(row.worst_usd)} in the worst case. ${capital(row.because)}.`);
    if (!(await ask({ title: `Approve a rental for ${row.name}`, consequence: h("div", { class: "stack" }, told, usd.element, why.element), action: "Approve" }))) return;
    await act(() => post("/v1/burst/approve", { job: row.job, usd: Number(usd.input.value), reason: why.input.value }), `A rental for ${row.name} is approved.`);
  }
  /** A former version: its text, and how to have it back. @param {Api.PolicySet} row */
  async function look(row) {
    const reason = field("Why", text("reason"), "Kept with the new version.");
    const words = h("pre", { class: "listing", tabindex: 0, "aria-label": "Its documents" }, textOf(row) || "no policies");
    const may = runs && row.version !== editor.version;
    const agreed = await ask({ title: `Version ${row.version}, by ${row.author}`, consequence: h("div", { class: "stack" }, h("p", null, row.reason || "no reason was given"), words, may && reason.element), action: may ? "Put in force again" : "Close", told: !may });
    if (agreed && may) await act(() => post("/v1/policies/rollback", { version: row.version, reason: reason.input.value || `back to version ${row.version}` }), `Version ${row.version} is in force again.`);
  }
  /** @param {() => Promise<unknown>} does @param {string} [done] */
  async function act(does, done) {
    try {
      const verdict = /** @type {Api.PolicyVerdict | null} */ (await does());
      if (verdict?.problems?.[0]) throw new Error(verdict.problems[0].detail);
      if (done) notice(done);
      fresh.again();
    } catch (error) {
      notice(/** @type {Error} */ (error));
    }
  }
  return () => {
    fresh.stop();
    editor.close();
  };
}

/** The set in force as a text that may be changed, and what a change would do. */
class Editor {
  /** @param {Api.WhoAmI} who @param {() => void} onApplied */
  constructor(who, onApplied) {
    this.who = who;
    this.onApplied = onApplied;
    this.version = -1;
    /** The set in force. */
    this.base = "";
    this.timer = 0;
    this.turn = 0;
    this.replays = new AbortController();
    this.valid = false;
    this.head = h("p", { class: "faint" });
    this.area = h("textarea", { rows: 18, spellcheck: "false", "aria-label": "The policy set", readonly: !mayTry(who), wrap: "off" });
    this.area.addEventListener("input", () => this.#changed());
    this.news = h("div", { role: "status" });
    this.verdict = h("div", { role: "status" });
    this.diff = h("div", { class: "stack" });
    this.span = select("span", SPANS, "604800");
    this.span.setAttribute("aria-label", "On the load of");
    this.tryIt = h("button", { type: "button", disabled: true, on: { click: () => void this.#replay() } }, "Replay");
    this.apply = h("button", { type: "button", class: "main", disabled: true, on: { click: () => void this.#apply() } }, "Apply");
    this.discard = h("button", { type: "button", disabled: true, on: { click: () => this.#discard() } }, "Discard changes");
    this.replayed = h("div", { class: "stack", "aria-live": "polite" });
    const tools = h("div", { class: "row" }, mayTry(who) && h("div", { class: "row" }, this.tryIt, h("span", null, "on the load of"), this.span), mayRun(who) && this.apply, this.discard);
    const none = h("p", { class: "faint" }, "You may look at the policies. Changing them takes the role platform.");
    this.element = h("section", { class: "panel", "aria-labelledby": "policies-set" }, h("h2", { id: "policies-set" }, "The set in force"), this.head, this.news, this.area, this.verdict, this.diff, mayTry(who) ? tools : none, this.replayed);
  }

  close() {
    window.clearTimeout(this.timer);
    this.turn += 1;
    this.replays.abort();
  }

  /** @param {Api.PolicySet} set */
  inForce(set) {
    if (set.version === this.version) return;
    const draft = this.version < 0 && mayTry(this.who) ? keptDraft() : null;
    const edited = draft !== null || this.#edited();
    const of = draft?.version ?? this.version;
    this.version = set.version;
    this.base = textOf(set);
    show(this.head, set.version ? [`Version ${set.version} by ${set.author}, `, time(set.applied_at), set.reason ? `: ${set.reason}` : ""] : "No policies yet: everybody may submit, and nothing is rented.");
    if (!edited) {
      this.area.value = this.base;
      return;
    }
    if (draft) this.area.value = draft.text;
    const told = of === set.version ? "This is your draft: it is not in force." : `Version ${set.version} by ${set.author} came into force while you were writing; your text is compared with it.`;
    show(this.news, h("p", { class: "state tone-leaving" }, shape("leaving"), told));
    this.#changed();
  }

  #edited() {
    return this.version >= 0 && this.area.value !== this.base;
  }

  #discard() {
    this.area.value = this.base;
    show(this.news);
    show(this.replayed);
    this.#changed();
  }

  #changed() {
    window.clearTimeout(this.timer);
    this.valid = false;
    if (this.#edited()) sessionStorage.setItem(DRAFT, JSON.stringify({ version: this.version, text: this.area.value }));
    else sessionStorage.removeItem(DRAFT);
    this.#buttons();
    if (this.replayed.firstChild && !this.replayed.querySelector(".earlier")) this.replayed.prepend(h("p", { class: "earlier state tone-leaving" }, shape("leaving"), "This replay was of an earlier text."));
    this.timer = window.setTimeout(() => void this.#check(), PAUSE_MS);
  }

  #buttons() {
    const edited = this.#edited();
    this.apply.disabled = this.tryIt.disabled = !(edited && this.valid);
    this.discard.disabled = !edited;
  }

  async #check() {
    const turn = ++this.turn;
    if (!this.#edited()) {
      show(this.verdict);
      show(this.diff);
      return;
    }
    try {
      const request = { text: this.area.value };
      const [verdict, found] = await Promise.all([post("/v1/policies/validate", request), post("/v1/policies/diff", request)]);
      if (turn !== this.turn) return;
      this.valid = verdict.problems.length === 0;
      show(this.verdict, this.valid ? fine(verdict) : faults(verdict.problems));
      show(this.diff, this.valid ? differences(found) : null);
    } catch (error) {
      if (turn === this.turn) show(this.verdict, problemBox(error));
    }
    this.#buttons();
  }

  async #replay() {
    this.replays.abort();
    this.replays = new AbortController();
    const { signal } = this.replays;
    this.tryIt.disabled = true;
    show(this.replayed, h("p", { class: "faint" }, "Simulating both sets on the load that there was; you may go on writing meanwhile …"));
    try {
      const found = await request("POST", "/v1/policies/replay", { body: { text: this.area.value, last_s: Number(this.span.value) }, signal });
      if (!signal.aborted) show(this.replayed, found.contrast ? contrast(found) : faults(found.problems));
    } catch (error) {
      if (!signal.aborted) show(this.replayed, problemBox(error));
    }
    this.#buttons();
  }

  async #apply() {
    const words = this.area.value;
    const reason = field("Why", text("reason", { required: true }), "Kept with the version.");
    /** The version that the text was compared with when it was agreed to. */
    let version = this.version;
    const consequence = post("/v1/policies/diff", { text: words }).then((found) => {
      version = found.version;
      return h("div", { class: "stack" }, differences(found), reason.element);
    });
    if (!(await ask({ title: "Put this set in force", consequence, action: "Apply" }))) return;
    try {
      const verdict = await post("/v1/policies", { text: words, reason: reason.input.value.trim() || "changed in the console", instead_of: version });
      if (verdict.problems.length) {
        show(this.verdict, faults(verdict.problems));
        return;
      }
      notice(`Version ${verdict.version} is in force.`);
      this.base = words;
      sessionStorage.removeItem(DRAFT);
      show(this.news);
      show(this.verdict);
      show(this.diff);
      show(this.replayed);
      this.#buttons();
      this.onApplied();
    } catch (error) {
      notice(/** @type {Problem} */ (error).status === 409 ? overtaken() : /** @type {Error} */ (error));
      this.onApplied();
    }
  }
}

/** The text that was not applied when the page was left, and the version that it changes; null: there is none. @returns {{version: number, text: string} | null} */
function keptDraft() {
  return JSON.parse(sessionStorage.getItem(DRAFT) ?? "null");
}

/** Somebody else has applied a set between comparing and applying. */
const overtaken = () => new Problem({ detail: "nothing was applied: another version came into force meanwhile", remedy: "your text is compared with that version now; see what it would undo, and apply it again" });

/** @param {Api.PolicyVerdict} verdict */
const fine = (verdict) => h("p", { class: "state tone-good" }, shape("good"), `Valid: ${plural(verdict.documents.length, "document")}, ${plural(verdict.rules, "rule")}${verdict.access ? `; ${verdict.access}` : ""}`);

/** @param {Api.HttpProblem[]} problems */
const faults = (problems) =>
  h("ul", { class: "lines" }, problems.slice(0, 20).map((each) => h("li", { class: "wrong" }, each.field && h("code", null, each.field), each.field && " ", each.detail, each.remedy && h("span", { class: "faint" }, ` (${each.remedy})`))));

/** How two sets differ, by effect and by line. @param {Api.PolicyDiff} found */
function differences(found) {
  if (found.problems.length) return faults(found.problems);
  if (!found.documents.length) return h("p", { class: "faint" }, "No difference from what is in force.");
  const effect = [...found.removed.map((each) => ["−", each, "gone"]), ...found.added.map((each) => ["+", each, "new"])];
  return h(
    "div",
    { class: "stack" },
    effect.length ? h("ul", { class: "lines" }, effect.slice(0, 100).map(([sign, words, kind]) => h("li", { class: `diff-${kind}` }, h("span", { class: "unseen" }, kind === "new" ? "will hold: " : "will no longer hold: "), h("span", { "aria-hidden": "true" }, `${sign} `), words))) : h("p", { class: "faint" }, "The effect is the same."),
    found.documents.map((each) => h("details", null, h("summary", null, `${each.document} is ${each.change}`), h("pre", { class: "listing", tabindex: 0, "aria-label": `Lines of ${each.document}` }, each.lines.map((line) => h("span", { class: line.startsWith("+") ? "diff-new" : line.startsWith("-") ? "diff-gone" : "" }, `${line}\n`))))),
  );
}

/** What a replay found. @param {Api.PolicyReplay} found */
function contrast(found) {
  const { contrast: told } = found;
  if (!told) return h("p", { class: "faint" }, "There was nothing to replay.");
  const [before, after] = [told.total.before, told.total.after];
  /** @type {[string, number, number, (value: number) => string, number][]} */
  const measures = [
    ["Deadlines met", before.met, after.met, number, 1],
    ["Mean wait", before.wait_mean_s, after.wait_mean_s, duration, -1],
    ["Rent", before.rented_usd, after.rented_usd, money, -1],
    ["Owned GPUs", before.owned_usd, after.owned_usd, money, -1],
    ["Moved data", before.egress_usd, after.egress_usd, money, -1],
    ["Jobs refused", before.refused, after.refused, number, -1],
  ];
  /** @type {Table<[string, number, number, (value: number) => string, number]>} */
  const sums = new Table({
    caption: "What changes",
    keyOf: (row) => row[0],
    columns: [
      { id: "what", title: "What", cell: (row) => row[0] },
      { id: "before", title: "In force", numeric: true, cell: (row) => row[3](row[1]) },
      { id: "after", title: "Proposed", numeric: true, cell: (row) => row[3](row[2]) },
      { id: "change", title: "Difference", numeric: true, cell: difference },
    ],
  });
  sums.show(measures.filter((row) => row[1] || row[2] || row[0] === "Mean wait"));
  const jobs = changedJobs();
  jobs.show(told.jobs.slice(0, 20));
  const refused = Object.entries(told.refused).slice(0, 5);
  return [
    h("h3", null, "What it would have done"),
    h("p", null, `${number(told.total.moved)} of ${plural(before.jobs, "job")} run elsewhere; ${number(told.sooner)} start sooner, ${number(told.later)} later; ${number(told.newly_met)} more meet their deadlines, ${number(told.newly_missed)} miss theirs now.`),
    found.troubles.length > 0 && h("div", { class: "problem" }, h("strong", null, "These figures are not to be trusted: "), found.troubles.join("; ")),
    sums.element,
    ...refused.map(([why, count]) => h("p", null, `${plural(Number(count), "job is", "jobs are")} refused: ${why}`)),
    ...(told.jobs.length > 0 ? [h("h3", null, "Jobs that change most"), jobs.element] : []),
    h("details", null, h("summary", null, "How it was found out"), h("ul", { class: "lines" }, [...found.remarks, `policies version ${found.version}; simulated in ${duration(found.took_s)}`].map((each) => h("li", null, each)))),
  ];
}

/** @param {[string, number, number, (value: number) => string, number]} row */
function difference([, before, after, told, better]) {
  const away = after - before;
  if (Math.abs(away) < 0.005) return h("span", { class: "faint" }, "none");
  const tone = away * better > 0 ? "good" : "bad";
  return h("span", { class: `state tone-${tone}` }, shape(tone), `${away > 0 ? "+" : "−"}${told(Math.abs(away))}`);
}

function changedJobs() {
  const where = (/** @type {Api.JobFate} */ fate) => fate.site || "nowhere";
  const due = (/** @type {Api.JobFate} */ fate) => (fate.met === null ? "–" : fate.met ? "met" : "missed");
  /** @param {(fate: Api.JobFate) => string} told */
  const both = (told) => (/** @type {Api.JobChange} */ row) => (told(row.before) === told(row.after) ? told(row.before) : `${told(row.before)} → ${told(row.after)}`);
  /** @type {Table<Api.JobChange>} */
  const table = new Table({
    caption: "Jobs that change most",
    keyOf: (row) => row.job,
    columns: [
      { id: "job", title: "Job", cell: (row) => row.job },
      { id: "owner", title: "Owner", cell: (row) => row.owner, wide: true },
      { id: "queue", title: "Queue", cell: (row) => row.queue, wide: true },
      { id: "gpus", title: "GPUs", numeric: true, cell: (row) => number(row.gpus), by: (row) => row.gpus },
      { id: "where", title: "Where", cell: both(where) },
      { id: "wait", title: "Wait", cell: both((fate) => (fate.wait_s === null ? "never ran" : duration(fate.wait_s))) },
      { id: "due", title: "Deadline", cell: both(due) },
      { id: "usd", title: "Dollars", numeric: true, cell: both((fate) => money(fate.usd)), by: (row) => row.after.usd - row.before.usd },
      { id: "why", title: "Why", long: true, cell: (row) => row.after.because },
    ],
  });
  return table;
}

/** @param {((row: Api.ProposalRow) => void) | null} onApprove */
function approvalTable(onApprove) {
  /** @type {import("../table.js").Column<Api.ProposalRow>[]} */
  const columns = [
    { id: "job", title: "Job", cell: (row) => h("a", { href: `/jobs/${encodeURIComponent(row.job)}` }, row.name) },
    { id: "owner", title: "Owner", cell: (row) => row.owner },
    { id: "queue", title: "Queue", cell: (row) => row.queue, wide: true },
    { id: "offer", title: "Offer", cell: (row) => row.offer },
    { id: "cost", title: "Expected", numeric: true, cell: (row) => money(row.cost_usd), by: (row) => row.cost_usd },
    { id: "worst", title: "At worst", numeric: true, cell: (row) => money(row.worst_usd), by: (row) => row.worst_usd },
    { id: "policy", title: "Policy", cell: (row) => row.policy, wide: true },
    { id: "why", title: "Why", long: true, cell: (row) => row.because },
  ];
  const advice = (/** @type {Api.ProposalRow} */ row) => (row.kind === "advice" ? h("span", { class: "faint" }, "advice only") : onApprove ? h("button", { type: "button", "aria-label": `Approve a rental for ${row.name}`, on: { click: () => onApprove(row) } }, "Approve") : h("span", { class: "faint" }, "waits for the platform team"));
  columns.push({ id: "act", title: "Decision", cell: advice });
  return new Table({ caption: "Rentals that wait for a person", keyOf: (row) => `${row.job}/${row.policy}`, empty: "No rental waits for a person.", columns });
}

function burstTable() {
  /** @type {Table<Api.BurstPolicyRow>} */
  const table = new Table({
    caption: "Policies that rent",
    keyOf: (row) => row.policy,
    empty: "No policy lets anything be rented: a BurstPolicy does.",
    columns: [
      { id: "policy", title: "Policy", cell: (row) => row.policy, by: (row) => row.policy },
      { id: "mode", title: "Mode", cell: (row) => row.mode },
      { id: "who", title: "For", cell: (row) => row.who },
      { id: "where", title: "Where", cell: (row) => row.where },
      { id: "open", title: "Now", cell: (row) => (row.advisory ? "only advises" : row.open ? "open" : "outside its hours") },
      { id: "above", title: "Asks above", numeric: true, cell: (row) => money(row.approval_above_usd) },
      { id: "leases", title: "Rented now", numeric: true, cell: (row) => number(row.leases) },
    ],
  });
  return table;
}

/** @param {(row: Api.PolicySet) => void} onLook */
function historyTable(onLook) {
  /** @type {Table<Api.PolicySet>} */
  const table = new Table({
    caption: "Versions, newest first",
    keyOf: (row) => String(row.version),
    empty: "No set has been applied yet.",
    columns: [
      { id: "version", title: "Version", cell: (row) => h("button", { type: "button", class: "plain link", on: { click: () => onLook(row) } }, `Version ${row.version}`) },
      { id: "at", title: "Applied", cell: (row) => time(row.applied_at) },
      { id: "author", title: "By", cell: (row) => row.author },
      { id: "documents", title: "Documents", numeric: true, cell: (row) => number(row.documents.length) },
      { id: "reason", title: "Why", long: true, cell: (row) => row.reason },
    ],
  });
  return table;
}

/** @param {string} heading @param {...import("../dom.js").Children} children */
function panel(heading, ...children) {
  const name = `policies-${heading.toLowerCase().replaceAll(" ", "-")}`;
  return h("section", { class: "panel", "aria-labelledby": name }, h("h2", { id: name }, heading), ...children);
}
