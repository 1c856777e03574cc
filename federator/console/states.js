// Each state as a colour, a shape and a word: who does not tell the colours apart reads the shape. Colours are those of `console.css`.
import { h, svg } from "./dom.js";

/** @typedef {"waiting" | "planned" | "starting" | "running" | "good" | "bad" | "over" | "held" | "leaving" | "reserved"} Tone */

/** Shapes in a box of 12 by 12. @type {Record<Tone, (tone: Tone) => SVGElement>} */
const SHAPES = {
  waiting: () => svg("circle", { cx: 6, cy: 6, r: 4, class: "line" }),
  planned: () => svg("path", { d: "M6 1.5 10.5 6 6 10.5 1.5 6z", class: "line" }),
  starting: () => svg("path", { d: "M6 2a4 4 0 0 1 0 8z M6 2a4 4 0 0 0 0 8", class: "half" }),
  running: () => svg("circle", { cx: 6, cy: 6, r: 4.5, class: "solid" }),
  good: () => svg("path", { d: "M2 6.5 5 9.5 10 3", class: "line thick" }),
  bad: () => svg("path", { d: "M2.5 2.5 9.5 9.5M9.5 2.5 2.5 9.5", class: "line thick" }),
  over: () => svg("path", { d: "M2 6h8", class: "line thick" }),
  held: () => svg("path", { d: "M3 2h2v8H3zM7 2h2v8H7z", class: "solid" }),
  leaving: () => svg("path", { d: "M1.5 3h9L6 10z", class: "solid" }),
  reserved: () => svg("rect", { x: 2, y: 2, width: 8, height: 8, class: "line" }),
};

/** Tone and word of what the API names. @type {Record<string, [Tone, string]>} */
const STATES = {
  // Jobs
  PENDING: ["waiting", "waiting"],
  PLACED: ["planned", "placed"],
  STARTING: ["starting", "starting"],
  RUNNING: ["running", "running"],
  SUCCEEDED: ["good", "succeeded"],
  FAILED: ["bad", "failed"],
  CANCELLED: ["over", "cancelled"],
  HELD: ["held", "held"],
  SUSPENDING: ["leaving", "suspending"],
  CANCELLING: ["leaving", "cancelling"],
  RECOVERING: ["starting", "recovering"],
  // Attempts
  ASSIGNED: ["planned", "assigned"],
  ACCEPTED: ["planned", "accepted"],
  STOPPED: ["over", "stopped"],
  LOST: ["bad", "lost"],
  REFUSED: ["bad", "refused"],
  REVOKED: ["over", "revoked"],
  // Machines that are rented
  REQUESTED: ["planned", "requested"],
  LAUNCHING: ["starting", "launching"],
  BOOTING: ["starting", "booting"],
  TERMINATING: ["leaving", "ending"],
  INTERRUPTED: ["bad", "taken back"],
  // Sites and their hosts
  JOINING: ["starting", "joining"],
  READY: ["good", "ready"],
  DEGRADED: ["leaving", "degraded"],
  UNREACHABLE: ["bad", "unreachable"],
  DRAINING: ["leaving", "draining"],
  PAUSED: ["held", "paused"],
  UNRENTED: ["over", "nothing rented"],
  GONE: ["over", "gone"],
};

/** Tone of a state; what is not known is shown as it is called. @param {string} name @returns {Tone} */
export const toneOf = (name) => STATES[name]?.[0] ?? "reserved";
/** Word of a state. @param {string} name */
export const wordOf = (name) => STATES[name]?.[1] ?? name.toLowerCase();

/** The shape alone. @param {Tone} tone */
export function shape(tone) {
  return svg("svg", { class: `mark tone-${tone}`, viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, SHAPES[tone](tone));
}

/**
 * A state as people see it: shape, colour and word.
 * @param {string} name As the API says it.
 * @param {string} [word] Another word for it.
 */
export function stateMark(name, word) {
  const tone = toneOf(name);
  return h("span", { class: `state tone-${tone}` }, shape(tone), word ?? wordOf(name));
}
