// Takes what a program writes to its terminal apart: text, control characters, and escape sequences (ECMA-48). It obeys none; a screen does.
//
// A sequence may come in parts, and may never end: what is kept of one is bounded, and what is too long is left out whole.

/**
 * @typedef {object} Listener
 * @property {(text: string) => void} print Letters; no control character is among them.
 * @property {(code: number) => void} control Such as a line feed.
 * @property {(between: string, final: string) => void} escape `ESC ( 0` is `"("` and `"0"`.
 * @property {(marker: string, given: string, between: string, final: string) => void} sequence `CSI ? 25 h` is `"?"`, `"25"`, `""` and `"h"`.
 */

const LONGEST = 256;
/** Titles, links and pictures are skipped to their end, or this far. */
const LONGEST_STRING = 65536;
const ESC = 0x1b;
const CONTROLS = /[\u0000-\u001f\u007f-\u009f]/g;
const CSI = /^([<=>?]?)([\d;:]*)([ -/]*)$/;
const STRINGS = "]P_^X";

export class Escapes {
  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    /** @type {"text" | "escape" | "sequence" | "string"} */
    this.state = "text";
    this.kept = "";
    this.skipped = 0;
    this.endsNext = false;
  }

  /** @param {string} text The next part of what it writes. */
  write(text) {
    let at = 0;
    while (at < text.length) {
      if (this.state === "text") at = this.#text(text, at);
      else {
        this.#step(text.charAt(at), text.charCodeAt(at));
        at += 1;
      }
    }
  }

  /** Letters up to the next control character, and that. @param {string} text @param {number} from */
  #text(text, from) {
    CONTROLS.lastIndex = from;
    const found = CONTROLS.exec(text);
    const end = found ? found.index : text.length;
    if (end > from) this.listener.print(text.slice(from, end));
    if (found) this.#control(text.charCodeAt(end));
    return found ? end + 1 : end;
  }

  /** @param {number} code */
  #control(code) {
    if (code === ESC) this.#begin("escape");
    else if (code < 0x20) this.listener.control(code);
  }

  /** @param {Escapes["state"]} state */
  #begin(state) {
    this.state = state;
    this.kept = "";
    this.skipped = 0;
    this.endsNext = false;
  }

  /** One letter inside of a sequence. @param {string} letter @param {number} code @returns {void} */
  #step(letter, code) {
    if (this.state === "string") return this.#skip(letter, code);
    if (code === 0x18 || code === 0x1a) return this.#begin("text");
    if (code < 0x20) return this.#control(code);
    if (code > 0x7e) return this.#begin("text");
    if (this.state === "escape") return this.#escape(letter, code);
    if (code < 0x40) {
      if (this.kept.length <= LONGEST) this.kept += letter;
      return undefined;
    }
    const found = this.kept.length <= LONGEST && CSI.exec(this.kept);
    this.#begin("text");
    if (found) this.listener.sequence(found[1] ?? "", found[2] ?? "", found[3] ?? "", letter);
    return undefined;
  }

  /** @param {string} letter @param {number} code */
  #escape(letter, code) {
    if (!this.kept && letter === "[") return this.#begin("sequence");
    if (!this.kept && STRINGS.includes(letter)) return this.#begin("string");
    if (code < 0x30) {
      if (this.kept.length < 4) this.kept += letter;
      return undefined;
    }
    const between = this.kept;
    this.#begin("text");
    return this.listener.escape(between, letter);
  }

  /** @param {string} letter @param {number} code @returns {void} */
  #skip(letter, code) {
    this.skipped += 1;
    if (this.endsNext && letter !== "\\") {
      this.#begin("escape");
      return this.#step(letter, code);
    }
    if (this.endsNext || code === 7 || code === 0x18 || code === 0x1a || code === 0x9c || this.skipped > LONGEST_STRING) return this.#begin("text");
    this.endsNext = code === ESC;
    return undefined;
  }
}
