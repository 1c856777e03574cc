// The past day played: what ran as it did run, and what was planned as the newest decision before each moment foresaw it.
//
// What ran is asked for once. Plans of decisions are asked for one after another while it plays, so often and no oftener; each frame in between is drawn from
// what is there, with work growing up to the moment that is shown.
import { at, get, now } from "./api.js";
import { h, show } from "./dom.js";
import { select } from "./form.js";
import { absolute, time } from "./format.js";

/** @typedef {import("./packing.js").Bar} Bar */
/** @typedef {import("./packing.js").Lane} Lane */
/** @typedef {{lanes: Lane[], bars: Bar[], total: number, taken_at: number, decision: string}} Plan */

export const DAY_S = 86400;
/** Least milliseconds between two questions for a plan. */
const ASK_MS = 700;
/** Bars that are asked for at once, and pages of them of one day. */
const MOST = 5000;
const PAGES = 4;
const MOST_DECISIONS = 1000;
const LOOK_BACK_S = 3 * 3600;
/** Between two frames no more time passes than this, however slow the machine is. */
const FRAME_MS = 100;
const NEAR_S = 10;
/** Seconds of the day in a second. @type {readonly [string, string][]} */
const SPEEDS = [["60", "a minute a second"], ["600", "ten minutes a second"], ["3600", "an hour a second"]];
/** What did not run. */
const AHEAD = new Set(["planned", "reserved", "booting", "kept"]);
/** Seconds by which keys move. @type {Record<string, number>} */
const STEPS = { ArrowLeft: -60, ArrowRight: 60, ArrowDown: -60, ArrowUp: 60, PageDown: -3600, PageUp: 3600, Home: -Infinity, End: Infinity };

/**
 * What is to be seen at a moment and until a little later: bars that begin by then stand in it, and the drawing shows of each what the moment has reached.
 * @param {{lanes: Lane[], bars: Bar[]}} ran What did run.
 * @param {Plan | null} plan That of a decision before the moment.
 * @param {number} moment
 * @param {number} ahead Seconds after it.
 * @returns {{lanes: Lane[], bars: Bar[]}}
 */
export function asOf(ran, plan, moment, ahead) {
  /** @type {Map<string, number>} */
  const foreseen = new Map();
  for (const bar of plan?.bars ?? []) if (bar.job && !AHEAD.has(bar.state)) foreseen.set(bar.job, bar.end_at);
  const begun = new Set();
  /** @type {Bar[]} */
  const bars = [];
  for (const bar of ran.bars) {
    if (AHEAD.has(bar.state) || bar.start_at > moment + ahead) continue;
    if (bar.job && bar.end_at > (plan?.taken_at ?? 0)) begun.add(bar.job);
    const over = bar.state === "ended" && bar.end_at <= moment;
    if (over) bars.push(bar);
    else bars.push({ ...bar, state: bar.state === "local" ? "local" : "running", status: bar.job ? "RUNNING" : "", end_at: Math.max(moment, foreseen.get(bar.job ?? "") ?? bar.end_at), ran_until: bar.state === "ended" ? bar.end_at : Infinity });
  }
  for (const bar of plan?.bars ?? []) if (bar.state !== "ended" && bar.state !== "local" && !(bar.job && begun.has(bar.job)) && bar.end_at > moment) bars.push(bar);
  const known = new Set(ran.lanes.map((lane) => lane.key));
  return { lanes: [...ran.lanes, ...(plan?.lanes ?? []).filter((lane) => !known.has(lane.key))], bars };
}

export class Replay {
  /**
   * @param {{query: () => Record<string, string>, draw: (lanes: Lane[], bars: Bar[], missing: number) => void, frame: () => void, live: () => void, failed: (error: unknown) => void, chosen: (decision: string) => void}} page
   *   `draw`: other bars are to be seen, and so many more of the day are not; `frame`: the same, a little later; `live`: the past is left; `chosen`: the plan of another decision is shown.
   */
  constructor(page) {
    this.page = page;
    /** The moment that is shown; 0: none, the page is live. */
    this.moment = 0;
    /** @type {{lanes: Lane[], bars: Bar[], total: number} | null} */
    this.ran = null;
    /** @type {Plan | null} */
    this.plan = null;
    this.asking = false;
    this.askedAt = 0;
    this.drawnAt = 0;
    /** What is told beside the moment, until another is shown. */
    this.note = "";
    this.playing = 0;
    this.turn = 0;
    this.slider = h("input", { type: "range", min: -DAY_S, max: 0, step: 1, value: 0, "aria-label": "Moment whose plan is shown", on: { input: () => this.#near(now() + Number(this.slider.value)), keydown: (/** @type {KeyboardEvent} */ event) => this.#key(event) } });
    this.play = h("button", { type: "button", "aria-pressed": "false", on: { click: () => this.#play(!this.playing) } }, "Play the day");
    this.speed = select("speed", SPEEDS, "600");
    this.speed.setAttribute("aria-label", "Speed");
    this.when = h("output", null, "The newest decision");
    const earlier = h("button", { type: "button", on: { click: () => void this.#step(-1) } }, "Decision before");
    const later = h("button", { type: "button", on: { click: () => void this.#step(1) } }, "Decision after");
    const live = h("button", { type: "button", on: { click: () => this.leave() } }, "Back to now");
    this.element = h("div", { class: "replay", role: "group", "aria-label": "Replay of the past day" }, earlier, this.slider, later, this.play, this.speed, live, this.when);
  }

  close() {
    this.#play(false);
    this.turn += 1;
  }

  /** What is asked for has changed, such as the site: all is asked for again. */
  again() {
    if (!this.moment) return;
    this.ran = this.plan = null;
    this.turn += 1;
    this.askedAt = 0;
    this.asking = false;
    void this.#ask();
  }

  /** Show a decision's own moment. @param {string} decision */
  async open(decision) {
    const plan = await this.#planOf(decision);
    this.plan = plan;
    this.page.chosen(decision);
    this.#go(plan.taken_at);
  }

  /** Show a moment of the past day; what is almost now is now. @param {number} moment */
  #near(moment) {
    if (moment > now() - NEAR_S) this.leave();
    else this.#go(Math.max(now() - DAY_S, moment));
  }

  /** @param {number} moment */
  #go(moment) {
    this.moment = moment;
    this.note = "";
    if (this.plan && this.plan.taken_at > this.moment) this.plan = null;
    this.slider.value = String(Math.round(this.moment - now()));
    this.slider.setAttribute("aria-valuetext", absolute(this.moment));
    this.#draw();
    void this.#ask();
  }

  leave() {
    const was = this.moment !== 0;
    this.#play(false);
    this.moment = 0;
    this.note = "";
    this.turn += 1;
    this.asking = false;
    this.ran = this.plan = null;
    this.slider.value = "0";
    show(this.when, "The newest decision");
    if (was) this.page.live();
  }

  #draw() {
    this.drawnAt = this.moment;
    const ahead = this.playing ? (Number(this.speed.value) * ASK_MS) / 500 : 0;
    const { lanes, bars } = asOf(this.ran ?? { lanes: [], bars: [] }, this.plan, this.moment, ahead);
    const missing = [this.ran, this.plan].reduce((sum, each) => sum + (each ? each.total - each.bars.length : 0), 0);
    this.page.draw(lanes, bars, missing);
    this.#tell();
  }

  #tell() {
    if (!this.moment) return show(this.when, "The newest decision", this.note);
    return show(this.when, "As of ", time(this.moment), this.plan ? [" ", h("a", { href: at("/decisions/{id}", this.plan.decision) }, "the decision")] : " no decision of that time is recorded", this.note);
  }

  /** Ask for what ran, then for the plan of the newest decision by then; once more where the moment has gone on meanwhile. */
  async #ask() {
    const wait = this.askedAt + ASK_MS - performance.now();
    if (this.asking || !this.moment) return;
    this.asking = true;
    const turn = this.turn;
    let passed = false;
    if (wait > 0) await new Promise((resolve) => window.setTimeout(resolve, wait));
    try {
      if (turn !== this.turn) return;
      this.askedAt = performance.now();
      const asked = this.moment;
      const ran = this.ran ?? (await this.#dayThatRan());
      if (turn !== this.turn) return;
      this.ran = ran;
      const found = await newest(asked);
      if (turn !== this.turn) return;
      if (found && found.id !== this.plan?.decision) {
        const plan = await this.#planOf(found.id);
        if (turn !== this.turn) return;
        this.plan = plan;
        this.page.chosen(found.id);
      }
      this.#draw();
      passed = this.moment !== asked;
    } catch (error) {
      if (turn === this.turn) this.#play(false);
      this.page.failed(error);
    } finally {
      if (turn === this.turn) this.asking = false;
    }
    if (passed && !this.playing) void this.#ask();
  }

  /** What did run on the day, page after page. */
  async #dayThatRan() {
    const query = { ...this.page.query(), ...this.#day(), collapse: true, limit: MOST };
    let page = await get("/v1/plan", query);
    /** @type {Bar[]} */
    const bars = [...page.bars];
    for (let number = 1; number < PAGES && page.next_after !== null; number++) {
      const next = await get("/v1/plan", { ...query, after: page.next_after }).catch(() => null);
      if (!next) break; // another plan was made meanwhile: what is here is shown, and what is missing is told
      page = next;
      bars.push(...page.bars);
    }
    return { lanes: page.lanes, bars, total: page.total };
  }

  /** @param {string} decision @returns {Promise<Plan>} */
  async #planOf(decision) {
    return { ...(await get(at("/v1/decisions/{id}/plan", decision), { ...this.page.query(), collapse: true, limit: MOST })), decision };
  }

  /** The past day, or that of an older moment. */
  #day() {
    const since = Math.min(now() - DAY_S, this.moment);
    return { since: Math.max(1, since - LOOK_BACK_S), until: Math.min(now(), since + DAY_S) };
  }

  /** Go to the decision before or after. @param {number} step */
  async #step(step) {
    this.#play(false);
    try {
      const from = this.plan?.taken_at ?? (this.moment || now());
      const found = step < 0 ? await newest(from, this.plan?.decision) : await firstSince(from + 0.001);
      if (found) return await this.open(found.id);
      if (step > 0) return this.leave();
      this.note = " No earlier decision is recorded";
      this.#tell();
    } catch (error) {
      this.page.failed(error);
    }
    return undefined;
  }

  /** @param {boolean} on */
  #play(on) {
    cancelAnimationFrame(this.playing);
    this.playing = 0;
    this.play.setAttribute("aria-pressed", String(on));
    this.when.setAttribute("aria-live", on ? "off" : "polite");
    show(this.play, on ? "Pause" : "Play the day");
    if (!on) return;
    let before = performance.now();
    /** @param {number} at */
    const frame = (at) => {
      this.playing = requestAnimationFrame(frame);
      const passed = Math.min(FRAME_MS, Math.max(0, at - before));
      before = at;
      if (this.moment && this.ran) this.#advance((passed / 1000) * Number(this.speed.value));
    };
    this.playing = requestAnimationFrame(frame);
    if (!this.moment) void this.#begin();
  }

  /** From the first decision of the past day. */
  async #begin() {
    try {
      const first = await firstSince(now() - DAY_S);
      if (first) return await this.open(first.id);
      this.#play(false);
      show(this.when, "No decision of the past day is recorded");
    } catch (error) {
      this.#play(false);
      this.page.failed(error);
    }
    return undefined;
  }

  /** @param {number} seconds */
  #advance(seconds) {
    this.moment += seconds;
    if (this.moment >= now()) return this.leave();
    this.slider.value = String(Math.round(this.moment - now()));
    if (performance.now() - this.askedAt > ASK_MS) void this.#ask();
    if (this.moment - this.drawnAt > Number(this.speed.value) * (ASK_MS / 1000)) this.#draw();
    else this.page.frame();
    return undefined;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = STEPS[event.key];
    if (event.key === " ") this.#play(!this.playing);
    else if (step !== undefined) this.#near((this.moment || now()) + step * (event.shiftKey ? 10 : 1));
    else return;
    event.preventDefault();
  }
}

/** @param {Api.DecisionRow} row */
const plannedAhead = (row) => row.stages !== "quick";

/** The newest recorded decision up to a moment that planned ahead. @param {number} moment @param {string} [before] One that is not meant. */
async function newest(moment, before = "") {
  return (await get("/v1/decisions", { before, until: moment, since: moment - DAY_S, last: 50 })).filter(plannedAhead).at(-1);
}

/** The first from then on, within a day. The API gives the newest of a time: a time that may have more is cut shorter. @param {number} moment */
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
