// Tables: sorted by their columns, walked through by the keyboard, paged by the server, and with rows that stay what they are while they are updated.
import { h, keyed, show } from "./dom.js";
import { number } from "./format.js";

/**
 * @template T
 * @typedef {object} Column
 * @property {string} id
 * @property {string} title
 * @property {(row: T) => import("./dom.js").Children} cell
 * @property {boolean} [numeric] Aligned right.
 * @property {(row: T) => number | string | null | undefined} [by] What it is sorted by here; left out: it is not.
 * @property {boolean} [sorted] Whether the server sorts by it.
 * @property {boolean} [wide] Left out on a narrow screen.
 * @property {boolean} [long] Has the whole width of a narrow screen.
 */

/**
 * @template T
 * @typedef {object} TableOptions
 * @property {string} caption What the table is, for those who do not see it.
 * @property {Column<T>[]} columns
 * @property {(row: T) => string} keyOf
 * @property {import("./dom.js").Children} [empty] Shown without rows: say what to do next.
 * @property {{id: string, down: boolean} | null} [order] By which column it is sorted at first.
 * @property {(order: {id: string, down: boolean}) => void} [onOrder] Of columns that the server sorts.
 * @property {(row: T) => string} [tone] A class of the row.
 * @property {number} [few] So many rows are shown until all are asked for; left out: all.
 */

/** @template T */
export class Table {
  /** What rows were filled with. @type {WeakMap<Element, string>} */
  #told = new WeakMap();

  /** @param {TableOptions<T>} options */
  constructor(options) {
    this.options = options;
    this.order = options.order ?? null;
    /** @type {readonly T[]} */
    this.rows = [];
    this.head = h("tr", { role: "row" });
    this.body = h("tbody", { role: "rowgroup" });
    this.body.addEventListener("keydown", (event) => this.#walk(event));
    this.table = h(
      "table",
      { role: "table" },
      h("caption", { class: "unseen" }, options.caption),
      h("thead", { role: "rowgroup" }, this.head),
      this.body,
    );
    this.none = h("div", { class: "empty", hidden: true }, options.empty ?? "Nothing here.");
    this.all = options.few === undefined;
    this.more = h("button", { type: "button", hidden: true, on: { click: () => ((this.all = true), this.show(this.rows)) } });
    this.element = h("div", { class: "table" }, this.table, this.none, this.more);
    this.#title();
  }

  /** Show these rows. @param {readonly T[]} rows */
  show(rows) {
    this.rows = rows;
    const { columns, keyOf } = this.options;
    const sorted = columns.find((each) => each.id === this.order?.id);
    const by = sorted?.by;
    const shown = by && this.order ? [...rows].sort((one, other) => (this.order?.down ? -1 : 1) * compare(by(one), by(other))) : rows;
    keyed(
      this.body,
      this.all ? shown : shown.slice(0, this.options.few),
      keyOf,
      (row) => this.#fill(h("tr", { role: "row" }), row),
      (element, row) => this.#fill(element, row),
    );
    this.table.hidden = rows.length === 0;
    this.none.hidden = rows.length > 0;
    this.more.hidden = this.all || rows.length <= (this.options.few ?? 0);
    this.more.textContent = `Show all ${number(rows.length)}`;
  }

  #title() {
    show(
      this.head,
      this.options.columns.map((column) => {
        const here = this.order?.id === column.id;
        const kind = classOf(column);
        const sort = here ? (this.order?.down ? "descending" : "ascending") : null;
        const can = column.by || column.sorted;
        const inside = can ? h("button", { type: "button", class: "sort", on: { click: () => this.#sort(column) } }, column.title) : column.title;
        return h("th", { scope: "col", role: "columnheader", class: kind, "aria-sort": sort }, inside);
      }),
    );
  }

  /** @param {Column<T>} column */
  #sort(column) {
    this.order = { id: column.id, down: this.order?.id === column.id ? !this.order.down : Boolean(column.numeric) };
    const title = document.activeElement?.textContent;
    this.#title();
    for (const each of this.head.querySelectorAll("button")) if (each.textContent === title) each.focus();
    if (column.sorted) this.options.onOrder?.(this.order);
    else this.show(this.rows);
  }

  /**
   * Fill a row, if it is not as it was; a cell is made anew only if it says something else, so that links keep their focus.
   * @param {HTMLTableRowElement} element
   * @param {T} row
   */
  #fill(element, row) {
    const { columns, tone } = this.options;
    const told = JSON.stringify(row);
    if (this.#told.get(element) === told) return element;
    this.#told.set(element, told);
    element.className = tone?.(row) ?? "";
    columns.forEach((column, index) => {
      const kind = classOf(column);
      const made = h(index ? "td" : "th", { role: index ? "cell" : "rowheader", scope: index ? null : "row", class: kind, data: { label: column.title } }, column.cell(row));
      const old = element.children[index];
      if (!old) element.append(made);
      else if (!old.isEqualNode(made)) {
        const focused = old.contains(document.activeElement);
        old.replaceWith(made);
        if (focused) /** @type {HTMLElement | null} */ (made.querySelector("a,button,input"))?.focus();
      }
    });
    return element;
  }

  /** Up and down between the rows, by what can be followed in them. @param {KeyboardEvent} event */
  #walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = /** @type {HTMLElement} */ (event.target).closest("tr");
    if (!step || !row || /** @type {HTMLElement} */ (event.target).matches("input,select,textarea")) return;
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    const target = /** @type {HTMLElement | null} */ (next?.querySelector("a,button"));
    if (target) {
      event.preventDefault();
      target.focus();
    }
  }
}

/**
 * Pages that the server gives: it says where the next one begins, and where earlier ones began is kept here.
 */
export class Pager {
  /** @param {() => void} onMove */
  constructor(onMove) {
    /** @type {(string | null)[]} */
    this.begun = [null];
    /** @type {string | null} */
    this.next = null;
    /** Another page is asked for: until it is there, where its neighbours begin is not known. */
    const moved = () => {
      this.back.disabled = this.on.disabled = true;
      onMove();
    };
    this.back = h("button", { type: "button", on: { click: () => (this.begun.pop(), moved()) } }, "Back");
    this.on = h("button", { type: "button", on: { click: () => (this.begun.push(this.next), moved()) } }, "Next");
    this.said = h("span", { class: "faint", role: "status" });
    this.element = h("div", { class: "pager single" }, this.said, this.back, this.on);
  }

  /** Where the present page begins: for the query. */
  get after() {
    return this.begun[this.begun.length - 1] ?? null;
  }

  /** Begin again: another filter, another order. */
  reset() {
    this.begun = [null];
  }

  /** @param {string | null} next @param {string} said */
  show(next, said) {
    this.next = next;
    this.back.disabled = this.begun.length < 2;
    this.on.disabled = next === null;
    this.said.textContent = said;
    this.element.classList.toggle("single", this.begun.length < 2 && next === null);
  }
}

/** @template T @param {Column<T>} column */
function classOf(column) {
  return ["numeric", "wide", "long"].filter((each) => column[/** @type {"numeric" | "wide" | "long"} */ (each)]).join(" ") || null;
}

/** @typedef {number | string | null | undefined} Sorted */
/** @param {Sorted} one @param {Sorted} other */
function compare(one, other) {
  const missing = Number(one === null || one === undefined) - Number(other === null || other === undefined);
  if (missing || one === null || one === undefined || other === null || other === undefined) return missing;
  return one < other ? -1 : one > other ? 1 : 0;
}
