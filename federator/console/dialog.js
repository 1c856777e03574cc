// What the console says to a person: what went wrong, what was done, and what would follow, before it is done.
import { Problem } from "./api.js";
import { h, show } from "./dom.js";

/**
 * Ask before acting. The consequence may be looked up meanwhile; answers whether the person agreed.
 * @param {{title: string, consequence: import("./dom.js").Children | Promise<import("./dom.js").Children>, action: string, grave?: boolean, told?: boolean}} given `action` is the word on the button; `grave`: what cannot be undone; `told`: there is nothing to decide.
 * @returns {Promise<boolean>}
 */
export function ask({ title, consequence, action, grave, told: only = false }) {
  return new Promise((resolve) => {
    const told = h("div", { class: "consequence" }, "Looking what would follow …");
    const agree = h("button", { type: "submit", value: "yes", class: grave ? "grave" : "main" }, action);
    const leave = h("button", { type: "submit", value: "" }, "Leave it");
    const heading = h("h2", { id: "dialog-title" }, title);
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("form", { method: "dialog" }, heading, told, h("div", { class: "actions" }, !only && leave, agree)));
    Promise.resolve(consequence).then(
      (found) => show(told, found),
      (error) => show(told, problemBox(error)),
    );
    dialog.addEventListener("click", (event) => /** @type {HTMLElement} */ (event.target).closest("a") && dialog.close(""));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
    (only ? agree : leave).focus();
  });
}

/**
 * What went wrong, with the remedy.
 * @param {any} error
 */
export function problemBox(error) {
  const problem = error instanceof Problem ? error : new Problem({ detail: String(error?.message ?? error) });
  if (!(error instanceof Problem)) console.error(error);
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("strong", null, capital(problem.message), "."),
    problem.field && h("span", { class: "faint" }, ` (${problem.field})`),
    problem.remedy && h("p", null, capital(problem.remedy), "."),
    problem.leader && h("p", null, h("a", { href: problem.leader }, "Open the console of the dispatcher that leads")),
  );
}

/** Whether an address names nothing that there is. @param {Problem} error */
export const namesNone = (error) => error.status === 404 || error.status === 400;

/**
 * A page about something that is not there, or no more.
 * @param {HTMLElement} view @param {string} what Such as `job`. @param {any} error @param {string} all Where there are those that are. @param {(title: string) => void} name
 */
export function showNone(view, what, error, all, name) {
  name(`No such ${what}`);
  show(view, h("h1", null, `There is no such ${what}`), problemBox(error), h("p", null, h("a", { href: all }, `See all ${what}s`)));
}

/**
 * Say briefly what was done, or what went wrong; it goes away by itself, and wrong things stay until they are closed.
 * @param {string | Error} what
 */
export function notice(what) {
  let place = document.querySelector(".notices");
  if (!place) document.body.append((place = h("div", { class: "notices", role: "status" })));
  const bad = typeof what !== "string";
  const made = h("div", { class: `notice ${bad ? "bad" : ""}` }, bad ? problemBox(what) : what, h("button", { type: "button", class: "close", "aria-label": "Close", on: { click: () => made.remove() } }, "×"));
  place.append(made);
  if (!bad) window.setTimeout(() => made.remove(), 6000);
}

/** @param {string} words */
export const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1).replace(/\.$/, "");
