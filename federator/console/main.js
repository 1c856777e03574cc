// Starts the console: signs in, draws the frame, and opens the page that the address names.
import { connection, del, get, signedIn } from "./api.js";
import { notice, problemBox } from "./dialog.js";
import { h, show } from "./dom.js";
import { duration, tick } from "./format.js";

/**
 * What a page is given.
 * @typedef {object} Context
 * @property {Api.WhoAmI} who Who looks; a page that is opened early is not told.
 * @property {string[]} rest The parts of the path after the page's own, decoded.
 * @property {URLSearchParams} query
 * @property {(path: string) => void} go Open another page.
 * @property {(query: Record<string, string>) => void} remember Keep this in the address, so that it can be sent and loaded anew.
 * @property {(title: string) => void} name Give the page a more telling title.
 */
/** @typedef {{title: string, open: (view: HTMLElement, context: Context) => void | (() => void)}} Page */

/** `early`: does not need to know who looks, and is opened before that has been answered. @type {{path: string, title: string, load: () => Promise<Page>, early?: boolean}[]} */
const PAGES = [
  { path: "/", title: "Now", load: () => import("./pages/now.js"), early: true },
  { path: "/plan", title: "Plan", load: () => import("./pages/plan.js") },
  { path: "/jobs", title: "Jobs", load: () => import("./pages/jobs.js") },
  { path: "/submit", title: "Submit", load: () => import("./pages/submit.js") },
  { path: "/money", title: "Money", load: () => import("./pages/money.js") },
  { path: "/policies", title: "Policies", load: () => import("./pages/policies.js") },
  { path: "/sites", title: "Sites", load: () => import("./pages/sites.js") },
  { path: "/decisions", title: "Decisions", load: () => import("./pages/decisions.js") },
];
/** Pages without a place in the navigation, by the first part of their path and more. @type {{path: string, load: () => Promise<Page>}[]} */
const BELOW = [
  { path: "/jobs", load: () => import("./pages/job.js") },
];

/** Names in the tab's storage whose it is. */
const PERSON = "federator-person";
/** Between the two readings of the dispatcher's clock that tell its pace. */
const PACE_MS = 1100;
/** Name in the browser's storage: who has signed in here, and most likely still is. */
const KNOWN = "federator-signed-in";

const frame = h("div", { class: "frame" });
const cut = h("div", { class: "cut", role: "alert", hidden: true });
const person = h("span", { class: "person" });
let view = h("main", { id: "view", tabindex: -1 });
/** @type {(() => void) | void} */
let close;
/** @type {Api.WhoAmI | null} */
let who = null;
let opening = 0;

/** Open the page of the present address. */
async function route() {
  const parts = location.pathname.split("/").filter(Boolean).map(decoded);
  const first = `/${parts[0] ?? ""}`;
  const below = parts.length > 1 ? BELOW.find((each) => each.path === first) : undefined;
  const found = below ?? PAGES.find((each) => each.path === first);
  const turn = ++opening;
  leave();
  for (const link of frame.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === first;
    if (here) {
      link.setAttribute("aria-current", "page");
      // Not scrollIntoView: the next Tab would begin there, and not at the skip link.
      const nav = /** @type {HTMLElement} */ (link.parentElement);
      // With the next frame: to ask now would lay out the page before the page has asked for its data.
      requestAnimationFrame(() => (nav.scrollLeft = /** @type {HTMLElement} */ (link).offsetLeft - nav.offsetLeft - nav.clientWidth / 2));
    } else link.removeAttribute("aria-current");
  }
  if (!found) {
    entitle("Not found");
    show(view, h("h1", null, "There is no such page"), h("p", null, h("a", { href: "/" }, "See what happens now")));
    return;
  }
  try {
    const page = await found.load();
    if (turn !== opening) return;
    entitle(page.title);
    close = page.open(view, { who: /** @type {Api.WhoAmI} */ (who), rest: parts.slice(1), query: new URLSearchParams(location.search), go, remember, name: entitle });
  } catch (error) {
    if (turn === opening) show(view, problemBox(error));
  }
}

/** A part of a path; one that is not encoded as it should be is left as it is. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** End the page that is open. */
function leave() {
  close?.();
  close = undefined;
  const fresh = h("main", { id: "view", tabindex: -1 });
  view.replaceWith(fresh);
  view = fresh;
}

/** @param {string} path */
function go(path) {
  history.pushState(null, "", path);
  void route();
  view.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

/** @param {Record<string, string>} query */
function remember(query) {
  const made = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  history.replaceState(null, "", location.pathname + (made.size ? `?${made}` : ""));
}

/** @param {string} title */
function entitle(title) {
  document.title = `${title} – Federator`;
}

/** Draw what is around the pages. */
function drawFrame() {
  const theme = h("button", { type: "button", class: "plain", on: { click: switchTheme }, "aria-label": "Light or dark" }, "◐");
  const out = h("button", { type: "button", class: "plain", on: { click: signOut } }, "Sign out");
  const links = PAGES.map((each) => h("a", { href: each.path }, each.title));
  show(
    frame,
    h("a", { class: "skip", href: "#view" }, "Skip to the content"),
    h("header", null, h("nav", { "aria-label": "Pages" }, links), h("div", { class: "tools" }, person, theme, out)),
    cut,
    view,
  );
  show(document.body, frame);
}

/** Say for how long the dispatcher has not answered, and let times that are shown go on. */
function watch() {
  connection.subscribe(tell);
  window.setInterval(() => {
    tick();
    tell();
  }, 1000);
  function tell() {
    const { up, since } = connection.value;
    cut.hidden = up;
    const said = up ? "" : `The dispatcher does not answer. What you see was true ${duration((Date.now() - since) / 1000)} ago; this page tries again by itself.`;
    if (cut.textContent !== said) cut.textContent = said;
  }
}

async function signOut() {
  try {
    await del("/v1/session");
    sessionStorage.clear();
    localStorage.removeItem(KNOWN);
    location.assign("/");
  } catch (error) {
    notice(/** @type {Error} */ (error));
  }
}

function switchTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset["theme"] && matchMedia("(prefers-color-scheme: dark)").matches);
  setTheme(dark ? "light" : "dark");
}

/** @param {string} theme */
function setTheme(theme) {
  document.documentElement.dataset["theme"] = theme;
  localStorage.setItem("federator-theme", theme);
}

/** Links inside the console open without loading anew. @param {MouseEvent} event */
function onClick(event) {
  const link = /** @type {HTMLElement} */ (event.target).closest?.("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target || link.hasAttribute("download")) return;
  const href = link.getAttribute("href") ?? "";
  if (!href.startsWith("/") || href.startsWith("/v1/") || href.startsWith("/console/")) return;
  event.preventDefault();
  go(href);
}

/** `/` goes to the search of the page. @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key !== "/" || event.metaKey || event.ctrlKey || event.altKey || target.matches?.("input,textarea,select")) return;
  const search = /** @type {HTMLElement | null} */ (view.querySelector("input[type=search]"));
  if (search) {
    event.preventDefault();
    search.focus();
  }
}

/** @param {string} why */
async function askToSignIn(why) {
  leave();
  localStorage.removeItem(KNOWN);
  const module = await import("./sign_in.js");
  entitle("Sign in");
  await module.signIn(document.body, why, (answer) => {
    signedIn.set(true);
    welcome(answer);
    begin();
  });
}

/** Note who looks. @param {Api.WhoAmI} answer The answer of GET /v1/whoami. */
function welcome(answer) {
  who = answer;
  show(person, who.name);
  person.title = `role ${who.role}`;
  localStorage.setItem(KNOWN, who.name);
  // What the tab keeps, such as the draft of a job file, is not for the next person.
  if (sessionStorage.getItem(PERSON) !== who.name) sessionStorage.clear();
  sessionStorage.setItem(PERSON, who.name);
}

function begin() {
  drawFrame();
  void route();
}

async function start() {
  const theme = localStorage.getItem("federator-theme");
  if (theme) setTheme(theme);
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey);
  window.addEventListener("popstate", () => void (who && route()));
  // Another tab has signed out, or somebody else in: the cookie is all tabs', and what is shown here is not theirs.
  window.addEventListener("storage", (event) => void (event.key === KNOWN && who && event.newValue !== who.name && location.reload()));
  const signingIn = location.pathname === "/sign-in";
  const early = !signingIn && localStorage.getItem(KNOWN) !== null && PAGES.some((each) => each.early && each.path === location.pathname);
  watch();
  if (early) begin();
  for (let answered = signingIn; !answered; ) {
    try {
      welcome(await get("/v1/whoami"));
      answered = true;
    } catch (error) {
      answered = /** @type {import("./api.js").Problem} */ (error).status === 401;
      if (answered) break;
      if (!early) show(document.body, h("main", { id: "view", class: "sign-in" }, h("h1", null, "Federator"), problemBox(error)));
      await new Promise((resolve) => window.setTimeout(resolve, 2000));
    }
  }
  // Clocks of demonstrations run fast: by a second reading it is known how fast, also on pages that ask for nothing more.
  window.setTimeout(() => void (who && get("/v1/whoami").catch(() => {})), PACE_MS);
  if (!who) await askToSignIn("");
  else if (!early) begin();
  signedIn.subscribe((good) => {
    if (good || !who) return;
    who = null;
    void askToSignIn("Your session has ended: the token has expired or was revoked.");
  });
}

void start();
