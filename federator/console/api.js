// The dispatcher's public HTTP API, as every client has it. Errors are problem details (RFC 9457) and become a `Problem`.
import { Store } from "./store.js";

/** What goes wrong, in words of the dispatcher: what, where, and what would be right. */
export class Problem extends Error {
  /** @param {{title?: string, status?: number, detail?: string, code?: string, field?: string | null, remedy?: string | null, retry_after_s?: number | null, leader?: string}} told */
  constructor(told) {
    super(told.detail || told.title || "the request failed");
    this.status = told.status ?? 0;
    this.code = told.code ?? "";
    this.field = told.field ?? "";
    this.remedy = told.remedy ?? "";
    this.retryAfterS = told.retry_after_s ?? null;
    /** Address of the dispatcher that leads, where this one does not. */
    this.leader = told.leader ?? "";
  }
}

/** Whether the dispatcher answers: `since` is when it last did, in milliseconds of this browser. */
export const connection = new Store(/** @type {{up: boolean, since: number}} */ ({ up: true, since: Date.now() }));
/** Whether the browser's session is good; false as soon as a request was refused for it. */
export const signedIn = new Store(/** @type {boolean} */ (true));

/** The dispatcher's time in seconds: demonstrations run faster than clocks do, and clocks are wrong. */
export function now() {
  return clock.at + ((performance.now() - clock.read) / 1000) * clock.rate;
}

/**
 * Ask, and answer the JSON body; null where there is none. Throws `Problem`.
 * @param {string} method
 * @param {string} path With the leading slash.
 * @param {{query?: Record<string, unknown>, body?: unknown, type?: string, signal?: AbortSignal, headers?: Record<string, string>}} [given] `body`: a text is sent as it is, all else as JSON.
 * @returns {Promise<any>}
 */
export async function request(method, path, given = {}) {
  const answer = await fetchAnswer(method, path, given);
  if (answer.status === 204 || answer.headers.get("Content-Length") === "0") return null;
  return await answer.json();
}

/**
 * The same, without reading the body.
 * @param {string} method
 * @param {string} path
 * @param {{query?: Record<string, unknown>, body?: unknown, type?: string, signal?: AbortSignal, headers?: Record<string, string>}} [given]
 */
export async function fetchAnswer(method, path, given = {}) {
  /** @type {Record<string, string>} */
  const headers = { "X-Federator-Console": "1", ...given.headers };
  let body;
  if (given.body !== undefined) {
    body = typeof given.body === "string" ? given.body : JSON.stringify(given.body);
    headers["Content-Type"] = given.type ?? "application/json";
  }
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(path + queryOf(given.query), { method, headers, body: body ?? null, signal: given.signal ?? null, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (given.signal?.aborted) throw error;
    lost();
    throw new Problem({ code: "unreachable", detail: "the dispatcher does not answer", remedy: "this page tries again by itself" });
  }
  connection.set({ up: true, since: Date.now() });
  readClock(answer.headers.get("X-Federator-Time"));
  if (answer.ok) return answer;
  const problem = new Problem({ status: answer.status, leader: answer.headers.get("X-Federator-Leader") ?? "", ...(await told(answer)) });
  if (problem.status === 401 && !path.startsWith("/v1/session")) signedIn.set(false);
  throw problem;
}

/**
 * A path of the API; `at` makes those with parts, and keeps which one it is.
 * @template {string} P
 * @typedef {P extends {of: infer Q} ? Q : P} Route
 */

/**
 * What GET answers, typed as `tests/console/api.d.ts` has it.
 * @template {string} P
 * @param {P} path @param {Record<string, unknown>} [query] @param {AbortSignal} [signal]
 * @returns {Promise<Route<P> extends keyof Api.Answers ? Api.Answers[Route<P>] : unknown>}
 */
export const get = (path, query, signal) => request("GET", path, { ...(query && { query }), ...(signal && { signal }) });
/**
 * What POST answers.
 * @template {string} P
 * @param {P} path @param {unknown} [body]
 * @returns {Promise<Route<P> extends keyof Api.Posted ? Api.Posted[Route<P>] : unknown>}
 */
export const post = (path, body) => request("POST", path, body === undefined ? {} : { body });
/** @param {string} path @param {unknown} body @returns {Promise<unknown>} */
export const patch = (path, body) => request("PATCH", path, { body });
/** @param {string} path @returns {Promise<unknown>} */
export const del = (path) => request("DELETE", path);

/**
 * A path with its parts put in, encoded: `at("/v1/jobs/{id}", job)`.
 * @template {string} P
 * @param {P} path @param {...string} parts
 * @returns {string & {readonly of: P}}
 */
export function at(path, ...parts) {
  let number = 0;
  return /** @type {string & {readonly of: P}} */ (path.replace(/\{\w+\}/g, () => encodeURIComponent(parts[number++] ?? "")));
}

/** Note that the dispatcher does not answer. */
function lost() {
  if (connection.value.up) connection.set({ up: false, since: connection.value.since });
}

/** @param {Record<string, unknown> | undefined} query */
function queryOf(query) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) if (each !== undefined && each !== null && each !== "" && each !== false) made.append(name, String(each));
  }
  return made.size ? `?${made}` : "";
}

/** @param {Response} answer */
async function told(answer) {
  try {
    return await answer.json();
  } catch {
    return { detail: `the answer has status ${answer.status}` };
  }
}

const clock = { at: Date.now() / 1000, read: performance.now(), rate: 1, known: false };

/** @param {string | null} header */
function readClock(header) {
  const time = Number(header);
  if (!header || !Number.isFinite(time)) return;
  const passed = (performance.now() - clock.read) / 1000;
  if (!clock.known || passed >= 1) {
    if (clock.known) clock.rate = Math.min(10000, Math.max(0, (time - clock.at) / passed));
    Object.assign(clock, { at: time, read: performance.now(), known: true });
  }
}
