// Sites: what each has, how it is, what of ours is there; draining, evicting, and joining another by a command to copy.
import { at, get, post } from "../api.js";
import { bar, legend, patterns, siteBar } from "../bars.js";
import { ask, capital, namesNone, notice, problemBox, showNone } from "../dialog.js";
import { h, show } from "../dom.js";
import { field, select, text } from "../form.js";
import { whyNone } from "../gpu_use.js";
import { absolute, bytes, duration, gang, money, number, plural, time } from "../format.js";
import { joinable, mayManage } from "../rights.js";
import { stateMark } from "../states.js";
import { followRows, keepFresh } from "../stream.js";
import { Table } from "../table.js";

export const title = "Sites";

const HERE = "RUNNING,STARTING,PLACED,SUSPENDING,CANCELLING,RECOVERING";
/** Jobs of a site that one page shows. */
const MOST = 200;
/** Sites that are listed at once. */
const FEW = 100;
/** GPUs of a pool that are drawn one by one. */
const CELLS = 512;

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
export function open(view, context) {
  const [name] = context.rest;
  return name === undefined ? openAll(view, context) : openOne(view, context, name);
}

/** @param {import("../api.js").Problem} error @param {Element} place */
const complain = (error, place) => error.code !== "unreachable" && show(place, problemBox(error));
const path = (/** @type {string} */ name) => `/sites/${encodeURIComponent(name)}`;

/** @param {HTMLElement} view @param {import("../main.js").Context} context */
function openAll(view, context) {
  const may = joinable(context.who);
  const join = h("div", null, may === null || may.length > 0 ? h("button", { type: "button", on: { click: () => void joinSite(may) } }, "Join a site") : null);
  /** @type {Table<Api.SiteLine>} */
  const table = new Table({
    caption: "Sites",
    keyOf: (row) => row.name,
    order: { id: "name", down: false },
    empty: h("div", null, "No site has joined yet. ", may === null ? "Join one: it takes a command on its host." : "An administrator joins one with a token and a command on its host."),
    columns: [
      { id: "name", title: "Site", cell: (row) => h("a", { href: path(row.name) }, row.name), by: (row) => row.name },
      { id: "status", title: "Status", cell: (row) => stateMark(row.status), by: (row) => row.status },
      { id: "kind", title: "Kind", cell: (row) => row.kind, by: (row) => row.kind, wide: true },
      { id: "region", title: "Region", cell: (row) => row.region, by: (row) => row.region, wide: true },
      { id: "bar", title: "GPUs", long: true, cell: (row) => siteBar(row) },
      { id: "busy", title: "Busy", numeric: true, cell: (row) => `${number(row.busy, 1)} of ${number(row.gpus, 1)}`, by: (row) => row.busy },
      { id: "gang", title: "Largest gang", numeric: true, cell: (row) => row.largest_gang || "–" },
      { id: "running", title: "Running", numeric: true, cell: (row) => number(row.running), by: (row) => row.running },
      { id: "hosts", title: "Hosts", numeric: true, cell: (row) => number(row.members), by: (row) => row.members, wide: true },
      { id: "age", title: "Report", numeric: true, cell: (row) => (row.reported_at === null ? "never" : time(row.reported_at)), by: (row) => row.reported_at },
      { id: "because", title: "Why it takes nothing", long: true, cell: (row) => (row.drain_because || row.because) && h("span", { class: "faint" }, row.drain_because || row.because) },
    ],
  });
  const search = h("input", { type: "search", placeholder: "name, region, model", "aria-label": "Search sites" });
  const more = h("p", { class: "faint", role: "status" });
  /** @type {Api.SiteLine[]} */
  let all = [];
  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((row) => words.every((word) => about(row).includes(word)));
    table.show(found.slice(0, FEW));
    more.textContent = found.length > FEW ? `The first ${number(FEW)} of ${plural(found.length, "site")}: search for others.` : words.length ? plural(found.length, "site") : "";
  };
  search.addEventListener("input", draw);
  show(view, h("div", { class: "row apart" }, h("h1", null, title), h("div", { class: "row" }, search, join)), patterns(), legend([["busy", "busy"], ["free", "free"], ["draining", "starts nothing new"], ["sick", "sick"]]), table.element, more);
  return followRows(["sites"], (rows) => {
    all = rows("sites");
    draw();
  });
}

/** What a search looks at. @param {Api.SiteLine} row */
const about = (row) => [row.name, row.kind, row.region, row.status, row.draining ? "draining" : "", ...row.models, ...Object.entries(row.labels ?? {}).flat()].join(" ").toLowerCase();

/** @param {HTMLElement} view @param {import("../main.js").Context} context @param {string} name */
function openOne(view, context, name) {
  context.name(name);
  const said = h("div");
  const state = h("span");
  const because = h("p", { class: "faint" });
  const actions = h("div", { class: "row" });
  const facts = h("dl", { class: "figures" });
  const gpus = h("div", { class: "stack" });
  const pools = poolTable();
  const hosts = hostTable();
  const links = linkTable();
  const linked = h("section", { class: "panel", "aria-labelledby": "site-links", hidden: true }, h("h2", { id: "site-links" }, "Links"), links.element);
  const local = h("section", { class: "panel", "aria-labelledby": "site-local", hidden: true });
  const manages = mayManage(context.who, name);
  const work = workTable(manages ? (row) => void evict(row) : null);
  const more = h("p", { class: "faint" });
  show(
    view,
    h("div", { class: "row apart" }, h("div", { class: "row" }, h("h1", null, name), state), actions),
    patterns(),
    said,
    because,
    facts,
    h("section", { class: "panel", "aria-labelledby": "site-gpus" }, h("h2", { id: "site-gpus" }, "GPUs"), legend([["busy", "busy"], ["free", "free"], ["sick", "sick"]]), gpus, pools.element),
    h("section", { class: "panel", "aria-labelledby": "site-work" }, h("h2", { id: "site-work" }, "Work here"), work.element, more),
    local,
    h("section", { class: "panel", "aria-labelledby": "site-hosts" }, h("h2", { id: "site-hosts" }, "Hosts"), hosts.element),
    linked,
  );
  /** @type {Api.SiteRow | null} */
  let site = null;
  const fresh = keepFresh(
    async () => {
      const [found, jobs] = await Promise.all([get(at("/v1/sites/{name}", name)), get("/v1/jobs", { site: name, status: HERE, sort: "-gpus", limit: MOST })]);
      const first = site === null || site.draining !== found.draining;
      site = found;
      show(said);
      show(state, stateMark(found.status));
      because.textContent = [found.drain_because || found.because].filter(Boolean).map((each) => `${capital(each)}.`).join(" ");
      because.hidden = !because.textContent;
      if (manages && first) show(actions, found.draining ? button("Undrain", undrain) : button("Drain", drain), button("Evict all", () => evict(null)));
      drawFacts(facts, found);
      drawGpus(gpus, found);
      pools.show(found.pools);
      hosts.show(found.hosts);
      const told = found.hosts.filter((row) => row.link !== null);
      links.show(told);
      linked.hidden = told.length === 0;
      work.show(jobs.jobs);
      more.textContent = jobs.total > jobs.jobs.length ? `The largest ${number(jobs.jobs.length)} of ${number(jobs.total)} jobs.` : "";
      more.hidden = !more.textContent;
      drawLocal(local, found.pools);
    },
    { topics: ["sites", "jobs"], site: name, soonestS: 2, onError: failed },
  );
  if (context.who.role === "platform") show(actions, h("span", { class: "faint" }, "Drained by the site's own administrators"));

  /** @param {import("../api.js").Problem} error */
  function failed(error) {
    if (site || !namesNone(error)) return complain(error, said);
    fresh.stop();
    showNone(view, "site", error, "/sites", context.name);
  }
  const drain = () => leave(`Drain ${name}`, "Drain", "Nothing new starts here. What runs goes on to its end, or until then:", null, async (by, why) => post(at("/v1/sites/{name}/drain", name), { by, why }));
  /** @param {Api.JobRow | null} job One of its jobs; null: all. */
  function evict(job) {
    const whom = job ? job.name : `all work from ${name}`;
    const told = "Each is told to save itself, stops, and waits for another place. With no time, it has the grace that it asks for.";
    return leave(`Evict ${whom}`, "Evict", told, job ?? "all", async (by, why) => post(at("/v1/sites/{name}/evict", name), { by, why, ...(job && { job: job.id }) }));
  }
  async function undrain() {
    const told = "New work may start here again. What was told to leave already still leaves.";
    if (await ask({ title: `Undrain ${name}`, consequence: h("p", null, told), action: "Undrain" })) await act(() => post(at("/v1/sites/{name}/undrain", name)));
  }

  /**
   * Ask what is to leave and when, and show what that stops before it is done.
   * @param {string} heading @param {string} action @param {string} told
   * @param {Api.JobRow | "all" | null} which A job, "all", or null: only what has not ended by then.
   * @param {(by: string, why: string) => Promise<unknown>} does
   */
  async function leave(heading, action, told, which, does) {
    const by = field("By when", text("by", { placeholder: "2h, or 18:00" }), which ? "Left out: with the grace of each." : "Left out: to its end.");
    const why = field("Why", text("why"), "Told to the owners.");
    const stops = h("div", { class: "stack", "aria-live": "polite" });
    const page = await get("/v1/jobs", { site: name, status: HERE, sort: "-gpus", limit: MOST }).catch(() => ({ jobs: [], total: 0 }));
    const jobs = which && which !== "all" ? page.jobs.filter((each) => each.id === which.id) : page.jobs;
    let asked = 0;
    async function preview() {
      const turn = ++asked;
      if (which !== null) return show(stops, consequences(jobs, page.total));
      const found = await post(at("/v1/sites/{name}/drain/preview", name), { by: by.input.value.trim() }).catch((error) => error);
      if (turn === asked) show(stops, found instanceof Error ? problemBox(found) : drainWords(found));
    }
    by.input.addEventListener("input", () => void preview());
    void preview();
    if (!(await ask({ title: heading, consequence: h("div", { class: "stack" }, h("p", null, told), by.element, why.element, stops), action, grave: true }))) return;
    await act(() => does(by.input.value.trim(), why.input.value.trim() || "asked for in the console"));
  }
  /** @param {() => Promise<unknown>} does */
  async function act(does) {
    try {
      await does();
      fresh.again();
    } catch (error) {
      notice(/** @type {Error} */ (error));
    }
  }
  return fresh.stop;
}

/** @param {string} word @param {() => void} does */
const button = (word, does) => h("button", { type: "button", on: { click: () => void does() } }, word);

/** What draining comes to, as the dispatcher foresees it. @param {Api.DrainPreview} found */
function drainWords(found) {
  const empty = found.empty_at === null ? "Nobody knows when the last ends." : ["Empty ", time(found.empty_at), "."];
  const hours = number(found.lost_gpu_s / 3600, 1);
  const lost = found.lost_gpu_s > 0 ? ` ${hours} ${hours === "1" ? "GPU-hour is" : "GPU-hours are"} to be done again, ${money(found.lost_usd)}.` : "";
  if (found.jobs === 0) return h("p", null, "Nothing of ours runs here now.");
  return [
    h("p", null, h("strong", null, found.stops ? `Stops ${plural(found.stops, "job")}` : "Nothing is stopped"), `; ${plural(found.ends_alone, "job")} of those here may go on to the end. `, empty, lost),
    h("ul", { class: "lines scroll" }, found.stopped.slice(0, 50).map((each) => h("li", null, each.name, h("span", { class: "faint" }, ` of ${each.owner}, ${number(each.gpus, 3)} GPUs, ${each.saves ? "goes on from its checkpoint" : "begins anew"}, would end `), time(each.would_end_at)))),
  ];
}

/** What an eviction stops. @param {Api.JobRow[]} jobs @param {number} total */
function consequences(jobs, total) {
  const others = total > jobs.length && jobs.length > 1 ? ` of the largest ${number(jobs.length)} of ${number(total)}` : "";
  if (jobs.length === 0) return h("p", null, "Nothing of ours runs here now.");
  return [
    h("p", null, h("strong", null, `Stops ${plural(jobs.length, "job")}${others}`), "; what has no checkpoint begins anew elsewhere:"),
    h("ul", { class: "lines scroll" }, jobs.slice(0, 50).map((each) => h("li", null, each.name, h("span", { class: "faint" }, ` of ${each.owner}, ${gang(each.nodes, each.gpus)} GPUs, would end `), time(each.expected_finish_at)))),
  ];
}

/** @param {Element} place @param {Api.SiteRow} site */
function drawFacts(place, site) {
  const labels = Object.entries(site.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ");
  /** @type {[string, import("../dom.js").Children][]} */
  const facts = [
    ["GPUs busy", `${number(site.busy, 1)} of ${number(site.gpus, 1)}`],
    ["Largest gang now", site.largest_gang || "none"],
    ["Report", site.age_s === null ? "never" : `${duration(site.age_s)} ago`],
    ["Kind", [site.kind, site.region && ` in ${site.region}`]],
    ["Runs by", site.runtime || "its own agent"],
    ["Kept apart by", site.isolation],
    ["Takes work of", site.lends_to || "everybody"],
    ["Labels", labels],
    ["Drained by", site.draining && site.drain_by_at ? time(site.drain_by_at) : null],
  ];
  show(place, facts.filter(([, value]) => value).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** Each GPU of each pool, as far as reports tell them apart. @param {Element} place @param {Api.SiteRow} site */
function drawGpus(place, site) {
  const used = (/** @type {Api.PoolRow} */ row) => site.gpu_use.filter((each) => each.member === row.member && each.pool === row.pool.name);
  show(
    place,
    site.pools.filter((row) => row.pool.gpus_per_node > 0).map((row) => h("div", { class: "stack" }, h("h3", null, row.pool.name, h("span", { class: "faint" }, ` at ${row.member}: ${row.pool.model || "GPU"}`)), used(row).length ? uses(used(row), row.ailing) : row.pool.shared ? shares(row) : cells(row), sick(row))),
    site.gpus > 0 && site.gpu_use.length === 0 && h("p", { class: "faint" }, whyNone(site.runtime)),
  );
}

/** How busy each GPU is, as its host tells. @param {Api.GpuRow[]} rows @param {Api.AilingGpu[]} ailing */
function uses(rows, ailing) {
  const ill = new Set(ailing.map((each) => `${each.host}/${each.gpu}`));
  return h(
    "ul",
    { class: "gpu-grid" },
    rows.slice(0, CELLS).map((each) => {
      const busy = each.busy_percent ?? 0;
      const sick = ill.has(`${each.host}/${each.gpu}`);
      const told = [each.busy_percent === null ? "use unknown" : `${busy} %`, `${number(each.memory_mib / 1024, 1)} GiB`, each.power_w !== null && `${each.power_w} W`].filter(Boolean).join(" · ");
      return h(
        "li",
        { title: `${each.host}, told ${absolute(each.told_at)}` },
        h("div", { class: "row apart" }, h("strong", null, `GPU ${each.gpu}`), sick ? stateMark("LOST", "sick") : null),
        bar(sick ? [{ part: "sick", size: 100, word: `GPU ${each.gpu} is sick` }] : [{ part: "busy", size: busy, word: `GPU ${each.gpu}: ${told}` }], { whole: 100 }),
        h("span", { class: "faint" }, told),
        each.jobs.map((job) => (job.job ? h("a", { href: `/jobs/${encodeURIComponent(job.job)}` }, job.name) : h("span", null, job.name))),
      );
    }),
  );
}

/** @param {Api.PoolRow} row */
function cells(row) {
  const lent = row.pool.lent_gpus ?? row.pool.nodes * row.pool.gpus_per_node;
  const count = lent + row.ailing.length;
  /** @type {import("../bars.js").Piece[]} */
  const pieces = [
    { part: "busy", size: row.busy_gpus, word: `${number(row.busy_gpus)} busy` },
    { part: "free", size: Math.max(0, lent - row.busy_gpus), word: `${number(Math.max(0, lent - row.busy_gpus))} free` },
    { part: "sick", size: row.ailing.length, word: `${number(row.ailing.length)} sick` },
  ];
  const whole = bar(pieces);
  if (count > CELLS) return whole;
  const each = pieces.flatMap(({ part, size, word }) => Array.from({ length: Math.round(size) }, () => bar([{ part, size: 1, word: word.replace(/^\S+ /, "") }])));
  for (const one of each) one.setAttribute("aria-hidden", "true");
  return h("div", { class: "cells", role: "img", "aria-label": whole.getAttribute("aria-label") }, each);
}

/** Of a pool of shared GPUs, what is on each. @param {Api.PoolRow} row */
function shares(row) {
  /** @type {Map<number, Api.PartRow[]>} */
  const by = new Map();
  for (let gpu = 0; gpu < row.pool.nodes * row.pool.gpus_per_node; gpu += 1) by.set(gpu, []);
  for (const part of row.parts) by.set(part.gpu, [...(by.get(part.gpu) ?? []), part]);
  return h(
    "div",
    { class: "stack" },
    [...by].slice(0, CELLS).map(([gpu, parts]) => h("div", { class: "row" }, h("span", { class: "faint" }, `GPU ${gpu}`), h("div", { class: "grow" }, bar(parts.map((each) => ({ part: "busy", size: each.share, word: `${each.share} for ${each.name}` })), { whole: 1 })), parts.map((each) => (each.job ? h("a", { href: `/jobs/${encodeURIComponent(each.job)}` }, each.name) : h("span", null, each.name))))),
  );
}

/** @param {Api.PoolRow} row */
function sick(row) {
  if (row.ailing.length === 0) return null;
  return h("ul", { class: "lines" }, row.ailing.map((each) => h("li", null, h("span", { class: "state tone-bad" }, stateMark("LOST", `GPU ${each.gpu} of ${each.host}`)), ` takes nothing new: ${each.why}`)));
}

/** @param {Element} place @param {Api.PoolRow[]} pools */
function drawLocal(place, pools) {
  const rows = pools.flatMap((row) => row.local_work.map((each) => ({ ...each, member: row.member })));
  /** @type {HTMLElement} */ (place).hidden = rows.length === 0;
  show(
    place,
    h("h2", { id: "site-local" }, "The site's own work"),
    h("ul", { class: "lines" }, rows.slice(0, MOST).map((each) => h("li", null, `${gang(each.nodes, each.gpus_per_node)} GPUs of ${each.pool}, `, each.queued ? "waits in its own queue" : ["until ", time(each.ends_at)]))),
  );
}

function poolTable() {
  /** @type {Table<Api.PoolRow>} */
  const table = new Table({
    caption: "Capacity by pool and shape",
    keyOf: (row) => `${row.member}/${row.pool.name}`,
    empty: "No pool has been reported.",
    columns: [
      { id: "pool", title: "Pool", cell: (row) => row.pool.name, by: (row) => row.pool.name },
      { id: "member", title: "Host", cell: (row) => row.member, by: (row) => row.member },
      { id: "model", title: "Model", cell: (row) => [row.pool.model || "CPU only", row.pool.gpu_memory_mib ? h("span", { class: "faint" }, ` ${number(row.pool.gpu_memory_mib / 1024)} GiB`) : null], by: (row) => row.pool.model },
      { id: "size", title: "Nodes × GPUs", numeric: true, cell: (row) => `${number(row.pool.nodes)} × ${number(row.pool.gpus_per_node)}`, by: (row) => row.pool.nodes * row.pool.gpus_per_node },
      { id: "busy", title: "Busy", numeric: true, cell: (row) => number(row.busy_gpus, 2), by: (row) => row.busy_gpus },
      { id: "free", title: "Free shapes", long: true, cell: (row) => row.free.filter((each) => each.count).slice(0, 6).map((each) => shapeWords(each, row.pool)).join(", ") || "nothing is free" },
      { id: "gang", title: "Largest gang", numeric: true, cell: (row) => row.largest_gang || "–" },
    ],
  });
  return table;
}

/** @param {Api.Shape} each @param {Api.Pool} pool */
const shapeWords = (each, pool) => `${number(each.count)} × ${pool.shared ? number(each.gpus / 1000, 3) : number(each.gpus)} GPU with ${number(each.cpus_milli / 1000)} CPUs, ${number(each.memory_mib / 1024)} GiB`;

function hostTable() {
  /** @type {Table<Api.MemberRow>} */
  const table = new Table({
    caption: "Hosts of the site",
    keyOf: (row) => row.name,
    empty: "It has no host.",
    columns: [
      { id: "name", title: "Host", cell: (row) => row.name, by: (row) => row.name },
      { id: "status", title: "Status", cell: (row) => stateMark(row.status), by: (row) => row.status },
      { id: "age", title: "Report", numeric: true, cell: (row) => (row.age_s === null ? "not heard yet" : `${duration(row.age_s)} ago`), by: (row) => row.age_s },
      { id: "joined", title: "Joined", cell: (row) => time(row.joined_at || null), by: (row) => row.joined_at, wide: true },
      { id: "lease", title: "Rented as", cell: (row) => row.lease, wide: true },
      { id: "because", title: "Why", long: true, cell: (row) => row.because },
    ],
  });
  return table;
}

/** What the links of hosts are used for: up and down, of the last hour. */
function linkTable() {
  /** @param {string} kind @param {Api.MemberRow} row */
  const traffic = (kind, row) => {
    const found = row.link?.hour?.find((each) => each.kind === kind);
    return found ? `${bytes(found.sent)} up, ${bytes(found.received)} down` : "–";
  };
  /** @param {Api.MemberRow} row */
  const bulk = (row) => [row.link?.rate ? `${bytes(row.link.rate)} a second` : "", row.link?.hours].filter(Boolean).join(", ") || "always";
  /** @type {import("../table.js").Table<Api.MemberRow>} */
  const table = new Table({
    caption: "Links of the hosts, last hour",
    keyOf: (row) => row.name,
    empty: "No host has told of its link.",
    columns: [
      { id: "name", title: "Host", cell: (row) => row.name, by: (row) => row.name },
      { id: "trip", title: "Round trip", numeric: true, cell: (row) => (typeof row.link?.round_trip_s === "number" ? `${number(1000 * row.link.round_trip_s)} ms` : "–"), by: (row) => row.link?.round_trip_s ?? null },
      ...["reports", "logs", "bulk"].map((kind) => ({ id: kind, title: capital(kind), numeric: true, cell: (/** @type {Api.MemberRow} */ row) => traffic(kind, row) })),
      { id: "budget", title: "Budget", numeric: true, cell: (row) => (row.link?.budget ? `${bytes(row.link.budget)} an hour` : "–") },
      { id: "moves", title: "Bulk moves", long: true, cell: bulk },
    ],
  });
  return table;
}

/** @param {((row: Api.JobRow) => void) | null} onEvict */
function workTable(onEvict) {
  /** @type {import("../table.js").Column<Api.JobRow>[]} */
  const columns = [
    { id: "name", title: "Job", cell: (row) => h("a", { href: `/jobs/${encodeURIComponent(row.id)}` }, row.array_index === null ? row.name : `${row.name}[${row.array_index}]`), by: (row) => row.name },
    { id: "owner", title: "Owner", cell: (row) => row.owner, by: (row) => row.owner },
    { id: "status", title: "Status", cell: (row) => stateMark(row.status), by: (row) => row.status },
    { id: "gpus", title: "GPUs", numeric: true, cell: (row) => gang(row.nodes, row.gpus), by: (row) => row.nodes * row.gpus },
    { id: "use", title: "GPUs used", numeric: true, cell: (row) => (row.used?.gpus_sampled_s ? `${Math.round((100 * (row.used.gpus_busy_s ?? 0)) / row.used.gpus_sampled_s)} %` : "–"), by: (row) => (row.used?.gpus_sampled_s ? (row.used.gpus_busy_s ?? 0) / row.used.gpus_sampled_s : null) },
    { id: "started", title: "Started", cell: (row) => time(row.started_at), by: (row) => row.started_at },
    { id: "ends", title: "Should end", cell: (row) => time(row.expected_finish_at), by: (row) => row.expected_finish_at },
  ];
  if (onEvict) columns.push({ id: "evict", title: "Leave", cell: (row) => h("button", { type: "button", class: "plain link", "aria-label": `Evict ${row.name}`, on: { click: () => onEvict(row) } }, "Evict") });
  return new Table({ caption: "Work here", keyOf: (row) => row.id, empty: "Nothing of ours runs here.", columns });
}

/** Make a token, and show the commands that join a host with it. @param {string[] | null} may The sites; null: any. */
async function joinSite(may) {
  const name = field("Site", may === null ? text("site", { placeholder: "north", required: true }) : select("site", may, may[0]), "A new name, or that of a site which gets another host.");
  const kind = field("Kind", select("kind", [["onprem", "on-premises"], ["edge", "edge"], ["cloud", "cloud"]], "onprem"));
  const agreed = await ask({ title: "Join a site", consequence: h("div", { class: "stack" }, h("p", null, "Makes a token that joins one agent, once, within a day."), name.element, kind.element), action: "Make the token" });
  if (!agreed) return;
  const site = name.input.value.trim();
  try {
    const made = await post("/v1/tokens", { site, kind: kind.input.value });
    await ask({ title: `Join ${site}`, consequence: commands(site, kind.input.value, made.secret), action: "Done", told: true });
  } catch (error) {
    notice(/** @type {Error} */ (error));
  }
}

/** @param {string} site @param {string} kind @param {string} secret */
function commands(site, kind, secret) {
  const file = `site: ${site}\nkind: ${kind}\ndispatcher: ${location.origin}\n`;
  return h(
    "div",
    { class: "stack" },
    h("p", null, "On the host, with Federator installed: write this file as site.yaml (GPUs are found by themselves),"),
    copied(file, "the file"),
    h("p", null, "then join, and serve. The token is shown only here:"),
    copied(`printf %s '${secret}' | federator-agent join --config site.yaml --token -\nfederator-agent serve --config site.yaml`, "the commands"),
  );
}

/** @param {string} words @param {string} what */
function copied(words, what) {
  const done = h("span", { class: "faint", role: "status" });
  async function copy() {
    await navigator.clipboard.writeText(words);
    done.textContent = "copied";
  }
  const can = Boolean(navigator.clipboard);
  return h("div", { class: "copied" }, h("pre", { tabindex: 0, "aria-label": capital(what) }, words), can && h("button", { type: "button", "aria-label": `Copy ${what}`, on: { click: () => void copy() } }, "Copy"), done);
}
