// A Gantt chart: lanes of capacity, bars of work, from one job to thousands of GPUs.
//
// Only what is in sight is drawn, and all bars of one state are one path, so that thousands of them are a handful of elements; names are written where there is
// room for them. What the pointer is at is found in the data, not in the drawing.
import { h, show, svg } from "./dom.js";
import { pack } from "./packing.js";

/** @typedef {import("./packing.js").Bar} Bar */
/** @typedef {import("./packing.js").Lane} Lane */
/** @typedef {import("./packing.js").Packed} Packed */
/** @typedef {{lane: Lane, rows: number, packed: Packed[], top: number, row: number}} Placed A lane, where it is drawn (`top`) and how high each row is, in pixels. */
/**
 * @typedef {object} GanttOptions
 * @property {string} label What it shows, for those who do not see it.
 * @property {(bar: Bar) => import("./dom.js").Children} describe What is said of a bar that is pointed at.
 * @property {(bar: Bar) => string} tell The same in one line, for those who do not see it.
 * @property {(bar: Bar) => void} open It was chosen.
 * @property {(since: number, until: number) => void} [onWindow] Another time is in sight.
 * @property {() => number} now In seconds since the epoch.
 * @property {string} [nowWord]
 */

/** States, with what they are called. @type {readonly [string, string][]} */
export const STATES = [
  ["ended", "ended"],
  ["local", "the site's own work"],
  ["planned", "planned"],
  ["reserved", "hosts are held for it"],
  ["booting", "machine boots"],
  ["starting", "starting"],
  ["running", "running"],
  ["kept", "reserved by a policy"],
];
/** Work is drawn over what is kept for it. */
const ORDER = ["kept", "rest", ...STATES.map(([state]) => state).filter((state) => state !== "kept"), "failed"];
const STEPS = [1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
const SHORTEST_S = 60;
const LONGEST_S = 31 * 86400;
const AXIS = 26;
const STRIP = 20;
const GAP = 8;
const NARROW = 640;
const GUTTER = 168;
const MOST_LABELS = 300;
const LABEL_HIGH = 11;
/** Fingers nearer than this count as so far apart. */
const PINCH_PX = 24;
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const SECONDS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DATE = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });

export class Gantt {
  /** @param {GanttOptions} options */
  constructor(options) {
    this.options = options;
    /** @type {Placed[]} */
    this.lanes = [];
    /** @type {Map<string, Packed & {at: Placed}>} */
    this.byId = new Map();
    const at = options.now();
    this.since = at - 3600;
    this.until = at + 12 * 3600;
    /** How high a GPU is, in pixels; 0: as it fits. */
    this.row = 0;
    this.current = "";
    this.height = 0;
    this.drawn = 0;
    this.frame = 0;
    /** Now, as it was when it was last followed. */
    this.seen = at;
    this.dragged = false;

    this.axis = svg("svg", { class: "gantt-axis", height: AXIS, width: "100%", "aria-hidden": "true" });
    this.drawing = svg("g");
    this.chart = svg("svg", { class: "gantt-chart", width: "100%", "aria-hidden": "true" }, patterns(), this.drawing);
    this.scroll = h(
      "div",
      {
        class: "gantt-scroll",
        tabindex: 0,
        role: "group",
        "aria-roledescription": "Gantt chart",
        "aria-label": `${options.label}. Arrows walk from bar to bar, Enter opens the job, plus and minus zoom, Shift with arrows moves in time, 0 goes to now.`,
      },
      this.chart,
    );
    this.tip = h("div", { class: "gantt-tip", role: "tooltip", hidden: true });
    this.said = h("p", { class: "unseen", role: "status" });
    this.element = h("div", { class: "gantt" }, this.axis, this.scroll, this.tip, this.said);
    this.#listen();
    this.watch = new ResizeObserver(() => {
      this.#arrange();
      this.#point(this.byId.get(this.current)?.bar ?? null);
    });
    this.watch.observe(this.scroll);
  }

  /** No more is drawn. */
  close() {
    this.watch.disconnect();
    cancelAnimationFrame(this.frame);
  }

  /** Show these. @param {readonly Lane[]} lanes @param {readonly Bar[]} bars */
  set(lanes, bars) {
    this.packed = pack(lanes, bars);
    this.#arrange();
    if (this.current && !this.byId.has(this.current)) this.#point(null);
  }

  /** Let the time in sight go on with the clock, where now is in sight. */
  follow() {
    const at = this.options.now();
    const passed = at - this.seen;
    const inSight = this.seen >= this.since && this.seen <= this.until;
    if (inSight && passed < (2 / this.#width) * (this.until - this.since)) return;
    if (!inSight) this.seen = at;
    else if (!this.dragged) this.look(this.since + passed, this.until + passed);
  }

  /** Show this time. @param {number} since @param {number} until */
  look(since, until) {
    const length = Math.min(LONGEST_S, Math.max(SHORTEST_S, until - since));
    const middle = (since + until) / 2;
    this.since = middle - length / 2;
    this.until = middle + length / 2;
    this.seen = this.options.now();
    this.options.onWindow?.(this.since, this.until);
    this.redraw();
  }

  /** Show more or less time about a moment. @param {number} factor @param {number} [about] */
  zoom(factor, about = (this.since + this.until) / 2) {
    const length = Math.min(LONGEST_S, Math.max(SHORTEST_S, (this.until - this.since) * factor));
    const part = (about - this.since) / (this.until - this.since);
    this.look(about - part * length, about + (1 - part) * length);
  }

  /** Higher or lower rows. @param {number} factor */
  stretch(factor) {
    const present = this.row || this.#fitting();
    this.row = Math.min(36, Math.max(1, present * factor));
    this.#arrange();
  }

  /** Rows as high as it fits, and the time about now. @param {number} back @param {number} ahead In seconds. */
  reset(back, ahead) {
    this.row = 0;
    const at = this.options.now();
    this.look(at - back, at + ahead);
    this.#arrange();
  }

  /** Draw again, in the next frame. */
  redraw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.#draw();
    });
  }

  get #width() {
    return Math.max(160, this.scroll.clientWidth - this.#left);
  }
  get #left() {
    return this.scroll.clientWidth < NARROW ? 0 : GUTTER;
  }
  /** @param {number} time */
  #x(time) {
    return this.#left + ((time - this.since) / (this.until - this.since)) * this.#width;
  }
  /** @param {number} x */
  #time(x) {
    return this.since + ((x - this.#left) / this.#width) * (this.until - this.since);
  }

  /** How high rows may be for all lanes to be seen at once, within what can be read. */
  #fitting() {
    const busy = (this.packed ?? []).filter((each) => each.packed.length);
    const rows = busy.reduce((sum, each) => sum + each.rows, 0);
    const room = 520 - (this.packed?.length ?? 0) * (GAP + (this.#left ? 0 : STRIP));
    return Math.min(18, Math.max(rows > 300 ? 1 : 3, room / Math.max(1, rows)));
  }

  #arrange() {
    const high = this.row || this.#fitting();
    const strip = this.#left ? 0 : STRIP;
    let top = GAP / 2;
    this.byId.clear();
    this.lanes = (this.packed ?? []).map((each) => {
      // A lane is never lower than its lines of text, and its rows fill it.
      const row = each.packed.length ? Math.max(high, (this.#left ? 30 : 14) / each.rows) : 0;
      const placed = { ...each, top: top + strip, row };
      top += strip + Math.max(each.rows * row, this.#left ? 30 : each.packed.length ? 14 : 2) + GAP;
      for (const found of each.packed) this.byId.set(found.bar.id, { ...found, at: placed });
      return placed;
    });
    this.height = Math.max(60, top);
    this.chart.setAttribute("height", String(this.height));
    this.redraw();
  }

  #draw() {
    const width = this.scroll.clientWidth;
    if (!width) return;
    const [top, bottom] = [this.scroll.scrollTop, this.scroll.scrollTop + this.scroll.clientHeight];
    const ticks = ticksOf(this.since, this.until, Math.max(2, this.#width / 84));
    const now = this.options.now();
    /** @type {SVGElement[]} */
    const made = [];
    const seen = this.lanes.filter((each) => each.top - STRIP <= bottom && each.top + Math.max(30, each.rows * each.row) >= top);
    for (const lane of seen) made.push(...this.#lane(lane, width));
    made.push(svg("path", { class: "gantt-grid", d: ticks.map(([at]) => `M${round(this.#x(at))} ${top}V${bottom}`).join("") }));
    made.push(...this.#bars(seen, top, bottom));
    if (now >= this.since && now <= this.until) made.push(svg("path", { class: "gantt-now", d: `M${round(this.#x(now))} 0V${this.height}` }));
    made.push(...this.#outline());
    show(this.drawing, made);
    this.chart.classList.toggle("low", seen.some((each) => each.row > 0 && each.row < 6));
    this.drawn = this.drawing.querySelectorAll("*").length;
    this.element.dataset["drawn"] = String(this.drawn);
    this.#drawAxis(ticks, now);
  }

  /** @param {readonly Tick[]} ticks @param {number} now */
  #drawAxis(ticks, now) {
    const inside = (/** @type {number} */ x, /** @type {number} */ half) => x >= this.#left + half && x <= this.scroll.clientWidth - half;
    const whole = ticks.filter(([at, word]) => inside(this.#x(at), 3.4 * word.length));
    const words = whole.map(([at, word, day]) => svg("text", { x: round(this.#x(at)), y: 17, class: day ? "day" : "" }, word));
    const marker = now >= this.since && now <= this.until ? svg("path", { class: "gantt-now-mark", d: `M${round(this.#x(now)) - 5} ${AXIS - 7}h10l-5 7z` }) : null;
    show(this.axis, words, marker);
  }

  /** What is behind the bars of a lane, and its name. @param {Placed} lane @param {number} width */
  #lane(lane, width) {
    const high = Math.max(lane.rows * lane.row, this.#left ? 30 : 2);
    const [name, more] = laneWords(lane.lane);
    const fits = Math.floor((this.#left ? GUTTER - 16 : width - 16) / 6.6);
    const ground = svg("rect", { class: lane.lane.closed ? "gantt-lane closed" : "gantt-lane", x: this.#left, y: round(lane.top), width: this.#width, height: round(high) });
    if (!this.#left) return [ground, svg("text", { class: "gantt-name", x: 6, y: round(lane.top) - 6 }, short(`${name}  ${more}`, fits))];
    const y = Math.max(lane.top, Math.min(this.scroll.scrollTop + 2, lane.top + high - 30));
    return [ground, svg("text", { class: "gantt-name", x: 8, y: round(y) + 12 }, short(name, fits)), svg("text", { class: "gantt-more", x: 8, y: round(y) + 26 }, short(more, fits + 3))];
  }

  /** All bars in sight: a path for each state, and names. @param {readonly Placed[]} lanes @param {number} top @param {number} bottom */
  #bars(lanes, top, bottom) {
    /** @type {Record<string, string[]>} */
    const paths = {};
    /** @type {string[]} */
    const late = [];
    /** @type {SVGElement[]} */
    const names = [];
    /** @type {SVGElement[]} */
    const below = [];
    for (const lane of lanes) {
      for (const { bar, boxes } of lane.packed) {
        const moment = bar.ran_until === undefined ? Infinity : this.options.now();
        if (bar.end_at < this.since || bar.start_at > this.until || bar.start_at > moment) continue;
        const x = Math.max(this.#left, this.#x(bar.start_at));
        const right = Math.min(this.#left + this.#width, this.#x(bar.end_at));
        // Of work that grows, what the moment has not reached is as planned.
        const reached = Math.min(right, Math.max(x, this.#x(Math.min(moment, bar.ran_until ?? Infinity))));
        const wide = Math.max(1, right - x - (right - x > 4 ? 1 : 0));
        let written = false;
        for (const box of boxes) {
          const y = lane.top + box.row * lane.row;
          const high = box.rows * lane.row - (lane.row >= 4 ? 1 : 0);
          if (y > bottom || y + high < top) continue;
          if (reached < right) (paths["rest"] ??= []).push(outline("rest", reached, y, Math.max(1, x + wide - reached), high));
          (paths[stateOf(bar)] ??= []).push(outline(bar.state, x, y, reached < right ? Math.max(1, reached - x) : wide, high));
          if (bar.deadline_at && bar.end_at > bar.deadline_at && bar.state !== "ended") late.push(`M${round(x + wide - 2)} ${round(y)}h2v${round(high)}h-2z`);
          if (!written && wide > 34 && high >= LABEL_HIGH && names.length < MOST_LABELS) {
            written = true;
            (bar.state === "kept" ? below : names).push(label(bar, x, y, wide, bar.state === "ended" ? high : Math.min(high, 40), reached < right ? "rest" : bar.state));
          }
        }
      }
    }
    return [
      ...ORDER.filter((state) => paths[state]).flatMap((state) => [svg("path", { class: `gantt-bar bar-${state}`, d: paths[state]?.join("") ?? "" }), ...(state === "kept" ? below : [])]),
      ...(late.length ? [svg("path", { class: "gantt-late", d: late.join("") })] : []),
      ...names,
    ];
  }

  /** Around the bar that is pointed at, with its deadline. */
  #outline() {
    const found = this.byId.get(this.current);
    if (!found) return [];
    const { bar, boxes, at } = found;
    const x = Math.max(this.#left, this.#x(bar.start_at));
    const wide = Math.max(2, this.#x(bar.end_at) - x);
    const made = [svg("path", { class: "gantt-current", d: boxes.map((box) => `M${round(x)} ${round(at.top + box.row * at.row)}h${round(wide)}v${round(box.rows * at.row)}h${round(-wide)}z`).join("") })];
    if (bar.deadline_at && this.#x(bar.deadline_at) > this.#left) {
      made.push(svg("path", { class: "gantt-deadline", d: `M${round(this.#x(bar.deadline_at))} ${round(at.top)}v${round(Math.max(14, at.rows * at.row))}` }));
    }
    return made;
  }

  /** The bar at a point of the chart. @param {MouseEvent} event @returns {Bar | null} */
  #under(event) {
    const frame = this.chart.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const lane = this.lanes.find((each) => y >= each.top && y < each.top + each.rows * each.row);
    if (!lane || x < this.#left) return null;
    const row = Math.floor((y - lane.top) / lane.row);
    const near = (3 / this.#width) * (this.until - this.since);
    const time = this.#time(x);
    const all = lane.packed.filter(({ bar, boxes }) => bar.start_at <= time + near && bar.end_at >= time - near && boxes.some((box) => row >= box.row && row < box.row + box.rows));
    const work = all.filter(({ bar }) => bar.state !== "kept");
    const here = work.length ? work : all;
    return (here.find(({ bar }) => bar.start_at <= time && bar.end_at >= time) ?? here[0])?.bar ?? null;
  }

  #listen() {
    /** @type {{x: number, y: number, since: number, until: number, top: number, moved: boolean} | null} */
    let drag = null;
    /** Where pointers are down, and what two of them do. @type {Map<number, PointerEvent>} */
    const fingers = new Map();
    /** @type {((fingers: PointerEvent[]) => void) | null} */
    let pinch = null;
    const area = this.scroll;
    area.addEventListener("scroll", () => this.redraw(), { passive: true });
    area.addEventListener(
      "wheel",
      (event) => {
        const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
        if (!event.ctrlKey && !event.metaKey && !sideways) return;
        event.preventDefault();
        const by = event.deltaX || event.deltaY;
        if (sideways) this.#pan((by / this.#width) * (this.until - this.since));
        else this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 240), this.#time(event.clientX - this.chart.getBoundingClientRect().left));
      },
      { passive: false },
    );
    this.axis.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 240), this.#time(event.clientX - this.axis.getBoundingClientRect().left));
      },
      { passive: false },
    );
    area.addEventListener("pointerdown", (event) => {
      if (event.button || event.target === area) return;
      this.dragged = true;
      fingers.set(event.pointerId, event);
      if (fingers.size === 2) {
        pinch = this.#pinched([...fingers.values()]);
        drag = null;
        this.#point(null);
      } else drag = { x: event.clientX, y: event.clientY, since: this.since, until: this.until, top: area.scrollTop, moved: false };
    });
    area.addEventListener("pointermove", (event) => {
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event);
      if (pinch && fingers.size === 2) return pinch([...fingers.values()]);
      if (!drag) return event.pointerType === "mouse" && this.#point(this.#under(event), event.clientX, event.clientY);
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 5) return undefined;
      if (!drag.moved) area.setPointerCapture(event.pointerId);
      drag.moved = true;
      this.#point(null);
      const by = (dx / this.#width) * (drag.until - drag.since);
      if (event.pointerType === "mouse") area.scrollTop = drag.top - dy;
      return this.look(drag.since - by, drag.until - by);
    });
    area.addEventListener("pointerup", (event) => {
      const clicked = drag && !drag.moved ? this.#under(event) : null;
      const told = clicked?.id === this.current;
      lifted(event);
      // A finger has no hover: its first touch says what a bar is, the second opens it.
      if (event.pointerType !== "mouse" && !told) this.#point(clicked, event.clientX, event.clientY);
      else if (clicked) this.options.open(clicked);
    });
    /** @param {PointerEvent} event */
    const lifted = (event) => {
      fingers.delete(event.pointerId);
      drag = pinch = null;
      this.dragged = fingers.size > 0;
    };
    area.addEventListener("pointercancel", lifted);
    area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && !drag && this.#point(null));
    area.addEventListener("keydown", (event) => this.#key(event));
    area.addEventListener("blur", () => this.#point(null));
  }

  /** What moves of two fingers do: side by side they take the times below them along, one above the other they stretch rows. @param {PointerEvent[]} begun */
  #pinched(begun) {
    const left = this.chart.getBoundingClientRect().left;
    const apart = (/** @type {PointerEvent[]} */ [one, two]) => [Math.abs((one?.clientX ?? 0) - (two?.clientX ?? 0)), Math.abs((one?.clientY ?? 0) - (two?.clientY ?? 0))];
    const [wide = 0, high = 0] = apart(begun);
    const row = this.row || this.#fitting();
    const [first = 0, last = 0] = begun.map((each) => this.#time(each.clientX - left)).sort((one, two) => one - two);
    return (/** @type {PointerEvent[]} */ fingers) => {
      const [x = 0, y = 0] = apart(fingers);
      if (high > wide) {
        this.row = row;
        return this.stretch(Math.max(0.1, y / high));
      }
      const length = ((last - first) * this.#width) / Math.max(PINCH_PX, x);
      const from = Math.min(...fingers.map((each) => each.clientX)) - left - this.#left;
      const since = first - (from / this.#width) * length;
      return this.look(since, since + length);
    };
  }

  /** @param {number} seconds */
  #pan(seconds) {
    this.look(this.since + seconds, this.until + seconds);
  }

  /** Say what a bar is. @param {Bar | null} bar @param {number} [x] @param {number} [y] Where on the screen. */
  #point(bar, x, y) {
    const id = bar?.id ?? "";
    if (id !== this.current) {
      this.current = id;
      if (bar) show(this.tip, this.options.describe(bar));
      this.redraw();
    }
    this.tip.hidden = !bar;
    this.scroll.classList.toggle("pointing", Boolean(bar?.job));
    if (!bar) return;
    const frame = this.element.getBoundingClientRect();
    const found = this.byId.get(id);
    const left = (x ?? this.chart.getBoundingClientRect().left + Math.max(this.#left, this.#x(bar.start_at))) - frame.left;
    const top = (y ?? this.chart.getBoundingClientRect().top + (found ? found.at.top + (found.boxes[0]?.row ?? 0) * found.at.row : 0)) - frame.top;
    const room = this.element.clientWidth - this.tip.offsetWidth - 4;
    const above = top + 18 + this.tip.offsetHeight + frame.top > window.innerHeight && top - this.tip.offsetHeight - 12 > -frame.top;
    this.tip.style.setProperty("left", `${Math.max(0, Math.min(left + 12, room))}px`);
    this.tip.style.setProperty("top", `${above ? top - this.tip.offsetHeight - 12 : top + 18}px`);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const quarter = (this.until - this.since) / 4;
    const found = this.byId.get(this.current);
    /** @type {Record<string, () => void>} */
    const keys = {
      "+": () => this.zoom(0.5, found?.bar.start_at),
      "=": () => this.zoom(0.5, found?.bar.start_at),
      "-": () => this.zoom(2),
      0: () => this.#pan(this.options.now() - this.since - quarter),
      Enter: () => found && this.options.open(found.bar),
      Escape: () => this.#point(null),
      ArrowLeft: () => (event.shiftKey ? this.#pan(-quarter) : this.#walk(-1, 0)),
      ArrowRight: () => (event.shiftKey ? this.#pan(quarter) : this.#walk(1, 0)),
      ArrowUp: () => this.#walk(0, -1),
      ArrowDown: () => this.#walk(0, 1),
      Home: () => this.#walk(-Infinity, 0),
      End: () => this.#walk(Infinity, 0),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Go to the bar before or after in its lane, or to the one that is nearest in time in another lane. @param {number} along @param {number} across */
  #walk(along, across) {
    const busy = this.lanes.filter((each) => each.packed.length);
    const found = this.byId.get(this.current);
    const present = found ? busy.findIndex((each) => each.lane.key === found.at.lane.key) : -1;
    const lane = busy[Math.min(busy.length - 1, Math.max(0, present < 0 ? 0 : present + across))];
    if (!lane) return;
    const number = found && !across ? lane.packed.findIndex((each) => each.bar.id === this.current) : -1;
    const start = found?.bar.start_at ?? Math.max(this.since, this.options.now());
    const nearest = lane.packed.reduce((best, each, index) => (Math.abs(each.bar.start_at - start) < Math.abs((lane.packed[best]?.bar.start_at ?? Infinity) - start) ? index : best), 0);
    const next = lane.packed[number < 0 ? nearest : Math.min(lane.packed.length - 1, Math.max(0, number + along))];
    if (!next) return;
    this.#reveal(next.bar, lane);
    this.#point(next.bar);
    this.said.textContent = this.options.tell(next.bar);
  }

  /** Bring a bar into sight. @param {Bar} bar @param {Placed} lane */
  #reveal(bar, lane) {
    if (bar.start_at < this.since || bar.start_at > this.until) this.#pan(bar.start_at - this.since - (this.until - this.since) / 4);
    const row = this.byId.get(bar.id)?.boxes[0]?.row ?? 0;
    const y = lane.top + row * lane.row;
    if (y < this.scroll.scrollTop || y > this.scroll.scrollTop + this.scroll.clientHeight - 20) this.scroll.scrollTop = y - 40;
  }
}

/** @typedef {[at: number, word: string, day: boolean]} Tick A moment on an axis; `day`: where one begins. */

/** Round moments of the reader's clock in a time, at most so many. @param {number} since @param {number} until @param {number} most @returns {Tick[]} */
export function ticksOf(since, until, most) {
  const step = STEPS.find((each) => (until - since) / each <= most) ?? 2592000;
  const shift = new Date(since * 1000).getTimezoneOffset() * 60;
  /** @type {Tick[]} */
  const found = [];
  for (let at = Math.ceil((since - shift) / step) * step + shift; at <= until; at += step) {
    const date = new Date(at * 1000);
    const day = step >= 86400 || (date.getHours() === 0 && date.getMinutes() === 0);
    found.push([at, (day ? DATE : step < 60 ? SECONDS : CLOCK).format(date), day]);
  }
  return found;
}

/** What a state looks like, small: for the legend. @param {string} state */
export function swatch(state) {
  return svg("svg", { class: "gantt-swatch", width: 26, height: 14, "aria-hidden": "true" }, svg("path", { class: `gantt-bar bar-${state}`, d: outline(state, 1, 1, 24, 12) }));
}

/** The patterns that bars are filled with. A style sheet finds them by their names, so that a page has them once. */
export function patterns() {
  /** @param {string} name @param {number} size @param {string} d */
  const pattern = (name, size, d) => svg("pattern", { id: `gantt-${name}`, width: size, height: size, patternUnits: "userSpaceOnUse" }, svg("rect", { class: "under", width: size, height: size }), svg("path", { class: "over", d }));
  return svg("defs", null, pattern("planned", 8, "M-2 2 2-2M0 8 8 0M6 10 10 6"), pattern("reserved", 6, "M0 0 6 6M6 0 0 6"), pattern("starting", 5, "M1 0V5M3.5 0V5"), pattern("booting", 6, "M1 1h2v2h-2zM4 4h2v2h-2z"), pattern("local", 4, "M0 2H4"), pattern("kept", 9, "M-2 2 2-2M0 9 9 0M7 11 11 7"));
}

/** @param {Bar} bar */
const stateOf = (bar) => (bar.state === "ended" && bar.status && bar.status !== "SUCCEEDED" && bar.status !== "STOPPED" ? "failed" : bar.state);

/** Each state has a shape of its own: what is over is low, what boots ends in a point, what is planned has a notch where it begins. @param {string} state @param {number} x @param {number} y @param {number} wide @param {number} high */
export function outline(state, x, y, wide, high) {
  const [left, top, w, t] = [round(x), round(y), round(wide), round(high)];
  if (state === "ended" && high > 6) return `M${left} ${round(y + high * 0.3)}h${w}v${round(high * 0.4)}h${-w}z`;
  if (high < 5 || wide < 10) return `M${left} ${top}h${w}v${t}h${-w}z`;
  const cut = Math.min(6, round(wide / 3), round(high / 2));
  if (state === "booting") return `M${left} ${top}h${round(w - cut)}l${cut} ${round(t / 2)}l${-cut} ${round(t / 2)}h${round(cut - w)}z`;
  if (state === "planned") return `M${left} ${top}h${w}v${t}h${-w}l${cut} ${round(-t / 2)}z`;
  return `M${left} ${top}h${w}v${t}h${-w}z`;
}

/** @param {Bar} bar @param {number} x @param {number} y @param {number} wide @param {number} high @param {string} ground What it lies on. */
function label(bar, x, y, wide, high, ground) {
  const from = Math.max(0, bar.state === "planned" ? 8 : 4);
  const words = bar.state === "booting" ? "boots" : bar.state === "local" ? "its own" : `${bar.name || bar.job}${(bar.tasks ?? 1) > 1 ? ` ×${bar.tasks}` : ""}`;
  return svg("text", { class: `gantt-label on-${ground}`, x: round(x + from), y: round(y + high / 2 + 4), data: { bar: bar.id } }, short(words, Math.floor((wide - from - 2) / 6.4)));
}

/** The name of a lane, and what it is. @param {Lane} lane @returns {[string, string]} */
export function laneWords(lane) {
  const hosts = Object.values(lane.members ?? {}).reduce((sum, count) => sum + count, 0);
  const each = lane.gpus_per_node ?? 0;
  const size = each ? `${hosts > 1 ? `${hosts} × ` : ""}${each} ${lane.model || "GPUs"}` : hosts > 1 ? `${hosts} hosts` : "CPU only";
  const words = [lane.offer ? "to rent" : "", size, lane.shared ? "shared" : "", lane.market && lane.market !== "owned" ? lane.market : "", lane.closed ?? ""];
  return [lane.offer || (lane.lease ? `${lane.site} (rented)` : `${lane.site}/${lane.pool}`), words.filter(Boolean).join(", ")];
}

/** @param {string} text @param {number} letters */
const short = (text, letters) => (text.length <= letters ? text : letters < 3 ? "" : `${text.slice(0, letters - 1)}…`);
/** @param {number} value */
const round = (value) => Math.round(value * 10) / 10;
