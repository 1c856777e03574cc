// What a log says, as text: control characters are shown and not obeyed.

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

/** Takes a stream of text apart into lines; the last one may still grow. */
export class Lines {
  /** @param {number} most Lines that are kept: the newest. */
  constructor(most) {
    this.most = most;
    /** @type {string[]} */
    this.lines = [];
    /** How many lines were left out before the first. */
    this.dropped = 0;
    this.open = "";
  }

  /** @param {string} text */
  add(text) {
    const parts = (this.open + text).replaceAll("\r\n", "\n").split("\n");
    this.open = parts.pop() ?? "";
    // A line without an end is not kept whole for ever.
    if (this.open.length > 65536) {
      parts.push(this.open);
      this.open = "";
    }
    for (const each of parts) this.lines.push(visible(each));
    const many = this.lines.length - this.most;
    if (many > 0) {
      this.lines.splice(0, many);
      this.dropped += many;
    }
  }

  /** All lines, with the one that still grows. */
  all() {
    return this.open ? [...this.lines, visible(this.open)] : this.lines;
  }
}
