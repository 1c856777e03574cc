// Fields of forms: a label, what it asks for, help, and what is wrong with it.
import { h } from "./dom.js";

let count = 0;

/**
 * A field with its label. `element` is the whole; `input` has the value.
 * @template {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} I
 * @param {string} label
 * @param {I} input
 * @param {string} [help]
 */
export function field(label, input, help) {
  count += 1;
  input.id ||= `field-${count}`;
  const told = h("p", { class: "help", id: `${input.id}-help` }, help ?? "");
  const wrong = h("p", { class: "wrong", id: `${input.id}-wrong`, hidden: true });
  told.hidden = !help;
  input.setAttribute("aria-describedby", `${told.id} ${wrong.id}`);
  return {
    element: h("div", { class: "field" }, h("label", { for: input.id }, label), input, told, wrong),
    input,
    /** Say what is wrong; empty: nothing. @param {string} what */
    refuse(what) {
      wrong.textContent = what;
      wrong.hidden = !what;
      input.setAttribute("aria-invalid", String(Boolean(what)));
    },
  };
}

/** @param {string} name @param {{[name: string]: any}} [attributes] */
export const text = (name, attributes) => h("input", { type: "text", name, autocomplete: "off", spellcheck: "false", ...attributes });

/**
 * @param {string} name
 * @param {readonly (string | [string, string])[]} choices Values, or pairs of value and words.
 * @param {string} [chosen]
 */
export function select(name, choices, chosen = "") {
  const made = h("select", { name }, choices.map((each) => h("option", { value: typeof each === "string" ? each : each[0] }, typeof each === "string" ? each : each[1])));
  made.value = chosen;
  return made;
}
