// The plan: what runs where and when, and what is to start there; now, or as a decision of the past day foresaw it.
import { at, get, now } from "../api.js";
import { problemBox } from "../dialog.js";
import { h, show } from "../dom.js";
import { field, select, text } from "../form.js";
import { absolute, duration, number, plural, time } from "../format.js";
import { Gantt, STATES, laneWords, swatch } from "../gantt.js";
import { stateMark } from "../states.js";
import { keepFresh } from "../stream.js";
import { Table } from "../table.js";

/** @typedef {import("../packing.js").Bar} Bar */

export const title = "Plan";

const DAY_S = 86400;
const MOST = 5000;
const MOST_DECISIONS = 1000;
const PLAY_MS = 1500;
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
    /** @type {any} */
    this.plan = null;
    this.decision = context.query.get("decision") ?? "";
    this.fetched = { since: 0, until: 0 };
    /** The decision whose moment has been brought into sight. */
    this.sought = "";
    this.timer = 0;
    this.asked = 0;
    this.problem = h("div");
    this.summary = h("p", { class: "faint summary" });
    this.gantt = new Gantt({
      label: "What runs where and when",
      describe: (bar) => this.#describe(bar),
      tell: (bar) => this.#tell(bar),
      open: (bar) => bar.job && context.go(at`/jobs/${bar.job}`),
      onWindow: () => this.#moved(),
      now: () => (this.decision && this.plan ? this.plan.taken_at : now()),
    });
    this.table = this.#makeTable();
    this.table.element.hidden = true;
    this.site = field("Site", select("site", [["", "all"]]));
    this.queue = field("Queue", text("queue", { value: context.query.get("queue") ?? "", placeholder: "all" }));
    this.owner = field("Owner", text("owner", { value: context.query.get("owner") ?? "", placeholder: "everybody" }));
    for (const each of [this.site, this.queue, this.owner]) each.input.addEventListener("change", () => this.#filtered());
    this.slider = h("input", { type: "range", min: -DAY_S, max: 0, step: 60, value: 0, "aria-label": "Moment whose plan is shown", on: { input: () => this.#slid(), change: () => this.#slid() } });
    this.player = 0;
    this.playing = h("button", { type: "button", "aria-pressed": "false", on: { click: () => this.#play(!this.player) } }, "Play the day");
    this.when = h("output", { "aria-live": "polite" }, "The newest decision");
    this.parts = [h("h1", null, title), this.#tools(), this.#replay(), this.problem, this.summary, this.gantt.element, this.table.element, legend()];
    const site = context.query.get("site") ?? "";
    void this.#sites(site);
    this.fresh = keepFresh(() => this.#load(), { everyS: 5, stream: "", onError: (error) => error.code !== "unreachable" && show(this.problem, problemBox(error)) });
    const span = RANGES[1];
    this.gantt.reset(span[1], span[2]);
  }

  close() {
    window.clearTimeout(this.timer);
    window.clearInterval(this.player);
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

  #replay() {
    const live = h("button", { type: "button", on: { click: () => this.#live() } }, "Back to now");
    const earlier = h("button", { type: "button", on: { click: () => void this.#step(-1) } }, "Decision before");
    const later = h("button", { type: "button", on: { click: () => void this.#step(1) } }, "Decision after");
    return h("div", { class: "replay", role: "group", "aria-label": "Replay of the past day" }, earlier, this.slider, later, this.playing, live, this.when);
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

  /** @param {string} chosen */
  async #sites(chosen) {
    const rows = await get("/v1/sites").catch(() => []);
    this.site.input.append(...rows.map((/** @type {any} */ row) => h("option", { value: row.name }, row.name)));
    this.site.input.value = chosen;
    if (chosen) this.#filtered();
  }

  #query() {
    return { site: this.site.input.value, queue: this.queue.input.value.trim(), owner: this.owner.input.value.trim() };
  }

  #filtered() {
    this.#remember();
    void this.fresh.again();
  }

  #remember() {
    this.context.remember({ ...this.#query(), decision: this.decision });
  }

  async #load() {
    const { since, until } = this.gantt;
    const more = (until - since) / 2;
    const span = { since: Math.max(1, since - more), until: until + more };
    const turn = ++this.asked;
    const path = this.decision ? at`/v1/decisions/${this.decision}/plan` : "/v1/plan";
    const plan = await get(path, { ...this.#query(), ...span, collapse: true, limit: MOST });
    if (turn !== this.asked) return;
    show(this.problem);
    this.plan = plan;
    this.fetched = span;
    if (this.decision !== this.sought) this.#seek(plan.taken_at);
    this.sought = this.decision;
    this.#draw();
  }

  #draw() {
    if (!this.plan) return;
    const { lanes, bars, total, unplanned, outside, winner } = this.plan;
    if (this.table.element.hidden) this.gantt.set(lanes, bars);
    else this.table.show(bars.slice(0, 500));
    const running = bars.filter((/** @type {Bar} */ bar) => bar.state === "running" || bar.state === "starting").length;
    const planned = bars.filter((/** @type {Bar} */ bar) => bar.state === "planned" || bar.state === "reserved").length;
    const said = [
      `${number(running)} running`,
      `${number(planned)} planned`,
      unplanned && `${plural(unplanned, "waiting job")} without a start that can be foreseen`,
      outside && `${plural(outside, "more job")} waiting for others, or for a turn to be looked at`,
      total > bars.length && `${plural(total - bars.length, "bar")} more than are drawn: choose a site or a shorter time`,
    ];
    show(this.summary, said.filter(Boolean).join(" · "), winner && !this.table.element.hidden ? "" : winner ? ` · ${winner}` : "");
    if (this.decision) this.#tellWhen();
    else this.gantt.follow();
  }

  /** Bring a moment into sight. @param {number} moment */
  #seek(moment) {
    const { since, until } = this.gantt;
    const length = until - since;
    if (moment < since || moment > until) this.gantt.look(moment - length / 4, moment + (length * 3) / 4);
  }

  /** Another time is in sight: what lies there is asked for, once it stays. */
  #moved() {
    const { since, until } = this.gantt;
    if (since >= this.fetched.since && until <= this.fetched.until) return;
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.fresh.again(), 150);
  }

  #slid() {
    const back = Number(this.slider.value);
    window.clearTimeout(this.timer);
    if (back >= 0) return this.#live();
    show(this.when, `${duration(-back)} ago`);
    this.timer = window.setTimeout(() => void this.#replayAt(now() + back), 200);
  }

  /** Show the plan of the newest decision up to then that planned ahead. @param {number} moment */
  async #replayAt(moment) {
    try {
      const rows = await decisions({ until: moment, since: moment - DAY_S, last: 50 });
      this.#choose(rows.at(-1), `No decision of the day before ${absolute(moment)} is recorded`);
    } catch (error) {
      show(this.problem, problemBox(error));
    }
  }

  /** Go to the decision before or after. @param {number} step */
  async #step(step) {
    const from = this.decision && this.plan ? this.plan.taken_at : now();
    try {
      if (step < 0) {
        const rows = await decisions({ before: this.decision, until: from, last: 50 });
        return this.#choose(rows.at(-1), "No earlier decision is recorded");
      }
      const next = await firstSince(from + 0.001);
      return next ? this.#choose(next, "") : this.#live();
    } catch (error) {
      this.#play(false);
      return show(this.problem, problemBox(error));
    }
  }

  /** Let the decisions of the past day follow each other. @param {boolean} on */
  #play(on) {
    window.clearInterval(this.player);
    this.player = 0;
    this.playing.setAttribute("aria-pressed", String(on));
    if (!on) return;
    if (!this.decision) void firstSince(now() - DAY_S).then((first) => this.#choose(first, "No decision of the past day is recorded"), (error) => show(this.problem, problemBox(error)));
    this.player = window.setInterval(() => void (document.hidden || !this.decision || this.#step(1)), PLAY_MS);
  }

  /** @param {any} row @param {string} otherwise */
  #choose(row, otherwise) {
    if (!row) {
      show(this.when, otherwise);
      return;
    }
    this.decision = row.id;
    this.slider.value = String(Math.max(-DAY_S, row.at - now()));
    this.#remember();
    this.fresh.again();
  }

  #live() {
    const replayed = this.decision !== "";
    this.#play(false);
    this.decision = "";
    this.slider.value = "0";
    show(this.when, "The newest decision");
    this.#remember();
    const length = this.gantt.until - this.gantt.since;
    if (replayed) this.gantt.look(now() - length / 6, now() + (length * 5) / 6);
    this.fresh.again();
  }

  #tellWhen() {
    show(this.when, "As of ", time(this.plan.taken_at), " ", h("a", { href: at`/decisions/${this.decision}` }, "the decision"));
  }

  /** @param {Bar} bar */
  #name(bar) {
    if (bar.state === "booting") return "A rented machine";
    if (bar.state === "local") return "The site's own work";
    return `${bar.name || bar.job || "a job"}${(bar.tasks ?? 1) > 1 ? ` × ${bar.tasks}` : ""}`;
  }

  /** @param {Bar} bar */
  #link(bar) {
    return bar.job ? h("a", { href: at`/jobs/${bar.job}` }, this.#name(bar)) : this.#name(bar);
  }

  /** @param {Bar} bar */
  #where(bar) {
    const lane = this.plan?.lanes.find((/** @type {any} */ each) => each.key === bar.lane);
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

/** Recorded decisions that planned ahead, oldest first. @param {Record<string, any>} query @returns {Promise<any[]>} */
async function decisions(query) {
  return (await get("/v1/decisions", query)).filter(plannedAhead);
}

/** @param {any} row */
const plannedAhead = (row) => row.stages !== "quick";

/** The first of them from then on, within a day. The API gives the newest of a time: a time that may have more is cut shorter. @param {number} moment */
async function firstSince(moment) {
  const end = Math.min(moment + DAY_S, now() + 60);
  let from = moment;
  let span = 60;
  while (from < end) {
    const rows = await get("/v1/decisions", { since: from, until: from + span, last: MOST_DECISIONS });
    if (rows.length >= MOST_DECISIONS && span > 1) {
      span /= 4;
      continue;
    }
    const found = rows.find(plannedAhead);
    if (found) return found;
    from += span;
    span *= 10;
  }
  return undefined;
}

function legend() {
  const states = STATES.map(([state, word]) => h("span", null, swatch(state), word));
  return h("div", { class: "legend", role: "group", "aria-label": "Legend" }, states, h("span", null, swatch("failed"), "failed"), h("span", null, h("span", { class: "late" }), "past its deadline"));
}
