// What people do to jobs, with the consequence told first: cancel, hold, release, requeue, and changes such as the priority.
import { at, get, patch, post } from "./api.js";
import { ask, capital, notice } from "./dialog.js";
import { h } from "./dom.js";
import { absolute, duration, money, plural } from "./format.js";
import { now } from "./api.js";

/** @typedef {"cancel" | "hold" | "release" | "requeue"} Verb */
/** @type {Record<Verb, {word: string, what: string, grave: boolean}>} */
const VERBS = {
  cancel: { word: "Cancel", what: "It ends for good; what it has written stays, and nothing starts it again.", grave: true },
  hold: { word: "Hold", what: "It does not start until somebody releases it; if it runs, it is stopped and gives its place back.", grave: false },
  release: { word: "Release", what: "It waits for a place again.", grave: false },
  requeue: { word: "Requeue", what: "The present attempt is stopped, and the job waits for a new one.", grave: false },
};
const OVER = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

/** Which verbs suit a status. @param {string} status @returns {Verb[]} */
export function suiting(status) {
  if (OVER.has(status)) return [];
  if (status === "HELD") return ["release", "cancel"];
  return status === "PENDING" ? ["hold", "cancel"] : ["requeue", "hold", "cancel"];
}

/** The word on a button. @param {Verb} verb */
export const wordFor = (verb) => VERBS[verb].word;

/**
 * Ask, then do it to these jobs; answers whether it was done.
 * @param {Verb} verb
 * @param {{id: string, name: string, status: string, started_at?: number | null, tasks?: Record<string, number>}[]} jobs Rows of a list; of an array its line.
 */
export async function act(verb, jobs) {
  const { word, what, grave } = VERBS[verb];
  const title = jobs.length === 1 ? `${word} ${jobs[0]?.name}?` : `${word} ${plural(jobs.length, "job")}?`;
  const agreed = await ask({ title, action: word, grave, consequence: consequence(verb, jobs, what) });
  if (!agreed) return false;
  try {
    const done = await post("/v1/jobs/actions", { verb, jobs: jobs.map((each) => each.id) });
    const changed = done.reduce((sum, each) => sum + each.changed, 0);
    const left = done.find((each) => each.left);
    notice(`${word}: ${plural(changed, "job")}${left ? `. Left as they are: ${left.left_because || left.left}` : ""}`);
    return true;
  } catch (error) {
    notice(/** @type {Error} */ (error));
    return false;
  }
}

/** @param {Verb} verb @param {{id: string, name: string, status: string, started_at?: number | null, tasks?: Record<string, number>}[]} jobs @param {string} what */
async function consequence(verb, jobs, what) {
  const stops = jobs.filter((each) => each.status === "RUNNING" || each.tasks?.["RUNNING"]);
  const lines = [];
  if (verb !== "release" && stops.length) {
    for (const each of stops.slice(0, 5)) {
      const running = each.tasks?.["RUNNING"];
      lines.push(h("li", null, running ? `${plural(running, "task")} of ${each.name} run${running === 1 ? "s" : ""}` : `${each.name} has run for ${duration(now() - (each.started_at ?? now()))}${verb === "cancel" ? "" : await lost(each.id)}`));
    }
    if (stops.length > 5) lines.push(h("li", null, `and ${plural(stops.length - 5, "more job")}`));
  }
  return [h("p", null, what), lines.length ? h("ul", null, lines) : null];
}

/** Whether what it did is lost. @param {string} id */
async function lost(id) {
  try {
    const detail = await get(at("/v1/jobs/{id}", id));
    return detail.spec.checkpoint ? ", and goes on from its checkpoint" : ", has no checkpoint, and would start from the beginning";
  } catch {
    return "";
  }
}

/**
 * What would become of a job that waits, by a preview of the dispatcher's.
 * @param {Api.Preview} preview @param {number | null} [moment] A deadline that it is to keep.
 */
export function wouldBecome({ explanation, cost_usd }, moment = null) {
  const { expected_start_at: start, expected_finish_at: finish } = explanation;
  const missed = finish && moment && finish > moment ? h("span", { class: "tone-bad" }, `, ${duration(finish - moment)} too late`) : "";
  return [
    h("p", null, h("strong", null, capital(`it ${explanation.status}`)), cost_usd ? ` for about ${money(cost_usd)}` : "", `: ${explanation.because}.`),
    h("p", null, finish && start !== null ? `Expected to start ${absolute(start)} and to be done ${absolute(finish)}` : "Nobody can say when it would start", missed, "."),
  ];
}

/**
 * Change something of a living job, after asking. `told` says what follows.
 * @param {{id: string, name: string}} job
 * @param {Record<string, unknown>} change
 * @param {string} what Such as `priority 80`.
 * @param {import("./dom.js").Children | Promise<import("./dom.js").Children>} told
 */
export async function change(job, change, what, told) {
  if (!(await ask({ title: `Give ${job.name} ${what}?`, action: "Change it", consequence: told }))) return false;
  try {
    await patch(at("/v1/jobs/{id}", job.id), change);
    notice(capital(`${job.name} has ${what} now`));
    return true;
  } catch (error) {
    notice(/** @type {Error} */ (error));
    return false;
  }
}
