// The screen of a terminal (xterm, as most programs know it): cells, a cursor, a region that scrolls, a second screen for editors, and what has scrolled away.
//
// It knows no page: a program's output goes in, rows of cells are there to be drawn. All that a program may ask for is bounded by the size of the screen, so
// huge numbers cost no more than small ones; and what many short requests may have filled together is bounded by how much is written. It never answers with anything that a program has written, as titles would be.
import { Escapes } from "./escapes.js";
import { numbers, PLAIN, restyled } from "./sgr.js";
import { combines, isUnseen, isWide } from "./widths.js";

/** @typedef {import("./sgr.js").Style} Style */
/** @typedef {{x: number, y: number, style: Style, origin: boolean, graphics: boolean[], shifted: number}} Place Where the cursor is, and how it writes. */

/** Least and most columns and rows. */
export const COLUMNS = /** @type {const} */ ([20, 400]);
export const ROWS = /** @type {const} */ ([4, 200]);
const HISTORY = 1000;
const SPARE = 100;
const MARKS = 8;
const HEARD = 1000;
const MOST_ANSWERS = 32;
/** Cells that each letter of output may have filled for it, beside one whole screen; programs that draw ask for far less. */
const FILLED_EACH = 32;
/** What a new row costs, in cells. */
const NEW_ROW = 16;
const TAB = 8;
const MODES = { cursor: true, wrap: true, origin: false, insert: false, newline: false, arrows: false, bracketed: false, mouse: 0, sgrMouse: false };
/** What DEC's set of line graphics has for the letters from ` to ~. */
const GRAPHICS = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";

/** A line of cells. A cell right of a wide letter is empty; what is right of the last one is blank. */
export class Row {
  constructor() {
    /** @type {string[]} */
    this.cells = [];
    /** @type {Style[]} */
    this.styles = [];
    /** The next row goes on with the same line. */
    this.wrapped = false;
    /** It differs from what was last drawn. */
    this.changed = true;
  }

  /** The row as text, without blanks at its end. */
  get text() {
    return this.cells.join("").trimEnd();
  }

  /** Make it reach to a column. @param {number} column @param {Style} style */
  reach(column, style = PLAIN) {
    while (this.cells.length < column) {
      this.cells.push(" ");
      this.styles.push(style);
    }
  }

  /** Blanks from one column to before another. @param {number} from @param {number} to @param {Style} style */
  blank(from, to, style) {
    this.changed = true;
    this.#whole(from);
    this.#whole(to);
    if (to >= this.cells.length && style.bg < 0) {
      this.cells.length = Math.min(this.cells.length, from);
      this.styles.length = this.cells.length;
      return;
    }
    this.reach(to);
    this.cells.fill(" ", from, to);
    this.styles.fill(style, from, to);
  }

  /** A wide letter that would be cut before that column is blanked. @param {number} column */
  #whole(column) {
    if (this.cells[column] !== "" || column < 1) return;
    this.cells[column - 1] = " ";
    this.cells[column] = " ";
  }

  /** Put letters there that take a cell each. @param {number} column @param {string} text @param {Style} style */
  write(column, text, style) {
    this.changed = true;
    this.reach(column);
    this.#whole(column);
    this.#whole(column + text.length);
    for (let at = 0; at < text.length; at += 1) {
      this.cells[column + at] = text.charAt(at);
      this.styles[column + at] = style;
    }
  }

  /** Put a letter there. @param {number} column @param {string} letter @param {Style} style @param {boolean} wide */
  put(column, letter, style, wide) {
    this.changed = true;
    this.reach(column);
    this.#whole(column);
    if (this.cells[column + 1] === "") this.cells[column + 1] = " ";
    this.cells[column] = letter;
    this.styles[column] = style;
    if (!wide) return;
    if (this.cells[column + 2] === "") this.cells[column + 2] = " ";
    this.cells[column + 1] = "";
    this.styles[column + 1] = style;
  }
}

/** What most output is: no letter of it is wide, or a mark. */
const USUAL = /^[ -~]*$/;

export class Screen {
  /** What plain sequences do, by their last letter: of a screen, the first number, the same at least 1, and all. @type {Record<string, (on: Screen, first: number, count: number, all: number[][]) => unknown>} */
  static #ACTS = {
    "@": (on, _first, count) => on.#shift(count),
    A: (on, _first, count) => on.#climb(-count),
    B: (on, _first, count) => on.#climb(count),
    C: (on, _first, count) => on.#go(on.x + count, on.y),
    D: (on, _first, count) => on.#go(on.x - count, on.y),
    E: (on, _first, count) => (on.#climb(count), on.#go(0, on.y)),
    F: (on, _first, count) => (on.#climb(-count), on.#go(0, on.y)),
    G: (on, _first, count) => on.#go(count - 1, on.y),
    H: (on, _first, count, all) => on.#address(Math.max(1, all[1]?.[0] ?? 1), count),
    I: (on, _first, count) => on.#tab(count),
    J: (on, first) => on.#erase(first),
    K: (on, first) => on.#clear(on.row, first),
    L: (on, _first, count) => on.#inRegion() && (on.#scroll(on.y, -count), on.#go(0, on.y)),
    M: (on, _first, count) => on.#inRegion() && (on.#scroll(on.y, count), on.#go(0, on.y)),
    P: (on, _first, count) => on.#cut(count),
    S: (on, _first, count) => on.#scroll(on.top, count),
    T: (on, _first, count) => on.#scroll(on.top, -count),
    X: (on, _first, count) => on.row.blank(on.x, Math.min(on.columns, on.x + count), on.#ground),
    Z: (on, _first, count) => on.#tab(-count),
    b: (on, _first, count) => on.#again(count),
    c: (on, first) => first === 0 && on.#tell("\u001b[?62;22c"),
    d: (on, _first, count) => on.#address(on.x + 1, count),
    g: (on, first) => (first === 3 ? (on.tabs = new Set()) : on.#stops().delete(on.x)),
    h: (on, first) => on.#mode(first, true),
    l: (on, first) => on.#mode(first, false),
    m: (on, _first, _count, all) => (on.style = restyled(on.style, all)),
    n: (on, first) => (first === 6 ? on.#tell(`\u001b[${on.y + 1};${on.x + 1}R`) : first === 5 && on.#tell("\u001b[0n")),
    r: (on, _first, count, all) => on.#margins(count, all[1]?.[0] || on.height),
    s: (on) => (on.saved = on.#place()),
    u: (on) => on.#restore(),
  };
  /** Other names of the same. @type {Record<string, string>} */
  static #SAME = { a: "C", e: "B", f: "H", j: "D", k: "A", "`": "G" };

  /** @type {Row[]} */
  rows = [];
  /** Rows that have scrolled away, oldest first. @type {Row[]} */
  history = [];
  /** What the usual screen had, while the second one is shown. @type {{rows: Row[], saved: Place} | null} */
  other = null;
  x = 0;
  y = 0;
  /** The cursor is behind the last column: the next letter begins a new row. */
  pending = false;
  style = PLAIN;
  /** First and last row of the region that scrolls. */
  top = 0;
  bottom = 0;
  modes = MODES;
  /** Whether the two sets of letters are graphics, and which of them is in use. */
  graphics = [false, false];
  shifted = 0;
  /** The last letter, to be repeated. */
  last = "";
  /** The newest of what was written, as text, for who listens; a reader empties it. */
  heard = "";
  /** Columns at which tabs stop, where that was changed. @type {Set<number> | null} */
  tabs = null;
  /** @type {Place} */
  saved = this.#place();

  /**
   * @param {number} columns
   * @param {number} rows
   * @param {(text: string) => void} [answer] Takes what a program asked for, such as where the cursor is.
   */
  constructor(columns, rows, answer = () => {}) {
    this.answer = answer;
    this.answers = 0;
    /** Cells that may yet be filled without being written, in this part of the output. */
    this.left = 0;
    this.columns = between(columns, COLUMNS);
    this.height = between(rows, ROWS);
    this.parser = new Escapes({
      print: (text) => this.#print(text),
      control: (code) => this.#control(code),
      escape: (between, final) => this.#escape(between, final),
      sequence: (marker, given, between, final) => this.#sequence(marker, given, between, final),
    });
    this.#reset();
  }

  /** As a terminal is when it is switched on. */
  #reset() {
    this.rows = this.#fresh();
    this.other = null;
    this.x = this.y = this.top = this.shifted = 0;
    this.pending = false;
    this.style = PLAIN;
    this.bottom = this.height - 1;
    this.modes = { ...MODES };
    this.graphics = [false, false];
    this.saved = this.#place();
    this.tabs = null;
  }

  #fresh() {
    return Array.from({ length: this.height }, () => new Row());
  }

  /** @returns {Place} */
  #place() {
    return { x: this.x, y: this.y, style: this.style, origin: this.modes.origin, graphics: [...this.graphics], shifted: this.shifted };
  }

  /** The row of the cursor. */
  get row() {
    return /** @type {Row} */ (this.rows[this.y]);
  }

  /** Whether an editor or a pager has the screen for itself. */
  get alternate() {
    return this.other !== null;
  }

  /** @param {string} text What the program writes next. */
  write(text) {
    this.answers = 0;
    this.left = this.columns * this.height + FILLED_EACH * text.length;
    this.parser.write(text);
  }

  /** Another size: rows are cut, not broken anew, as programs draw again. @param {number} columns @param {number} rows */
  resize(columns, rows) {
    this.columns = between(columns, COLUMNS);
    this.height = between(rows, ROWS);
    if (this.other) {
      const { saved } = this.other;
      const lost = this.#lost(this.other.rows, saved.y, true);
      this.other = { rows: this.#fitted(this.other.rows.slice(lost)), saved: { ...saved, y: saved.y - lost } };
    }
    const lost = this.#lost(this.rows, this.y, !this.other);
    this.rows = this.#fitted(this.rows.slice(lost));
    this.top = 0;
    this.bottom = this.height - 1;
    this.#go(this.x, this.y - lost);
  }

  /** How many rows leave at the top, for that of the cursor to stay; those below it go first. @param {Row[]} rows @param {number} y @param {boolean} kept They are history then. */
  #lost(rows, y, kept) {
    const lost = Math.max(0, y + 1 - this.height);
    if (kept) this.#keep(rows.slice(0, lost));
    return lost;
  }

  /** @param {Row[]} rows */
  #fitted(rows) {
    const found = rows.slice(0, this.height);
    for (const row of found) if (row.cells.length > this.columns) row.blank(this.columns, row.cells.length, PLAIN);
    while (found.length < this.height) found.push(new Row());
    return found;
  }

  /** @param {Row[]} rows */
  #keep(rows) {
    this.history.push(...rows);
    // Many at once, as each time moves all that stay.
    if (this.history.length > HISTORY) this.history.splice(0, this.history.length - HISTORY + SPARE);
  }

  /** @param {string} text */
  #print(text) {
    this.heard = (this.heard + text).slice(-HEARD);
    if (!this.graphics[this.shifted] && !this.modes.insert && USUAL.test(text)) return this.#run(text);
    for (const letter of text) {
      const code = letter.codePointAt(0) ?? 0;
      if (code >= 0xad && isUnseen(letter)) continue;
      if (code >= 0x300 && combines(letter)) this.#combine(letter);
      else if (this.graphics[this.shifted] && code >= 0x60 && code <= 0x7e) this.#put(GRAPHICS.charAt(code - 0x60), false);
      else this.#put(letter, code >= 0x1100 && isWide(code, letter));
    }
  }

  /** Usual letters, a row at a time. @param {string} text */
  #run(text) {
    let from = 0;
    while (from < text.length) {
      // The last column has rules of its own, and so has a line that does not wrap.
      const room = this.pending ? 0 : this.columns - 1 - this.x;
      const part = text.slice(from, from + Math.max(1, room));
      if (room > 0) {
        this.row.write(this.x, part, this.style);
        this.x += part.length;
        this.last = part.charAt(part.length - 1);
      } else this.#put(part, false);
      from += part.length;
    }
  }

  /** @param {string} letter @param {boolean} wide */
  #put(letter, wide) {
    const size = wide ? 2 : 1;
    if (this.pending || this.x + size > this.columns) {
      if (this.modes.wrap) {
        this.row.wrapped = true;
        this.x = 0;
        this.#feed();
      } else this.x = this.columns - size;
      this.pending = false;
    }
    const row = this.row;
    if (this.modes.insert) this.#shift(size);
    row.put(this.x, letter, this.style, wide);
    this.last = letter;
    this.x += size;
    if (this.x < this.columns) return;
    this.x = this.columns - 1;
    this.pending = true;
  }

  /** A mark on the letter before. @param {string} mark */
  #combine(mark) {
    const row = this.row;
    let at = this.pending ? this.x : this.x - 1;
    if (row.cells[at] === "") at -= 1;
    const letter = row.cells[at];
    if (letter === undefined || letter.length > MARKS) return;
    row.cells[at] = letter + mark;
    row.changed = true;
  }

  /** Room for so many cells at the cursor. @param {number} count */
  #shift(count) {
    const row = this.row;
    row.reach(this.x);
    row.blank(this.x, this.x, PLAIN);
    const more = Math.min(count, this.columns - this.x);
    row.cells.splice(this.x, 0, ...Array(more).fill(" "));
    row.styles.splice(this.x, 0, ...Array(more).fill(this.#ground));
    row.blank(this.columns, Math.max(this.columns, row.cells.length), PLAIN);
    row.changed = true;
  }

  /** How erased cells look. @returns {Style} */
  get #ground() {
    return this.style.bg < 0 ? PLAIN : { fg: -1, bg: this.style.bg, flags: 0 };
  }

  /** The same for so many rows; PLAIN, which costs nothing, where too much was asked for. @param {number} rows @returns {Style} */
  #groundOf(rows) {
    return this.style.bg >= 0 && this.#spend(rows * this.columns) ? this.#ground : PLAIN;
  }

  /** Whether so many cells may yet be filled; they are then. @param {number} cells */
  #spend(cells) {
    const may = cells <= this.left;
    if (may) this.left -= cells;
    return may;
  }

  /** @param {number} code */
  #control(code) {
    if (code === 8) this.#go(this.x - 1, this.y);
    else if (code === 9) this.#tab(1);
    else if (code >= 10 && code <= 12) {
      this.pending = false;
      if (this.modes.newline) this.x = 0;
      this.#feed();
    } else if (code === 13) this.#go(0, this.y);
    else if (code === 14 || code === 15) this.shifted = 15 - code;
  }

  /** @param {number} count Stops; below zero: back. */
  #tab(count) {
    let x = this.x;
    const step = Math.sign(count);
    for (let left = Math.min(Math.abs(count), this.columns); left > 0; left -= 1) {
      do x += step;
      while (x > 0 && x < this.columns - 1 && !(this.tabs ? this.tabs.has(x) : x % TAB === 0));
    }
    this.#go(x, this.y);
  }

  /** Down a row; at the end of the region it scrolls. */
  #feed() {
    this.heard = `${this.heard}\n`.slice(-HEARD);
    if (this.y === this.bottom) this.#scroll(this.top, 1);
    else if (this.y < this.height - 1) this.y += 1;
  }

  /** Move what is from a row to the end of the region up; below zero: down. @param {number} from @param {number} count */
  #scroll(from, count) {
    const many = Math.min(Math.abs(count), this.bottom - from + 1);
    if (many > 1 && !this.#spend(many * NEW_ROW)) return;
    const ground = this.#groundOf(many);
    const blank = Array.from({ length: many }, () => {
      const row = new Row();
      if (ground.bg >= 0) row.blank(0, this.columns, ground);
      return row;
    });
    if (count > 0) {
      const gone = this.rows.splice(from, many);
      this.rows.splice(this.bottom - many + 1, 0, ...blank);
      if (from === 0 && this.top === 0 && !this.other) this.#keep(gone);
    } else {
      this.rows.splice(this.bottom - many + 1, many);
      this.rows.splice(from, 0, ...blank);
    }
  }

  /** @param {number} x @param {number} y */
  #go(x, y) {
    this.x = Math.min(this.columns - 1, Math.max(0, x));
    this.y = Math.min(this.height - 1, Math.max(0, y));
    this.pending = false;
  }

  /** As programs count: from 1, and in the region where they asked for that. @param {number} x @param {number} y */
  #address(x, y) {
    const { origin } = this.modes;
    this.#go(x - 1, Math.min(origin ? this.bottom : this.height - 1, (origin ? this.top : 0) + Math.max(1, y) - 1));
  }

  /** Up or down, not past the margin before which it stands. @param {number} rows */
  #climb(rows) {
    const low = this.y >= this.top ? this.top : 0;
    const high = this.y <= this.bottom ? this.bottom : this.height - 1;
    this.#go(this.x, Math.min(high, Math.max(low, this.y + rows)));
  }

  /** @param {string} between @param {string} final */
  #escape(between, final) {
    if (between === "(" || between === ")") this.graphics[between === "(" ? 0 : 1] = final === "0";
    else if (between === "#" && final === "8") {
      this.#address(1, 1);
      if (!this.#spend(this.columns * this.height)) return;
      for (const row of this.rows) for (let x = 0; x < this.columns; x += 1) row.put(x, "E", PLAIN, false);
    } else if (!between) this.#single(final);
  }

  /** @param {string} final */
  #single(final) {
    if (final === "7") this.saved = this.#place();
    else if (final === "8") this.#restore();
    else if (final === "D") this.#feed();
    else if (final === "E") {
      this.#go(0, this.y);
      this.#feed();
    } else if (final === "H") this.#stops().add(this.x);
    else if (final === "M") {
      this.pending = false;
      if (this.y === this.top) this.#scroll(this.top, -1);
      else this.#climb(-1);
    } else if (final === "c") {
      this.history = [];
      this.#reset();
    }
  }

  #stops() {
    return (this.tabs ??= new Set(Array.from({ length: Math.ceil(COLUMNS[1] / TAB) }, (_, index) => index * TAB)));
  }

  #restore() {
    const { x, y, style, origin, graphics, shifted } = this.saved;
    Object.assign(this, { style, shifted, graphics: [...graphics] });
    this.modes.origin = origin;
    this.#go(x, y);
  }

  /** @param {string} marker @param {string} given @param {string} between @param {string} final */
  #sequence(marker, given, between, final) {
    const all = numbers(given);
    const first = all[0]?.[0] ?? 0;
    if (marker === "?" && !between && (final === "h" || final === "l")) for (const [mode] of all) this.#private(mode ?? 0, final === "h");
    else if (marker === ">" && final === "c") this.#tell("\u001b[>0;0;0c");
    else if (marker === "" && between === "!" && final === "p") this.#soft();
    else if (marker === "" && between === "") Screen.#ACTS[Screen.#SAME[final] ?? final]?.(this, first, Math.max(1, first), all);
  }

  /** What the program sees of the terminal by asking; so many a time that it does not flood itself. @param {string} text */
  #tell(text) {
    if (this.answers < MOST_ANSWERS) this.answer(text);
    this.answers += 1;
  }

  /** @param {number} what 0: from the cursor, 1: to it, 2: all, 3: what has scrolled away. */
  #erase(what) {
    if (what === 3) this.history = [];
    const [from, to] = what === 0 ? [this.y + 1, this.height] : what === 1 ? [0, this.y] : what === 2 ? [0, this.height] : [0, 0];
    const ground = this.#groundOf(to - from);
    for (const row of this.rows.slice(from, to)) this.#clear(row, 2, ground);
    if (what < 2) this.#clear(this.row, what);
  }

  /** @param {Row} row @param {number} what As above. @param {Style} ground */
  #clear(row, what, ground = this.#ground) {
    if (what > 2) return;
    row.blank(what === 0 ? this.x : 0, what === 1 ? this.x + 1 : this.columns, ground);
    if (what !== 1) row.wrapped = false;
  }

  /** Take out so many cells at the cursor. @param {number} count */
  #cut(count) {
    const row = this.row;
    const end = Math.min(this.columns, this.x + count);
    row.blank(this.x, Math.min(end, Math.max(this.x, row.cells.length)), PLAIN);
    row.cells.splice(this.x, end - this.x);
    row.styles.splice(this.x, end - this.x);
    if (this.style.bg >= 0) row.blank(this.columns - (end - this.x), this.columns, this.#ground);
  }

  /** The last letter once more. @param {number} count */
  #again(count) {
    const { last } = this;
    const many = Math.min(count, this.columns * this.height, this.left);
    if (!last || !this.#spend(many)) return;
    if (!this.modes.insert && USUAL.test(last)) this.#run(last.repeat(many));
    else for (let left = many; left > 0; left -= 1) this.#put(last, isWide(last.codePointAt(0) ?? 0, last));
  }

  #inRegion() {
    return this.y >= this.top && this.y <= this.bottom;
  }

  /** @param {number} top @param {number} bottom From 1. */
  #margins(top, bottom) {
    const last = Math.min(bottom, this.height);
    if (top >= last) return;
    this.top = top - 1;
    this.bottom = last - 1;
    this.#address(1, 1);
  }

  /** @param {number} mode @param {boolean} on */
  #mode(mode, on) {
    if (mode === 4) this.modes.insert = on;
    else if (mode === 20) this.modes.newline = on;
  }

  /** Modes of DEC and xterm. @param {number} mode @param {boolean} on */
  #private(mode, on) {
    const { modes } = this;
    if (mode === 1) modes.arrows = on;
    else if (mode === 6) {
      modes.origin = on;
      this.#address(1, 1);
    } else if (mode === 7) modes.wrap = on;
    else if (mode === 25) modes.cursor = on;
    else if (mode === 2004) modes.bracketed = on;
    else if (mode === 1000 || mode === 1002 || mode === 1003) modes.mouse = on ? mode : 0;
    else if (mode === 1006) modes.sgrMouse = on;
    else if (mode === 1048 && on) this.saved = this.#place();
    else if (mode === 1048) this.#restore();
    else if (mode === 47 || mode === 1047 || mode === 1049) this.#alternate(on, mode === 1049);
  }

  /** Show the second screen, or leave it. @param {boolean} on @param {boolean} saves With the cursor. */
  #alternate(on, saves) {
    if (on === this.alternate) return;
    if (on) {
      if (saves) this.saved = this.#place();
      this.other = { rows: this.rows, saved: this.saved };
      this.rows = this.#fresh();
    } else if (this.other) {
      Object.assign(this, { rows: this.other.rows, saved: this.other.saved, other: null });
      if (saves) this.#restore();
    }
    this.pending = false;
  }

  #soft() {
    Object.assign(this.modes, { cursor: true, wrap: true, origin: false, insert: false, arrows: false });
    Object.assign(this, { style: PLAIN, top: 0, bottom: this.height - 1, graphics: [false, false], shifted: 0 });
  }
}

/** @param {number} value @param {readonly [number, number]} bounds */
const between = (value, [least, most]) => Math.min(most, Math.max(least, Math.floor(value) || least));
