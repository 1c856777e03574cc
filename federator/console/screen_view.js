// Draws the screen of a terminal, takes keys and pastes, and says how many cells have room. Rows that have not changed are not drawn again.
import { h, show } from "./dom.js";
import { pasted, sentFor } from "./keys.js";
import { heldButton, mouseSent } from "./mouse.js";
import { Screen } from "./screen.js";
import { alike, painted, PLAIN } from "./sgr.js";

/** @typedef {import("./screen.js").Row} Row */

const PROBE = 20;
const HEARD_MS = 400;
const MOST_PASTED = 2 ** 20;
const WHEEL_PX = 30;
/** While more rows than this come at once, what scrolls away is drawn only when that pauses. */
const FLOOD = 200;
const PAUSE_MS = 150;
/** Letters that every font of fixed width has in that width; all others get a cell of their own. */
const EVEN = /^[\u0020-\u024f\u2500-\u259f]$/;

export class ScreenView {
  /** @param {{label: string, send: (text: string) => void, resized: (columns: number, rows: number) => void, leave: () => void}} options */
  constructor(options) {
    this.options = options;
    this.screen = new Screen(80, 24, options.send);
    /** @type {WeakMap<Row, HTMLElement>} */
    this.elements = new WeakMap();
    /** @type {Row | null} */
    this.under = null;
    this.frame = 0;
    this.listener = 0;
    this.wheeled = 0;
    /** What was sent last for a move of the mouse. */
    this.pointed = "";
    this.written = 0;
    this.later = 0;
    this.probe = h("span", { class: "probe", "aria-hidden": "true" }, "0".repeat(PROBE));
    this.rows = h("div", { class: "screen-rows" });
    this.keys = h("textarea", { class: "screen-keys", "aria-label": options.label, autocapitalize: "off", autocomplete: "off", autocorrect: "off", spellcheck: "false", rows: 1 });
    this.said = h("p", { class: "unseen", "aria-live": "polite" });
    this.element = h("div", { class: "screen", tabindex: -1, role: "group", "aria-label": `${options.label}: its screen` }, this.probe, this.rows, this.keys, this.said);
    this.#listen();
    this.watch = new ResizeObserver(() => this.#fit());
    this.watch.observe(this.element);
  }

  /** A new screen of the same size. */
  clear() {
    this.screen = new Screen(this.screen.columns, this.screen.height, this.options.send);
    this.redraw();
  }

  /** @param {string} text What the program writes. */
  write(text) {
    this.screen.write(text);
    this.written = performance.now();
    this.redraw();
    this.listener ||= window.setTimeout(() => this.#speak(), HEARD_MS);
  }

  focus() {
    this.keys.focus({ preventScroll: true });
  }

  close() {
    this.watch.disconnect();
    cancelAnimationFrame(this.frame);
    window.clearTimeout(this.listener);
    window.clearTimeout(this.later);
  }

  /** Draw again, in the next frame. */
  redraw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.#draw();
    });
  }

  #fit() {
    const { width, height } = this.probe.getBoundingClientRect();
    if (!width || !height) return;
    const style = getComputedStyle(this.element);
    const aside = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
    const above = parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
    const { columns, height: high } = this.screen;
    this.screen.resize(((this.element.clientWidth - aside) * PROBE) / width, (this.element.clientHeight - above) / height);
    if (columns !== this.screen.columns || high !== this.screen.height) this.options.resized(this.screen.columns, this.screen.height);
    this.element.scrollTop = this.element.scrollHeight;
    this.redraw();
  }

  #draw() {
    const { screen, element } = this;
    const pinned = element.scrollTop + element.clientHeight >= element.scrollHeight - 8;
    const newest = screen.history[screen.history.length - FLOOD];
    const flooded = pinned && newest && !this.elements.has(newest) && performance.now() - this.written < PAUSE_MS;
    window.clearTimeout(this.later);
    if (flooded) this.later = window.setTimeout(() => this.redraw(), PAUSE_MS);
    const rows = screen.alternate || flooded ? screen.rows : [...screen.history, ...screen.rows];
    const under = screen.modes.cursor ? screen.row : null;
    if (this.under) this.under.changed = true;
    if (under) under.changed = true;
    this.under = under;
    const kept = new Set(rows.map((row) => this.elements.get(row)));
    for (const child of [...this.rows.children]) if (!kept.has(/** @type {HTMLElement} */ (child))) child.remove();
    let next = this.rows.firstChild;
    for (const row of rows) {
      let made = this.elements.get(row);
      if (!made) this.elements.set(row, (made = h("div", { class: "screen-row" })));
      if (next === made) next = made.nextSibling;
      else this.rows.insertBefore(made, next);
      if (row.changed) this.#fill(made, row, row === under ? screen.x : -1);
      row.changed = false;
    }
    if (pinned) element.scrollTop = element.scrollHeight;
    this.#place();
  }

  /** @param {HTMLElement} element @param {Row} row @param {number} cursor Its column; -1: elsewhere. */
  #fill(element, row, cursor) {
    element.classList.toggle("wrapped", row.wrapped);
    /** @type {(Node | string)[]} */
    const parts = [];
    let text = "";
    let style = PLAIN;
    const flush = () => {
      if (text) parts.push(painted(text, style));
      text = "";
    };
    for (let column = 0; column < Math.max(row.cells.length, cursor + 1); column += 1) {
      const letter = row.cells[column] ?? " ";
      if (letter === "") continue;
      const own = row.styles[column] ?? PLAIN;
      const wide = row.cells[column + 1] === "";
      const here = column === cursor || (wide && column + 1 === cursor);
      if (!alike(own, style) || here || wide || !EVEN.test(letter)) flush();
      style = own;
      if (here || wide || !EVEN.test(letter)) parts.push(painted(letter, own, `cell${wide ? " two" : ""}${here ? " cursor" : ""}`));
      else text += letter;
    }
    flush();
    show(element, parts);
  }

  /** The place of the cursor, where an input method shows what it composes. */
  #place() {
    const { width, height } = this.probe.getBoundingClientRect();
    const above = this.rows.children.length - this.screen.height;
    this.keys.style.setProperty("left", `${this.rows.offsetLeft + (this.screen.x * width) / PROBE}px`);
    this.keys.style.setProperty("top", `${this.rows.offsetTop + (above + this.screen.y) * height}px`);
  }

  /** Tell who does not see it what was written; of an editor, the row of the cursor. */
  #speak() {
    this.listener = 0;
    const { screen } = this;
    const told = screen.alternate ? screen.row.text : screen.heard.replace(/\n{2,}/g, "\n").trim();
    screen.heard = "";
    if (told && told !== this.said.textContent) this.said.textContent = told;
  }

  #listen() {
    const { element, keys, options } = this;
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("mouseup", () => this.#chosen() || this.focus());
    element.addEventListener("copy", (event) => {
      if (!this.#chosen()) return;
      event.clipboardData?.setData("text/plain", this.#copied());
      event.preventDefault();
    });
    element.addEventListener("paste", (event) => {
      event.preventDefault();
      const text = event.clipboardData?.getData("text/plain") ?? "";
      if (text) options.send(pasted(text.slice(0, MOST_PASTED), this.screen.modes.bracketed));
    });
    keys.addEventListener("input", (event) => /** @type {InputEvent} */ (event).isComposing || this.#typed());
    keys.addEventListener("compositionend", () => this.#typed());
    element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    element.addEventListener("mousedown", (event) => {
      if (this.#mouse("down", event, event.button)) window.addEventListener("mouseup", (up) => this.#mouse("up", up, up.button), { once: true });
    });
    element.addEventListener("mousemove", (event) => this.#mouse("move", event, heldButton(event.buttons)));
    element.addEventListener("contextmenu", (event) => this.screen.modes.mouse && !event.shiftKey && event.preventDefault());
  }

  /** Tell a program that asked for it of the mouse; Shift leaves the mouse to the page. @param {import("./mouse.js").Kind} kind @param {MouseEvent} event @param {number} button */
  #mouse(kind, event, button) {
    if (event.shiftKey) return false;
    const told = mouseSent(kind, button, this.#cell(event), this.screen.modes, event);
    if (!told || (kind === "move" && told === this.pointed)) return Boolean(told);
    this.pointed = told;
    event.preventDefault();
    this.options.send(told);
    return true;
  }

  /** Column and row of the screen. @param {MouseEvent} event @returns {[number, number]} */
  #cell({ clientX, clientY }) {
    const { width, height } = this.probe.getBoundingClientRect();
    const { left, top } = this.rows.getBoundingClientRect();
    const above = this.rows.children.length - this.screen.height;
    const column = Math.floor(((clientX - left) * PROBE) / width);
    const row = Math.floor((clientY - top) / height) - above;
    return [Math.min(this.screen.columns - 1, Math.max(0, column)), Math.min(this.screen.height - 1, Math.max(0, row))];
  }

  #typed() {
    if (this.keys.value) this.options.send(this.keys.value.replaceAll("\n", "\r"));
    this.keys.value = "";
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { key, ctrlKey, shiftKey } = event;
    if (event.isComposing || key === "Process") return;
    const letter = ctrlKey ? key.toLowerCase() : "";
    if (shiftKey && letter === "l") {
      event.preventDefault();
      this.options.leave();
    } else if (letter === "c" && (shiftKey || this.#chosen())) {
      event.preventDefault();
      document.execCommand("copy");
      document.getSelection()?.removeAllRanges();
    } else if (shiftKey && (letter === "v" || key === "Insert")) {
      this.focus();
    } else if (shiftKey && (key === "PageUp" || key === "PageDown") && !this.screen.alternate) {
      event.preventDefault();
      this.element.scrollBy(0, (key === "PageUp" ? -0.9 : 0.9) * this.element.clientHeight);
    } else {
      const sent = sentFor(event, this.screen.modes.arrows);
      if (document.activeElement !== this.keys) this.focus();
      if (sent === null) return;
      event.preventDefault();
      this.element.scrollTop = this.element.scrollHeight;
      this.options.send(sent);
    }
  }

  /** A pager or an editor scrolls by arrows. @param {WheelEvent} event */
  #wheel(event) {
    const { mouse, sgrMouse } = this.screen.modes;
    const asked = Boolean(mouse && sgrMouse);
    if ((!this.screen.alternate && !asked) || event.shiftKey || event.ctrlKey) return;
    event.preventDefault();
    this.wheeled += event.deltaY;
    const rows = Math.trunc(this.wheeled / WHEEL_PX);
    this.wheeled -= rows * WHEEL_PX;
    if (asked) {
      for (let turn = 0; turn < Math.min(10, Math.abs(rows)); turn++) this.options.send(mouseSent("wheel", rows < 0 ? 0 : 1, this.#cell(event), this.screen.modes, event));
      return;
    }
    const arrow = sentFor({ key: rows < 0 ? "ArrowUp" : "ArrowDown" }, this.screen.modes.arrows) ?? "";
    if (rows) this.options.send(arrow.repeat(Math.min(10, Math.abs(rows))));
  }

  /** Whether text of the screen is selected. */
  #chosen() {
    const chosen = document.getSelection();
    return Boolean(chosen && !chosen.isCollapsed && chosen.rangeCount && chosen.getRangeAt(0).intersectsNode(this.rows));
  }

  /** What is selected: a line that goes on in the next row stays one. */
  #copied() {
    const chosen = /** @type {Selection} */ (document.getSelection()).getRangeAt(0);
    let text = "";
    for (const row of this.rows.children) {
      if (!chosen.intersectsNode(row)) continue;
      const part = document.createRange();
      part.selectNodeContents(row);
      if (row.contains(chosen.startContainer)) part.setStart(chosen.startContainer, chosen.startOffset);
      if (row.contains(chosen.endContainer)) part.setEnd(chosen.endContainer, chosen.endOffset);
      const wrapped = row.classList.contains("wrapped");
      text += wrapped ? part.toString() : `${part.toString().trimEnd()}\n`;
    }
    return text.replace(/\n$/, "");
  }
}
