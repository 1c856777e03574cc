// Times, durations, money, GPUs and sizes as people read them.
import { now } from "./api.js";
import { h } from "./dom.js";

const UNITS = /** @type {const} */ ([["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]);
/** Made when first wanted: the first one takes the browser longer than all else that a page does before it asks for its data. @type {Intl.DateTimeFormat | undefined} */
let moments;
/** @type {Intl.DateTimeFormat | undefined} */
let days;
/** Stands where there is nothing to show. */
export const NOTHING = "–";

/**
 * Seconds as `3 d 4 h`, `12 m`, `45 s`: two units at most, as much as anybody reads.
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NOTHING;
  const whole = Math.abs(Math.round(seconds));
  const first = UNITS.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  const [unit, size] = /** @type {(typeof UNITS)[number]} */ (UNITS[first]);
  const count = Math.floor(whole / size);
  const next = UNITS[first + 1];
  const rest = next && count < 10 ? Math.floor((whole % size) / next[1]) : 0;
  return `${count} ${unit}${rest && next ? ` ${rest} ${next[0]}` : ""}`;
}

/** A moment, absolute. @param {number} seconds Since the epoch. */
export const absolute = (seconds) => (moments ??= new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" })).format(seconds * 1000);
/** A day. @param {number} seconds Since the epoch. */
export const day = (seconds) => (days ??= new Intl.DateTimeFormat(undefined, { dateStyle: "medium" })).format(seconds * 1000);

/** @param {number} seconds */
function relative(seconds) {
  const away = seconds - now();
  if (Math.abs(away) < 1) return "now";
  return away > 0 ? `in ${duration(away)}` : `${duration(away)} ago`;
}

/**
 * A moment relative to now, kept so; the absolute one on hover.
 * @param {number | null | undefined} seconds Since the epoch.
 */
export function time(seconds) {
  if (seconds === null || seconds === undefined) return h("span", { class: "faint" }, NOTHING);
  return h("time", { datetime: new Date(seconds * 1000).toISOString(), title: absolute(seconds), data: { at: String(seconds) } }, relative(seconds));
}

/** Bring all moments on the page up to date. */
export function tick() {
  for (const each of document.querySelectorAll("time[data-at]")) {
    const text = relative(Number(/** @type {HTMLElement} */ (each).dataset["at"]));
    if (each.textContent !== text) each.textContent = text;
  }
}

/** Dollars. @param {number | null | undefined} usd */
export function money(usd) {
  if (usd === null || usd === undefined) return NOTHING;
  const digits = Math.abs(usd) >= 1000 ? 0 : 2;
  return `${usd < 0 ? "−" : ""}$${Math.abs(usd).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

/** A number with separators. @param {number | null | undefined} value @param {number} [digits] */
export function number(value, digits = 0) {
  return value === null || value === undefined ? NOTHING : value.toLocaleString("en-US", { maximumFractionDigits: digits });
}

/** GPUs of a job: `2 × 8 H100`. @param {number} nodes @param {number} gpus Per node. @param {string} [models] */
export function gang(nodes, gpus, models = "") {
  const count = gpus ? (nodes > 1 ? `${nodes} × ${number(gpus, 3)}` : number(gpus, 3)) : "CPU only";
  return models && gpus ? `${count} ${models}` : count;
}

/** @param {number} bytes */
export function bytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = bytes;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size.toFixed(size < 10 && unit ? 1 : 0)} ${units[unit]}`;
}

/** `1 job`, `2 jobs`. @param {number} count @param {string} word @param {string} [many] */
export const plural = (count, word, many = `${word}s`) => `${number(count)} ${count === 1 ? word : many}`;
