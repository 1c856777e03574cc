// What a log says, as text: its colours are kept, and all other control characters are shown and not obeyed.
import { numbers, PLAIN, restyled } from "./sgr.js";

/** @typedef {import("./sgr.js").Run} Run */
/** @typedef {import("./sgr.js").Style} Style */
/** @typedef {{text: string, runs: readonly Run[]}} Line A line, and the same in parts of one look each. */

/** Such as those that colour a terminal, move its cursor, or turn the direction of what follows. */
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * A text in which control characters are visible: those of ASCII as terminals write them (`^[` is escape), all others by their number.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(CONTROL, (each) => {
    const code = each.charCodeAt(0);
    if (code < 0x20) return `^${String.fromCharCode(code + 0x40)}`;
    return code === 0x7f ? "^?" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

const COLOURS = /\u001b\[([\d;:]{0,64})m/;
const LONGEST = 65536;

/** Takes a stream of text apart into lines; the last one may still grow. */
export class Lines {
  /** @param {number} most Lines that are kept: the newest. */
  constructor(most) {
    this.most = most;
    /** @type {Line[]} */
    this.lines = [];
    /** How many lines were left out before the first. */
    this.dropped = 0;
    this.open = "";
    /** How what comes next looks. */
    this.style = PLAIN;
  }

  /** @param {string} text */
  add(text) {
    const parts = (this.open + text).replaceAll("\r\n", "\n").split("\n");
    this.open = parts.pop() ?? "";
    // A line without an end is not kept whole for ever.
    if (this.open.length > LONGEST) {
      parts.push(this.open);
      this.open = "";
    }
    for (const each of parts.splice(-this.most)) {
      const [line, style] = read(each, this.style);
      this.lines.push(line);
      this.style = style;
    }
    this.dropped += parts.length;
    const many = this.lines.length - this.most;
    if (many > 0) {
      this.lines.splice(0, many);
      this.dropped += many;
    }
  }

  /** All lines, with the one that still grows. */
  all() {
    return this.open ? [...this.lines, read(this.open, this.style)[0]] : this.lines;
  }
}

/** A line, and how what comes after it looks. A line that was written over, as bars of progress are, is what it was at last. @param {string} given @param {Style} before @returns {[Line, Style]} */
function read(given, before) {
  const parts = given.replace(/\r+$/, "").split(COLOURS);
  let style = before;
  /** @type {Run[]} */
  let runs = [];
  parts.forEach((part, index) => {
    if (index % 2) style = restyled(style, numbers(part));
    else {
      const over = part.lastIndexOf("\r");
      if (over >= 0) runs = [];
      const text = visible(part.slice(over + 1));
      if (text) runs.push({ text, style });
    }
  });
  return [{ text: runs.map((each) => each.text).join(""), runs }, style];
}
