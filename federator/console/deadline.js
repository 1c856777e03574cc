// What an earlier finish of a job costs, as a curve with a handle: where it is let go is previewed by the dispatcher, and may be set as the deadline.
import { wouldBecome } from "./actions.js";
import { at, now, patch, post } from "./api.js";
import { notice, problemBox } from "./dialog.js";
import { h, show, svg } from "./dom.js";
import { absolute, duration, money } from "./format.js";
import { nice } from "./chart.js";
import { ticksOf } from "./gantt.js";

/** @typedef {{site: string, pool: string, market: string, start_at: number, finish_at: number, cost_usd: number}} Point As `explain` has them: the soonest first, each later one cheaper. */

const HEIGHT = 210;
const LEFT = 62;
const RIGHT = 16;
const TOP = 26;
const BELOW = 26;
const STEP_S = 300;
const WAIT_MS = 350;

/** The cheapest way to be done by then; undefined: there is none. @param {readonly Point[]} curve @param {number} moment */
export const cheapest = (curve, moment) => curve.filter((point) => point.finish_at <= moment).sort((one, other) => one.cost_usd - other.cost_usd)[0];

/**
 * A part of the page of a job.
 * @param {HTMLElement} view
 * @param {{again: () => void}} context
 */
export function part(view, context) {
  const made = new Deadline(view, context.again);
  return { show: made.show.bind(made), close: made.close.bind(made) };
}

class Deadline {
  /** @param {HTMLElement} view @param {() => void} again */
  constructor(view, again) {
    this.view = view;
    this.again = again;
    /** @type {readonly Point[]} */
    this.curve = [];
    this.job = "";
    /** @type {number | null} */
    this.set = null;
    /** Where the handle is; null: where the deadline is. @type {number | null} */
    this.moved = null;
    this.turn = 0;
    this.timer = 0;
    this.dragging = false;
    /** Whether who looks may change the job. */
    this.may = true;
    this.help = h("p", { class: "help" });
    this.tools = h("div", { class: "row" });
    this.drawing = svg("svg", { class: "chart curve", height: HEIGHT, width: "100%", role: "group", "aria-label": "What an earlier finish costs" });
    this.handle = svg("g", { class: "handle", tabindex: 0, role: "slider", "aria-label": "Deadline", "aria-orientation": "horizontal" });
    this.said = h("p", { role: "status" });
    this.would = h("div", { class: "would", "aria-live": "polite" });
    this.ok = h("button", { type: "button", class: "main", on: { click: () => void this.#set(this.moved) } }, "Set this deadline");
    this.back = h("button", { type: "button", on: { click: () => this.#leave() } }, "Leave it");
    this.none = h("button", { type: "button", on: { click: () => void this.#set(null) } }, "No deadline");
    view.setAttribute("aria-labelledby", "job-curve");
    show(view, h("h2", { id: "job-curve" }, "What an earlier finish costs"), this.help, this.drawing, this.said, this.would, this.tools);
    show(this.tools, this.ok, this.back, this.none);
    view.hidden = true;
    this.drawing.addEventListener("pointerdown", (event) => this.#grab(event));
    this.drawing.addEventListener("pointermove", (event) => this.dragging && this.#to(this.#time(event)));
    this.drawing.addEventListener("pointerup", () => (this.dragging = false));
    this.drawing.addEventListener("pointercancel", () => (this.dragging = false));
    this.handle.addEventListener("keydown", (event) => this.#key(event));
    this.watch = new ResizeObserver(() => this.#draw());
    this.watch.observe(this.drawing);
  }

  close() {
    window.clearTimeout(this.timer);
    this.turn += 1;
    this.watch.disconnect();
  }

  /** @param {Api.JobDetail} detail @param {Api.Explanation | null} told The answer of `explain`. */
  show(detail, told) {
    const { job } = detail;
    this.job = job.id;
    this.set = job.deadline_at;
    this.may = detail.may.includes("change");
    show(this.help, this.may ? "Drag the handle, or move it with the arrow keys. Nothing is changed before you set it." : `The deadline is set by ${job.owner}, by who administers its team or queue, and by the platform team.`);
    this.handle.toggleAttribute("hidden", !this.may);
    this.tools.hidden = !this.may;
    this.curve = told?.curve ?? [];
    this.view.hidden = job.status !== "PENDING" || this.curve.length === 0;
    this.#draw();
  }

  /** The moment that the handle is at. */
  get at() {
    const last = this.curve[this.curve.length - 1];
    return this.moved ?? this.set ?? (last ? last.finish_at : now() + 3600);
  }

  /** From when to when the curve reaches. @returns {[number, number]} */
  get span() {
    const finishes = this.curve.map((point) => point.finish_at);
    const start = Math.min(now(), ...finishes);
    const end = Math.max(...finishes, this.set ?? 0, this.moved ?? 0, start + 1800);
    return [start, end + (end - start) * 0.15];
  }

  get width() {
    return Math.max(220, this.drawing.clientWidth) - LEFT - RIGHT;
  }
  /** @param {number} moment */
  #x(moment) {
    const [start, end] = this.span;
    return LEFT + ((moment - start) / (end - start)) * this.width;
  }
  /** @param {MouseEvent} event */
  #time(event) {
    const [start, end] = this.frozen ?? this.span;
    return start + ((event.clientX - this.drawing.getBoundingClientRect().left - LEFT) / this.width) * (end - start);
  }

  #draw() {
    if (this.view.hidden || !this.drawing.clientWidth) return;
    const [start, end] = this.span;
    const ticks = nice(0, Math.max(...this.curve.map((point) => point.cost_usd), 0.06), 3);
    const top = ticks[ticks.length - 1] ?? 1;
    const y = (/** @type {number} */ usd) => HEIGHT - BELOW - (usd / top) * (HEIGHT - BELOW - TOP);
    const right = LEFT + this.width;
    const grid = [svg("path", { class: "chart-grid", d: ticks.map((tick) => `M${LEFT} ${round(y(tick))}H${right}`).join("") }), ...ticks.map((tick) => svg("text", { class: "chart-y", x: LEFT - 6, y: round(y(tick)) + 4 }, money(tick)))];
    const line = this.curve.map((point, index) => (index ? `H${round(this.#x(point.finish_at))}V${round(y(point.cost_usd))}` : `M${round(this.#x(point.finish_at))} ${TOP}V${round(y(point.cost_usd))}`)).join("");
    const points = this.curve.map((point) => (point.market === "owned" ? svg("circle", { class: "curve-point", cx: round(this.#x(point.finish_at)), cy: round(y(point.cost_usd)), r: 5 }, svg("title", null, words(point))) : svg("path", { class: "curve-point rented", d: diamond(this.#x(point.finish_at), y(point.cost_usd)) }, svg("title", null, words(point)))));
    const times = ticksOf(start, end, Math.max(2, this.width / 90)).map(([moment, word]) => svg("text", { class: "chart-x", x: round(this.#x(moment)), y: HEIGHT - 8 }, word));
    const too = this.curve[0] ? svg("rect", { class: "curve-never", x: LEFT, y: TOP, width: Math.max(0, round(this.#x(this.curve[0].finish_at) - LEFT)), height: HEIGHT - TOP - BELOW }) : null;
    const set = this.set !== null && this.moved !== null ? svg("path", { class: "chart-mark", d: `M${round(this.#x(this.set))} ${TOP}V${HEIGHT - BELOW}` }) : null;
    this.#drawHandle();
    const focused = document.activeElement === this.handle;
    show(this.drawing, too, grid, times, set, svg("path", { class: "chart-line series-0", d: `${line}H${right}` }), points, this.handle);
    if (focused) this.handle.focus();
    this.#say();
  }

  #drawHandle() {
    const x = round(Math.min(LEFT + this.width, Math.max(LEFT, this.#x(this.at))));
    const word = this.moved === null && this.set === null ? "no deadline" : "deadline";
    show(this.handle, svg("path", { class: "handle-line", d: `M${x} ${TOP - 4}V${HEIGHT - BELOW}` }), svg("path", { class: "handle-knob", d: `M${x - 8} ${TOP - 16}h16v10l-8 8l-8 -8z` }), svg("text", { class: x > LEFT + this.width - 80 ? "chart-word end" : "chart-word", x: x > LEFT + this.width - 80 ? x - 13 : x + 13, y: TOP - 7 }, word));
    const [start, end] = this.span;
    for (const [name, value] of Object.entries({ "aria-valuemin": Math.round(start), "aria-valuemax": Math.round(end), "aria-valuenow": Math.round(this.at), "aria-valuetext": this.#tell() })) this.handle.setAttribute(name, String(value));
  }

  #tell() {
    if (this.moved === null && this.set === null) return "none";
    const point = cheapest(this.curve, this.at);
    const then = `${absolute(this.at)}, in ${duration(this.at - now())}`;
    return point ? `${then}: from ${money(point.cost_usd)}${point.site ? ` at ${point.site}` : ""}` : `${then}: nothing that could begin now is done by then`;
  }

  #say() {
    const told = this.moved === null && this.set === null ? "It has no deadline: it starts when there is room." : `Done by ${this.#tell()}.`;
    if (this.said.textContent !== told) this.said.textContent = told;
    this.ok.disabled = this.moved === null;
    this.back.disabled = this.moved === null;
    this.none.disabled = this.set === null;
  }

  /** @param {PointerEvent} event */
  #grab(event) {
    if (!this.may) return;
    if (event.button) return;
    this.frozen = this.span;
    this.dragging = true;
    this.drawing.setPointerCapture(event.pointerId);
    this.handle.focus();
    this.#to(this.#time(event));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = event.shiftKey ? 3600 : STEP_S;
    /** @type {Record<string, number>} */
    const steps = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -3600, PageUp: 3600 };
    const first = this.curve[0];
    if (event.key === "Enter" && this.moved !== null) void this.#set(this.moved);
    else if (event.key === "Escape") this.#leave();
    else if (event.key === "Home" && first) this.#to(first.finish_at);
    else if (steps[event.key] !== undefined) this.#to(this.at + /** @type {number} */ (steps[event.key]));
    else return;
    event.preventDefault();
  }

  /** The handle goes there; what would follow is asked once it rests. @param {number} moment */
  #to(moment) {
    const [start, end] = this.frozen && this.dragging ? this.frozen : [now(), Infinity];
    this.moved = Math.ceil(Math.min(end, Math.max(start + 60, moment)) / 60) * 60;
    this.#draw();
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.#preview(), WAIT_MS);
  }

  #leave() {
    window.clearTimeout(this.timer);
    this.turn += 1;
    this.moved = null;
    show(this.would);
    this.#draw();
  }

  async #preview() {
    const turn = ++this.turn;
    const moment = this.moved;
    if (moment === null) return;
    show(this.would, h("p", { class: "faint" }, "Looking what would follow …"));
    try {
      const preview = await post(at("/v1/jobs/{id}/preview", this.job), { deadline: instant(moment) });
      if (turn === this.turn) show(this.would, wouldBecome(preview, moment));
    } catch (error) {
      if (turn === this.turn) show(this.would, problemBox(error));
    }
  }

  /** @param {number | null} moment */
  async #set(moment) {
    window.clearTimeout(this.timer);
    this.turn += 1;
    try {
      await patch(at("/v1/jobs/{id}", this.job), { deadline: moment === null ? "none" : instant(moment) });
      notice(moment === null ? "It has no deadline now." : `The deadline is ${absolute(moment)}.`);
      this.set = moment;
      this.#leave();
      this.again();
    } catch (error) {
      show(this.would, problemBox(error));
    }
  }
}

/** @param {Point} point */
const words = (point) => `${point.site ? `${point.site}/${point.pool}` : "when its turn comes"} (${point.market}): done ${absolute(point.finish_at)} for ${money(point.cost_usd)}`;
/** @param {number} seconds */
const instant = (seconds) => new Date(seconds * 1000).toISOString().replace(".000", "");
/** @param {number} x @param {number} y */
const diamond = (x, y) => `M${round(x)} ${round(y - 6)}l6 6l-6 6l-6 -6z`;
/** @param {number} value */
const round = (value) => Math.round(value * 10) / 10;
