// Charts of numbers: lines over time or another number, and stacked bars. Series differ in dashes or order as well as in colour, and a table says the same.
import { absolute, number } from "./format.js";
import { h, show, svg } from "./dom.js";
import { ticksOf } from "./gantt.js";

/** @typedef {{name: string, points: readonly (readonly [number, number])[], stepped?: boolean, faint?: boolean}} Line `stepped`: it keeps its value until the next point. */
/** @typedef {{at: number, name: string}} Mark A vertical line with a word. */
/**
 * @typedef {object} LineOptions
 * @property {string} label What the chart shows.
 * @property {boolean} [times] Whether x are moments, in seconds since the epoch.
 * @property {(value: number) => string} [format] Of y.
 * @property {(value: number) => string} [formatX]
 * @property {number} [height]
 * @property {boolean} [fromZero] Whether y begins at 0; left out: it does.
 */
/** @typedef {{name: string, parts: readonly number[]}} Stack A bar with one part for each series. */

const LEFT = 62;
const RIGHT = 10;
const TOP = 10;
/** Where words stand above the lines. */
const TOP_WITH_MARKS = 22;
const BELOW = 24;
/** Width of a letter, about. */
const LETTER = 6.5;
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "12 4", "4 2"];

/** What charts have in common: a drawing as wide as its place, drawn anew when that changes, and a table of the same. */
class Drawing {
  /** @param {string} label @param {number} height */
  constructor(label, height) {
    this.height = height;
    this.drawing = svg("svg", { class: "chart", height, width: "100%", role: "img", "aria-label": label });
    this.keys = h("div", { class: "legend", "aria-hidden": "true" });
    this.table = h("table", null);
    this.element = h("figure", { class: "figure" }, this.drawing, this.keys, h("details", null, h("summary", null, "As a table"), h("div", { class: "table" }, this.table)));
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.element);
  }

  /** No more is drawn. */
  close() {
    this.watch.disconnect();
  }

  get width() {
    return Math.max(200, this.element.clientWidth);
  }

  /** Draw what is to be seen. */
  draw() {}

  /** @param {readonly string[]} names @param {boolean} lines */
  legend(names, lines) {
    const keys = names.map((name, index) => {
      const line = svg("path", { class: `series-${index % 6}`, d: "M1 6H23", "stroke-dasharray": DASHES[index % 6] || null });
      return h("span", null, svg("svg", { width: 24, height: 12 }, lines ? line : svg("rect", { class: `fill-${index % 6}`, x: 6, y: 1, width: 10, height: 10 })), name);
    });
    show(this.keys, names.length > 1 ? keys : []);
  }

  /** @param {readonly string[]} titles @param {readonly (readonly string[])[]} rows */
  rows(titles, rows) {
    const head = h("thead", null, h("tr", null, titles.map((title, index) => h("th", { scope: "col", class: index ? "numeric" : "" }, title))));
    const body = rows.map(([first, ...rest]) => h("tr", null, h("th", { scope: "row" }, first ?? ""), rest.map((cell, index) => h("td", { class: "numeric", data: { label: titles[index + 1] ?? "" } }, cell))));
    show(this.table, head, h("tbody", null, body));
  }

  /** What stands under x, whole also at the edges. @param {number} x @param {string} word */
  below(x, word) {
    const half = (word.length * LETTER) / 2;
    const end = x + half > this.width;
    return svg("text", { class: `chart-x${end ? " end" : ""}`, x: end ? this.width : round(Math.max(half, x)), y: this.height - 6 }, word);
  }

  /** Lines across, with what they stand for. @param {readonly number[]} ticks @param {(value: number) => number} y @param {(value: number) => string} format */
  across(ticks, y, format) {
    return [svg("path", { class: "chart-grid", d: ticks.map((tick) => `M${LEFT} ${round(y(tick))}H${this.width - RIGHT}`).join("") }), ...ticks.map((tick) => svg("text", { class: "chart-y", x: LEFT - 6, y: round(y(tick)) + 4 }, format(tick)))];
  }
}

/** Lines. Give `set` new ones; what the pointer is at is told. */
export class LineChart extends Drawing {
  /** @param {LineOptions} options */
  constructor(options) {
    super(options.label, options.height ?? 200);
    this.options = options;
    /** @type {readonly Line[]} */
    this.lines = [];
    /** @type {readonly Mark[]} */
    this.marks = [];
    this.pointer = svg("g", { class: "chart-pointer" });
    this.drawing.addEventListener("pointermove", (event) => this.#point(event.clientX - this.drawing.getBoundingClientRect().left));
    this.drawing.addEventListener("pointerleave", () => show(this.pointer));
  }

  /** Show these. @param {readonly Line[]} lines @param {readonly Mark[]} [marks] */
  set(lines, marks = []) {
    this.lines = lines.filter((line) => line.points.length);
    this.marks = marks;
    this.legend(lines.map((line) => line.name), true);
    const xs = [...new Set(this.lines.flatMap((line) => line.points.map(([x]) => x)))].sort((one, other) => one - other);
    this.rows([this.options.times ? "When" : "At", ...lines.map((line) => line.name)], thinned(xs, 60).map((x) => [this.formatX(x), ...lines.map((line) => this.format(valueAt(line, x)))]));
    this.draw();
  }

  /** @param {number | null} value */
  format(value) {
    return value === null ? "" : (this.options.format ?? number)(value);
  }
  /** @param {number} value */
  formatX(value) {
    return this.options.formatX?.(value) ?? (this.options.times ? absolute(value) : number(value, 2));
  }

  /** Draw the lines. @override */
  draw() {
    const points = this.lines.flatMap((line) => line.points);
    if (!points.length) return void show(this.drawing, svg("text", { class: "chart-none", x: this.width / 2, y: this.height / 2 }, "Nothing to show yet"));
    const xs = [...points.map(([x]) => x), ...this.marks.map((mark) => mark.at)];
    this.low = Math.min(...bounds(xs));
    this.high = Math.max(...bounds(xs), this.low + 1e-9);
    const ys = bounds(points.map(([, y]) => y));
    const ticks = nice(this.options.fromZero === false ? ys[0] : Math.min(0, ys[0]), Math.max(ys[1], ys[0] + 1e-9, 0), 4);
    const [bottom, top] = [ticks[0] ?? 0, ticks[ticks.length - 1] ?? 1];
    const above = this.marks.length ? TOP_WITH_MARKS : TOP;
    this.y = (/** @type {number} */ value) => this.height - BELOW - ((value - bottom) / (top - bottom || 1)) * (this.height - BELOW - above);
    const y = this.y;
    const x = (/** @type {number} */ value) => this.x(value);
    const drawn = this.lines.map((line, index) => svg("path", { class: `chart-line series-${index % 6}${line.faint ? " faint-line" : ""}`, d: path(line, x, y), "stroke-dasharray": DASHES[index % 6] || null }));
    const marks = this.marks.flatMap((mark) => {
      const near = x(mark.at) > this.width - 90;
      return [svg("path", { class: "chart-mark", d: `M${round(x(mark.at))} ${TOP / 2}V${this.height - BELOW}` }), svg("text", { class: near ? "chart-word end" : "chart-word", x: round(x(mark.at)) + (near ? -4 : 4), y: TOP + 3 }, mark.name)];
    });
    show(this.drawing, this.across(ticks, y, (value) => this.format(value)), this.#below(), drawn, marks, this.pointer);
    return undefined;
  }

  /** @param {number} value */
  x(value) {
    const [low, high] = [this.low ?? 0, this.high ?? 1];
    return LEFT + ((value - low) / (high - low || 1)) * (this.width - LEFT - RIGHT);
  }

  #below() {
    const [low, high] = [this.low ?? 0, this.high ?? 1];
    const most = Math.max(2, (this.width - LEFT) / 90);
    if (!this.options.times) return nice(low, high, most).filter((each) => each >= low && each <= high).map((each) => this.below(this.x(each), this.options.formatX?.(each) ?? number(each, 2)));
    return ticksOf(low, high, most).map(([at, word]) => this.below(this.x(at), word));
  }

  /** @param {number} left */
  #point(left) {
    const [low, high] = [this.low ?? 0, this.high ?? 1];
    if (!this.lines.length || left < LEFT) return void show(this.pointer);
    const at = low + ((left - LEFT) / (this.width - LEFT - RIGHT)) * (high - low);
    const words = [this.formatX(at), ...this.lines.map((line) => `${this.lines.length > 1 ? `${line.name} ` : ""}${this.format(valueAt(line, at)) || "–"}`)];
    const end = left > this.width / 2;
    return void show(this.pointer, svg("path", { class: "chart-cross", d: `M${round(left)} ${TOP}V${this.height - BELOW}` }), words.map((word, index) => svg("text", { class: end ? "chart-word end" : "chart-word", x: round(left) + (end ? -6 : 6), y: TOP + 10 + 14 * index }, word)));
  }
}

/** Bars beside each other, each of one part for every series. */
export class BarChart extends Drawing {
  /** @param {{label: string, series: readonly string[], format?: (value: number) => string, height?: number}} options */
  constructor(options) {
    super(options.label, options.height ?? 200);
    this.options = options;
    /** @type {readonly Stack[]} */
    this.stacks = [];
    this.legend(options.series, false);
  }

  /** Show these. @param {readonly Stack[]} stacks */
  set(stacks) {
    this.stacks = stacks;
    this.rows(["", ...this.options.series], stacks.map((stack) => [stack.name, ...stack.parts.map((part) => this.format(part))]));
    this.draw();
  }

  /** @param {number} value */
  format(value) {
    return (this.options.format ?? number)(value);
  }

  /** Draw the bars. @override */
  draw() {
    if (!this.stacks.length) return void show(this.drawing, svg("text", { class: "chart-none", x: this.width / 2, y: this.height / 2 }, "Nothing to show yet"));
    const sums = this.stacks.map((stack) => stack.parts.reduce((sum, part) => sum + part, 0));
    const ticks = nice(0, Math.max(...sums, 1e-9), 4);
    const top = ticks[ticks.length - 1] ?? 1;
    const y = (/** @type {number} */ value) => this.height - BELOW - (value / top) * (this.height - BELOW - TOP);
    const each = (this.width - LEFT - RIGHT) / this.stacks.length;
    const wide = Math.max(1, Math.min(48, each * 0.7));
    const every = Math.ceil(70 / each);
    /** @type {SVGElement[]} */
    const made = [];
    this.stacks.forEach((stack, index) => {
      const x = LEFT + each * index + (each - wide) / 2;
      let below = 0;
      stack.parts.forEach((part, number) => {
        if (part <= 0) return;
        const [from, to] = [y(below), y(below + part)];
        below += part;
        made.push(svg("rect", { class: `fill-${number % 6}`, x: round(x), y: round(to), width: round(wide), height: Math.max(0.5, round(from - to) - 1) }, svg("title", null, `${stack.name}: ${this.options.series.length > 1 ? `${this.options.series[number]} ` : ""}${this.format(part)}`)));
      });
      if (index % every === 0) made.push(this.below(x + wide / 2, stack.name));
    });
    show(this.drawing, this.across(ticks, y, (value) => this.format(value)), made);
    return undefined;
  }
}

/** Round numbers from at most `low` to at least `high`. @param {number} low @param {number} high @param {number} count */
export function nice(low, high, count) {
  const rough = (high - low) / Math.max(1, count) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((each) => each * power >= rough) ?? 10) * power;
  const ticks = [];
  for (let index = Math.floor(low / step + 1e-9); index * step < high + step * (1 - 1e-9); index++) ticks.push(Number((index * step).toPrecision(12)));
  return ticks;
}

/** What a line is at some x; null before its first point. @param {Line} line @param {number} x @returns {number | null} */
export function valueAt(line, x) {
  const next = line.points.findIndex(([each]) => each > x);
  const before = line.points[next < 0 ? line.points.length - 1 : next - 1];
  const after = next < 0 ? undefined : line.points[next];
  if (!before) return null;
  if (!after || line.stepped) return before[1];
  return before[1] + ((x - before[0]) / (after[0] - before[0])) * (after[1] - before[1]);
}

/** @param {Line} line @param {(value: number) => number} x @param {(value: number) => number} y */
function path(line, x, y) {
  return line.points.map(([at, value], index) => (index === 0 ? `M${round(x(at))} ${round(y(value))}` : line.stepped ? `H${round(x(at))}V${round(y(value))}` : `L${round(x(at))} ${round(y(value))}`)).join("");
}

/** @param {readonly number[]} values @returns {[number, number]} */
function bounds(values) {
  return [values.reduce((least, each) => Math.min(least, each), Infinity), values.reduce((most, each) => Math.max(most, each), -Infinity)];
}

/** @template T @param {readonly T[]} all @param {number} most */
function thinned(all, most) {
  const every = Math.ceil(all.length / most);
  return all.filter((_, index) => index % every === 0 || index === all.length - 1);
}

/** @param {number} value */
const round = (value) => Math.round(value * 10) / 10;
