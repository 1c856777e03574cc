// Server-sent events of the dispatcher, and pages that stay fresh by them.
//
// A browser opens six connections to one address, for all its tabs together: a tab that nobody looks at gives its stream back, and catches up when it is
// looked at again.
import { connection, get, signedIn } from "./api.js";

const SOONEST_S = 1;
const AGAIN_S = [1, 2, 4, 8, 15];

/**
 * Follow a stream until told to stop. It is opened again when it breaks; what has happened meanwhile is not repeated, so whoever follows reads anew on `onOpen`.
 * @param {string} path
 * @param {{onEvent?: (data: any) => void, onOpen?: () => void}} to
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
    const opened = new EventSource(path);
    source = opened;
    opened.onopen = () => {
      failures = 0;
      connection.set({ up: true, since: Date.now() });
      onOpen?.();
    };
    opened.onmessage = (event) => onEvent?.(JSON.parse(event.data));
    opened.onerror = () => {
      close();
      // A stream does not say why it broke: whether the dispatcher answers is asked.
      void get("/healthz").catch(() => {});
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

/**
 * Load now, when something happens, when the dispatcher is back, and every so often; never twice at once, and never while nobody looks.
 * @param {() => Promise<void>} load What it throws is left to `onError`; a dispatcher that does not answer is told by the frame, and what was shown stays.
 * @param {{everyS?: number, stream?: string, onError?: (error: any) => void}} [given] `stream`: the path of server-sent events; empty: none.
 * @returns {{stop: () => void, again: () => void}} `again`: load once more, soon.
 */
export function keepFresh(load, { everyS = 5, stream = "/v1/events", onError } = {}) {
  let stopped = false;
  let loading = false;
  let wanted = false;
  let last = 0;
  let timer = 0;

  async function run() {
    window.clearTimeout(timer);
    if (stopped) return;
    if (loading) {
      wanted = true;
      return;
    }
    if (!document.hidden) {
      loading = true;
      wanted = false;
      try {
        await load();
      } catch (error) {
        if (!stopped) onError?.(error);
      }
      loading = false;
      last = performance.now();
    }
    if (!stopped) timer = window.setTimeout(run, wanted ? SOONEST_S * 1000 : everyS * 1000);
  }
  function soon() {
    if (loading) {
      wanted = true;
      return;
    }
    window.clearTimeout(timer);
    timer = window.setTimeout(run, Math.max(0, SOONEST_S * 1000 - (performance.now() - last)));
  }
  const look = () => void (document.hidden || run());
  document.addEventListener("visibilitychange", look);
  const unfollow = stream ? follow(stream, { onEvent: soon, onOpen: soon }) : () => {};
  void run();
  return {
    stop() {
      stopped = true;
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
      unfollow();
    },
    again: soon,
  };
}
