// The plan: what runs where and when, and what is to start there; now, or as a decision of the past day foresaw it.
import { at, get, now } from "../api.js";
import { capital, notice, problemBox } from "../dialog.js";
import { h, show } from "../dom.js";
import { field, select, text } from "../form.js";
import { absolute, duration, number, plural, time } from "../format.js";
import { Gantt, STATES, laneWords, swatch } from "../gantt.js";
import { Replay } from "../replay.js";
import { stateMark } from "../states.js";
import { keepFresh } from "../stream.js";
import { Table } from "../table.js";

/** @typedef {import("../packing.js").Bar} Bar */
/** What is seen of the past; `missing`: so many bars more of that day are not. @typedef {{lanes: import("../packing.js").Lane[], bars: Bar[], missing: number}} Past */

export const title = "Plan";

const MOST = 5000;
const RANGES = /** @type {const} */ ([["1 h", 600, 3000], ["6 h", 3600, 18000], ["24 h", 7200, 79200], ["3 d", 14400, 244800]]);
const WORDS = new Map(STATES);

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  const page = new PlanPage(context);
  show(view, ...page.parts);
  return () => page.close();
}

class PlanPage {
  /** @param {import("../main.js").Context} context */
  constructor(context) {
    this.context = context;
    /** @type {Api.PlanPage | null} */
    this.plan = null;
    /** What is seen of the past, while that is shown. @type {Past | null} */
    this.past = null;
    this.fetched = { since: 0, until: 0 };
    this.timer = 0;
    this.asked = 0;
    this.problem = h("div");
    this.summary = h("p", { class: "faint summary" });
    this.gantt = new Gantt({
      label: "What runs where and when",
      describe: (bar) => this.#describe(bar),
      tell: (bar) => this.#tell(bar),
      open: (bar) => bar.job && context.go(at("/jobs/{id}", bar.job)),
      onWindow: () => this.#moved(),
      now: () => this.replay?.moment || now(),
    });
    this.table = this.#makeTable();
    this.table.element.hidden = true;
    this.site = field("Site", select("site", [["", "all"]]));
    this.queue = field("Queue", text("queue", { value: context.query.get("queue") ?? "", placeholder: "all" }));
    this.owner = field("Owner", text("owner", { value: context.query.get("owner") ?? "", placeholder: "everybody" }));
    for (const each of [this.site, this.queue, this.owner]) each.input.addEventListener("change", () => this.#filtered());
    this.decision = "";
    this.replay = new Replay({
      query: () => this.#query(),
      draw: (lanes, bars, missing) => this.#drawPast({ lanes, bars, missing }),
      frame: () => this.#follow(),
      live: () => this.#live(),
      failed: (error) => show(this.problem, problemBox(error)),
      chosen: (decision) => ((this.decision = decision), this.#remember()),
    });
    this.parts = [h("h1", null, title), this.#tools(), this.replay.element, this.problem, this.summary, this.gantt.element, this.table.element, legend()];
    const site = context.query.get("site") ?? "";
    if (site) {
      this.#offer([site]);
      this.site.input.value = site;
      // The plan of one site does not name the others: they are asked for when somebody wants to choose.
      this.site.input.addEventListener("focus", async () => this.#offer((await get("/v1/sites").catch(() => [])).map((each) => each.name)), { once: true });
    }
    this.fresh = keepFresh(() => this.#load(), { topics: ["plan", "jobs"], soonestS: 5, onError: (error) => error.code !== "unreachable" && show(this.problem, problemBox(error)) });
    const span = RANGES[1];
    this.gantt.reset(span[1], span[2]);
    const decision = context.query.get("decision");
    if (decision) this.replay.open(decision).catch(notice);
  }

  close() {
    window.clearTimeout(this.timer);
    this.replay.close();
    this.fresh.stop();
    this.gantt.close();
  }

  #tools() {
    const ranges = RANGES.map(([word, back, ahead]) => h("button", { type: "button", on: { click: () => this.gantt.reset(back, ahead) } }, word));
    /** @param {string} word @param {string} said @param {() => void} act */
    const button = (word, said, act) => h("button", { type: "button", "aria-label": said, title: said, on: { click: act } }, word);
    const asTable = h("button", { type: "button", "aria-pressed": "false", on: { click: () => this.#switch(asTable) } }, "As a table");
    return h(
      "div",
      { class: "bar-tools" },
      this.site.element,
      this.queue.element,
      this.owner.element,
      h("div", { class: "group", role: "group", "aria-label": "Time in sight" }, ranges),
      h("div", { class: "group", role: "group", "aria-label": "Zoom" }, button("−", "Show more time", () => this.gantt.zoom(2)), button("+", "Show less time", () => this.gantt.zoom(0.5)), button("↕−", "Lower rows", () => this.gantt.stretch(0.6)), button("↕+", "Higher rows", () => this.gantt.stretch(1.6))),
      asTable,
    );
  }

  #makeTable() {
    /** @type {Table<Bar>} */
    const made = new Table({
      caption: "What runs where and when",
      keyOf: (bar) => `${bar.lane} ${bar.id}`,
      empty: "Nothing runs or is planned in this time.",
      order: { id: "start", down: false },
      columns: [
        { id: "job", title: "Job", cell: (bar) => this.#link(bar), by: (bar) => bar.name ?? "" },
        { id: "state", title: "State", cell: (bar) => (bar.status ? stateMark(bar.status) : WORDS.get(bar.state) ?? bar.state), by: (bar) => bar.state },
        { id: "where", title: "Where", cell: (bar) => this.#where(bar), by: (bar) => bar.lane },
        { id: "gpus", title: "GPUs", numeric: true, cell: (bar) => number(bar.gpus ?? 0, 2), by: (bar) => bar.gpus ?? 0 },
        { id: "start", title: "Start", cell: (bar) => time(bar.start_at), by: (bar) => bar.start_at },
        { id: "end", title: "End", cell: (bar) => time(bar.end_at), by: (bar) => bar.end_at },
        { id: "deadline", title: "Deadline", cell: (bar) => time(bar.deadline_at), by: (bar) => bar.deadline_at },
        { id: "owner", title: "Owner", wide: true, cell: (bar) => bar.owner ?? "", by: (bar) => bar.owner ?? "" },
        { id: "because", title: "Why here", wide: true, cell: (bar) => bar.because ?? "" },
      ],
    });
    return made;
  }

  /** @param {HTMLElement} button */
  #switch(button) {
    const shown = this.table.element.hidden;
    this.table.element.hidden = !shown;
    this.gantt.element.hidden = shown;
    button.setAttribute("aria-pressed", String(shown));
    this.#draw();
  }

  /** Offer these sites, and those before. @param {Iterable<string>} names */
  #offer(names) {
    const { input } = this.site;
    const known = new Set([...input.options].map((each) => each.value));
    const fresh = [...new Set(names)].filter((name) => !known.has(name)).sort();
    if (fresh.length) input.append(...fresh.map((name) => h("option", { value: name }, name)));
  }

  #query() {
    return { site: this.site.input.value, queue: this.queue.input.value.trim(), owner: this.owner.input.value.trim() };
  }

  #filtered() {
    this.#remember();
    this.replay.again();
    void this.fresh.again();
  }

  #remember() {
    this.context.remember({ ...this.#query(), decision: this.decision });
  }

  async #load() {
    if (this.replay.moment) return;
    const { since, until } = this.gantt;
    const more = (until - since) / 2;
    const span = { since: Math.max(1, since - more), until: until + more };
    const turn = ++this.asked;
    const plan = await get("/v1/plan", { ...this.#query(), ...span, collapse: true, limit: MOST });
    if (turn !== this.asked || this.replay.moment) return;
    show(this.problem);
    this.plan = plan;
    this.fetched = span;
    this.#offer(plan.lanes.map((lane) => lane.site));
    this.#draw();
  }

  #draw() {
    if (this.replay.moment && this.past) return this.#drawPast(this.past);
    if (!this.plan) return;
    const { lanes, bars, total, unplanned, outside, winner } = this.plan;
    if (this.table.element.hidden) this.gantt.set(lanes, bars);
    else this.table.show(bars.slice(0, 500));
    const running = bars.filter((bar) => bar.state === "running" || bar.state === "starting").length;
    const planned = bars.filter((bar) => bar.state === "planned" || bar.state === "reserved").length;
    const said = [
      `${number(running)} running`,
      `${number(planned)} planned`,
      unplanned && `${plural(unplanned, "waiting job")} without a start that can be foreseen`,
      outside && `${plural(outside, "more job")} waiting for others, or for a turn to be looked at`,
      total > bars.length && `${plural(total - bars.length, "bar")} more than are drawn: choose a site or a shorter time`,
    ];
    const none = lanes.length === 0 && ["There is no site to plan for here. ", h("a", { href: "/sites" }, "See the sites, or join one"), " · "];
    show(this.summary, none, said.filter(Boolean).join(" · "), winner && !this.table.element.hidden ? "" : winner ? ` · ${winner}` : "");
    this.gantt.follow();
  }

  /** @param {Past} past */
  #drawPast(past) {
    const { lanes, bars, missing } = past;
    this.past = past;
    if (this.table.element.hidden) this.gantt.set(lanes, bars);
    else this.table.show(bars.slice(0, 500));
    const count = (/** @type {string} */ state) => bars.filter((bar) => bar.state === state).length;
    show(this.problem);
    show(this.summary, `${number(count("running"))} running · ${number(count("planned") + count("reserved"))} planned · ${number(count("ended"))} ended`, missing > 0 && ` · ${plural(missing, "bar")} of the day more than are drawn: choose a site, a queue or an owner`);
    this.#follow();
  }

  /** The moment of the past stays in sight, a third from the left where it has left. */
  #follow() {
    const { since, until } = this.gantt;
    const { moment } = this.replay;
    const length = until - since;
    if (moment < since || moment > until - length / 10) this.gantt.look(moment - length / 3, moment + (length * 2) / 3);
    else this.gantt.redraw();
  }

  /** Another time is in sight: what lies there is asked for, once it stays. */
  #moved() {
    const { since, until } = this.gantt;
    if (this.replay?.moment || (since >= this.fetched.since && until <= this.fetched.until)) return;
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.fresh.again(), 150);
  }

  #live() {
    this.decision = "";
    this.#remember();
    const length = this.gantt.until - this.gantt.since;
    this.gantt.look(now() - length / 6, now() + (length * 5) / 6);
    this.fetched = { since: 0, until: 0 };
    this.fresh.again();
  }

  /** @param {Bar} bar */
  #name(bar) {
    if (bar.state === "booting") return "A rented machine";
    if (bar.state === "local") return "The site's own work";
    if (bar.state === "kept") return capital(bar.name ?? "");
    return `${bar.name || bar.job || "a job"}${(bar.tasks ?? 1) > 1 ? ` × ${bar.tasks}` : ""}`;
  }

  /** @param {Bar} bar */
  #link(bar) {
    return bar.job ? h("a", { href: at("/jobs/{id}", bar.job) }, this.#name(bar)) : this.#name(bar);
  }

  /** @param {Bar} bar */
  #where(bar) {
    const lane = (this.replay.moment ? this.past : this.plan)?.lanes.find((each) => each.key === bar.lane);
    return lane ? laneWords(lane)[0] : bar.lane;
  }

  /** @param {Bar} bar */
  #describe(bar) {
    const late = bar.deadline_at && bar.end_at > bar.deadline_at;
    const hosts = [...new Set(bar.members ?? [])];
    /** @type {[string, import("../dom.js").Children][]} */
    const facts = [
      ["state", bar.status ? stateMark(bar.status) : WORDS.get(bar.state) ?? bar.state],
      ["where", `${this.#where(bar)}${hosts.length ? `, on ${hosts.slice(0, 4).join(", ")}${hosts.length > 4 ? ` and ${hosts.length - 4} more` : ""}` : ""}`],
      ["GPUs", bar.gpus ? number(bar.gpus, 2) : ""],
      ["whose", [bar.owner, bar.queue].filter(Boolean).join(", ")],
      ["from", absolute(bar.start_at)],
      [bar.state === "ended" ? "to" : "to about", `${absolute(bar.end_at)} (${duration(bar.end_at - bar.start_at)})`],
      ["deadline", bar.deadline_at ? h("span", { class: late ? "tone-bad" : "" }, `${absolute(bar.deadline_at)}${late ? `, missed by ${duration(bar.end_at - bar.deadline_at)}` : ""}`) : ""],
      ["because", bar.because ?? ""],
    ];
    return [h("strong", null, this.#name(bar)), h("dl", null, facts.filter(([, value]) => value).flatMap(([word, value]) => [h("dt", null, word), h("dd", null, value)]))];
  }

  /** @param {Bar} bar */
  #tell(bar) {
    const parts = [this.#name(bar), WORDS.get(bar.state) ?? bar.state, this.#where(bar), bar.gpus ? `${number(bar.gpus, 2)} GPUs` : "", `from ${absolute(bar.start_at)} to ${absolute(bar.end_at)}`, bar.because ?? ""];
    return parts.filter(Boolean).join(", ");
  }
}

function legend() {
  const states = STATES.map(([state, word]) => h("span", null, swatch(state), word));
  return h("div", { class: "legend", role: "group", "aria-label": "Legend" }, states, h("span", null, swatch("failed"), "failed"), h("span", null, h("span", { class: "late" }), "past its deadline"));
}
