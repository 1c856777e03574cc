// Server-sent events of the dispatcher, and pages that stay fresh by them.
//
// A browser opens six connections to one address, for all its tabs together: a tab that nobody looks at gives its stream back, and catches up when it is
// looked at again.
import { connection, get, signedIn } from "./api.js";

const SOONEST_S = 1;
const AGAIN_S = [1, 2, 4, 8, 15];
const AFTER_FAILURE_S = 5;

/**
 * Follow a stream until told to stop. It is opened again when it breaks.
 * @param {() => string} path Asked for anew each time, so that it can say what was seen.
 * @param {{onEvent?: (data: any, id: string) => void, onOpen?: () => void}} to
 * @returns {() => void} Stops.
 */
export function follow(path, { onEvent, onOpen }) {
  /** @type {EventSource | null} */
  let source = null;
  let failures = 0;
  let timer = 0;

  function open() {
    window.clearTimeout(timer);
    if (source || document.hidden || !signedIn.value) return;
    const opened = new EventSource(path());
    source = opened;
    opened.onopen = () => {
      failures = 0;
      connection.set({ up: true, since: Date.now() });
      onOpen?.();
    };
    opened.onmessage = (event) => onEvent?.(JSON.parse(event.data), event.lastEventId);
    opened.onerror = () => {
      close();
      // A stream does not say why it broke: whether the dispatcher answers, and still knows who looks, is asked.
      void get("/v1/whoami").catch(() => {});
      timer = window.setTimeout(open, 1000 * /** @type {number} */ (AGAIN_S[Math.min(failures, AGAIN_S.length - 1)]));
      failures += 1;
    };
  }
  function close() {
    source?.close();
    source = null;
  }
  function look() {
    if (document.hidden) close();
    else open();
  }
  document.addEventListener("visibilitychange", look);
  open();
  return () => {
    window.clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
    close();
  };
}

/** @typedef {keyof Api.Rows} Topic */
/** @typedef {<T extends Topic>(topic: T) => Api.Rows[T][]} Present The present rows of a topic. */

/**
 * Follow rows of what there is (`GET /v1/changes`), which the dispatcher sends once and then as they change.
 * @param {Topic[]} topics
 * @param {(rows: Present, changed: Set<Topic>) => void} onChange Called with the present rows whenever any have changed.
 * @param {string} [site] Of sites, this one only.
 * @returns {() => void} Stops.
 */
export function followRows(topics, onChange, site = "") {
  /** @type {Map<Topic, Map<string, any>>} */
  const known = new Map();
  const asked = new URLSearchParams({ topics: topics.join(",") });
  if (site) asked.set("site", site);
  let seen = "";
  /** @param {{reset: boolean, rows: Record<Topic, Record<string, any>>}} change @param {string} id */
  function take({ reset, rows }, id) {
    seen = id;
    for (const [topic, changed] of /** @type {[Topic, Record<string, any>][]} */ (Object.entries(rows))) {
      const table = (!reset && known.get(topic)) || new Map();
      known.set(topic, table);
      for (const [key, row] of Object.entries(changed)) {
        if (row === null) table.delete(key);
        else table.set(key, { ...table.get(key), ...row });
      }
    }
    onChange((each) => [...(known.get(each)?.values() ?? [])], new Set(/** @type {Topic[]} */ (Object.keys(rows))));
  }
  return follow(() => `/v1/changes?${asked}${seen && `&after=${seen}`}`, { onEvent: take });
}

/**
 * Load now, when something happens, and when the dispatcher is back; never twice at once, and never while nobody looks. What has failed is tried again.
 * @param {() => Promise<void>} load What it throws is left to `onError`; a dispatcher that does not answer is told by the frame, and what was shown stays.
 * @param {{topics?: Topic[], site?: string, stream?: string, everyS?: () => number, soonestS?: number, onError?: (error: import("./api.js").Problem) => void}} [given]
 *   `topics`: what tells that there is something new; `stream`: the path of other server-sent events that do; `everyS`: after how long to load without being
 *   told, for what no stream tells (0: not), asked after each load; `soonestS`: between two loads because of a stream.
 * @returns {{stop: () => void, again: () => void, settle: () => void}} `again`: load once more, soon; `settle`: nothing more is to be told, and streams are left.
 */
export function keepFresh(load, { topics = [], site = "", stream = "", everyS = () => 0, soonestS = SOONEST_S, onError } = {}) {
  let stopped = false;
  let loading = false;
  /** After how long to load again, asked for while loading. */
  let wanted = Infinity;
  let last = 0;
  let due = Infinity;
  let timer = 0;

  async function run() {
    window.clearTimeout(timer);
    due = Infinity;
    // Whoever looks again is shown what is then.
    if (stopped || loading || document.hidden) return;
    loading = true;
    wanted = Infinity;
    try {
      await load();
      wanted = Math.min(wanted, everyS() || Infinity);
    } catch (error) {
      if (!stopped) onError?.(/** @type {import("./api.js").Problem} */ (error));
      wanted = Math.min(wanted, AFTER_FAILURE_S);
    }
    loading = false;
    last = performance.now();
    if (wanted < Infinity) soon(wanted);
  }
  /** @param {number} gapS At least so long after the last load; one that is to come sooner already is not put off. */
  function soon(gapS) {
    if (loading) wanted = Math.min(wanted, gapS);
    if (loading || stopped) return;
    const at = Math.max(performance.now(), last + gapS * 1000);
    if (at >= due) return;
    window.clearTimeout(timer);
    due = at;
    timer = window.setTimeout(run, at - performance.now());
  }
  const told = () => soon(soonestS);
  const look = () => void (document.hidden || run());
  document.addEventListener("visibilitychange", look);
  /** @type {(() => void)[]} */
  const ends = [];
  if (stream) ends.push(follow(() => stream, { onEvent: told, onOpen: told }));
  if (topics.length) ends.push(followRows(topics, told, site));
  void run();
  function settle() {
    for (const end of ends.splice(0)) end();
  }
  return {
    stop() {
      stopped = true;
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
      settle();
    },
    again: () => soon(SOONEST_S),
    settle,
  };
}
