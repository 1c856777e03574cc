// How busy each GPU of a job is, over time: one small drawing for each, all on one scale.
import { at, get, now } from "./api.js";
import { h, keyed, show, svg } from "./dom.js";
import { number } from "./format.js";

const WIDTH = 240;
const HEIGHT = 40;
const EVERY_MS = 10_000;
/** GPUs of a job that are drawn. */
const MOST = 64;
/** A job that has run for so long would have been measured, in seconds. */
const MEASURED_S = 90;

/** Why nothing is known of each GPU. @param {string} runtime What the site's agent starts work by. */
export function whyNone(runtime) {
  if (runtime === "slurm") return "Slurm tells what a job uses in all, not how busy each GPU is.";
  if (runtime === "kube") return "The cluster tells what a job uses in all, not how busy each GPU is.";
  return "The site's agent does not measure its GPUs: that takes NVIDIA's driver on the host.";
}

/** A part of the page of a job. @param {HTMLElement} view */
export function part(view) {
  const list = h("div", { class: "gpu-uses" });
  const none = h("p", { class: "faint", hidden: true });
  show(view, h("h2", { id: "job-gpus" }, "Use of its GPUs"), list, none);
  view.setAttribute("aria-labelledby", "job-gpus");
  view.hidden = true;
  let asked = -Infinity;
  let closed = false;
  return {
    /** @param {Api.JobDetail} detail */
    async show(detail) {
      const { job, spec, site, used } = detail;
      const late = job.status === "RUNNING" && spec.resources.gpus.count > 0 && now() - (job.started_at ?? now()) > MEASURED_S;
      if ((!used?.gpus_sampled_s && !late) || performance.now() - asked < EVERY_MS) return;
      asked = performance.now();
      const curves = await get(at("/v1/jobs/{id}/gpus", detail.job.id)).catch(() => []);
      if (curves.length === 0 && late && view.hidden) {
        const found = await get(at("/v1/sites/{name}", site)).catch(() => null);
        if (closed || !found) return;
        none.textContent = whyNone(found.runtime);
        view.hidden = none.hidden = false;
      }
      if (closed || curves.length === 0) return;
      view.hidden = false;
      none.hidden = true;
      drawUse(list, curves.slice(0, MOST), detail.attempts.at(-1)?.model ?? "");
    },
    close() {
      closed = true;
    },
  };
}

/** @param {Element} place @param {Api.GpuCurve[]} curves @param {string} model */
function drawUse(place, curves, model) {
  const moments = curves.flatMap((each) => each.points.map((point) => point.at));
  const first = Math.min(...moments);
  const last = Math.max(first + 1, now());
  const scaled = curves.map((each) => ({ ...each, model, first, last }));
  keyed(place, scaled, (each) => `${each.member}/${each.gpu}`, (each) => drawOne(h("figure", { class: "gpu-use" }), each), drawOne);
}

/** @param {Element} element @param {Api.GpuCurve & {model: string, first: number, last: number}} curve */
function drawOne(element, { member, gpu, model, points, first, last }) {
  const newest = /** @type {Api.GpuPoint} */ (points[points.length - 1]);
  const mean = points.reduce((sum, each) => sum + each.busy_percent, 0) / points.length;
  const told = [`${Math.round(newest.busy_percent)} % now`, `${Math.round(mean)} % on average`, `${number(newest.memory_mib / 1024, 1)} GiB`, newest.power_w !== null && `${Math.round(newest.power_w)} W`].filter(Boolean).join(" · ");
  const x = (/** @type {number} */ at) => ((at - first) / (last - first)) * WIDTH;
  const y = (/** @type {number} */ percent) => HEIGHT - (percent / 100) * HEIGHT;
  const steps = points.map((point, index) => `${index ? "V" : `M${x(point.at)} `}${y(point.busy_percent)}H${x(points[index + 1]?.at ?? last)}`).join("");
  element.replaceChildren(
    h("figcaption", { class: "words" }, h("span", null, h("strong", null, `GPU ${gpu}`), h("span", { class: "faint" }, ` ${model} ${member}`)), h("span", { class: "faint" }, told)),
    svg("svg", { class: "chart", viewBox: `0 -1 ${WIDTH} ${HEIGHT + 2}`, role: "img", "aria-label": `GPU ${gpu} of ${member}: ${told}`, preserveAspectRatio: "none" }, svg("path", { class: "gpu-floor", d: `M0 ${HEIGHT}H${WIDTH}M0 0H${WIDTH}` }), svg("path", { class: "series-0", d: steps })),
  );
  return element;
}
