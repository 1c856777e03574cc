// Bars of parts: how much of a whole is what. Parts differ in colour and in pattern, and the whole says itself in words.
import { number } from "./format.js";
import { h, svg } from "./dom.js";

/** @typedef {"busy" | "free" | "held" | "draining" | "sick" | "spent" | "committed" | "over"} Part */
/** @typedef {{part: Part, size: number, word: string}} Piece */

const HEIGHT = 14;
const PATTERNS = /** @type {const} */ (["held", "draining", "sick", "committed"]);

/** Patterns that bars refer to; once on a page. */
export function patterns() {
  const lines = { held: "M0 6 6 0", draining: "M0 3H6", sick: "M0 0 6 6M0 6 6 0", committed: "M0 6 6 0" };
  return svg(
    "svg",
    { class: "unseen", width: 0, height: 0, "aria-hidden": "true" },
    svg(
      "defs",
      null,
      PATTERNS.map((part) => svg("pattern", { id: `part-${part}`, width: 6, height: 6, patternUnits: "userSpaceOnUse" }, svg("rect", { width: 6, height: 6, class: `part-${part} ground` }), svg("path", { d: lines[part], class: `part-${part} stroke` }))),
    ),
  );
}

/**
 * A bar of pieces out of a whole, with marks where something is reached.
 * @param {Piece[]} pieces
 * @param {{whole?: number, marks?: {at: number, word: string}[]}} [given] `whole`: what the full width stands for; left out: all pieces.
 */
export function bar(pieces, { whole, marks = [] } = {}) {
  const all = whole ?? pieces.reduce((sum, each) => sum + each.size, 0);
  const told = [...pieces.filter((each) => each.size > 0).map((each) => each.word), ...marks.map((each) => each.word)].join(", ");
  const made = svg("svg", { class: "bar", height: HEIGHT, width: "100%", role: "img", "aria-label": told || "nothing" }, svg("title", null, told || "nothing"), svg("rect", { class: "trough", width: "100%", height: HEIGHT }));
  let begun = 0;
  for (const { part, size } of pieces) {
    if (size > 0 && all > 0) {
      const from = Math.min(100, (100 * begun) / all);
      made.append(svg("rect", { class: `part-${part} fill`, x: `${from}%`, width: `${Math.min(100 - from, (100 * size) / all)}%`, height: HEIGHT }));
    }
    begun += size;
  }
  for (const { at } of marks) if (all > 0) made.append(svg("rect", { class: "mark-at", x: `${Math.min(99.5, (100 * at) / all)}%`, width: 2, height: HEIGHT }));
  return made;
}

/** What the patterns stand for. @param {[Part, string][]} parts */
export function legend(parts) {
  return h(
    "ul",
    { class: "legend" },
    parts.map(([part, word]) => h("li", null, svg("svg", { width: 14, height: 10, "aria-hidden": "true" }, svg("rect", { class: "trough", width: 14, height: 10 }), svg("rect", { class: `part-${part} fill`, width: 14, height: 10 })), word)),
  );
}

/**
 * The GPUs of a site, if it has any: sick ones are beside those that it lends.
 * @param {Api.SiteLine} row @param {number} [reserved] So many are kept for somebody.
 */
export function siteBar(row, reserved = 0) {
  if (!row.gpus && !row.sick) return null;
  const free = Math.max(0, row.gpus - row.busy);
  const closed = row.draining || row.paused;
  const held = closed ? 0 : Math.min(free, reserved);
  return bar([
    { part: "busy", size: row.busy, word: `${number(row.busy, 1)} busy` },
    { part: "held", size: held, word: `${number(held, 1)} kept` },
    { part: closed ? "draining" : "free", size: free - held, word: `${number(free - held, 1)} ${closed ? "idle, and nothing new starts" : "free"}` },
    { part: "sick", size: row.sick, word: `${number(row.sick)} sick` },
  ]);
}
