// What a terminal sends for a key, as xterm does.

/** Keys that end in a letter after CSI, or after SS3 where the program asked for that. @type {Record<string, string>} */
const LETTERS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", End: "F", Home: "H" };
/** Function keys that are letters after SS3. @type {Record<string, string>} */
const FUNCTIONS = { F1: "P", F2: "Q", F3: "R", F4: "S" };
/** Keys with a number and a tilde. @type {Record<string, number>} */
const NUMBERED = { Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24 };
/** @type {Record<string, string>} */
const SINGLE = { Enter: "\r", Tab: "\t", Escape: "\u001b", Backspace: "\u007f" };

/** @typedef {{key: string, ctrlKey?: boolean, altKey?: boolean, shiftKey?: boolean, metaKey?: boolean}} Key */

/**
 * What is sent for a key that is pressed; null where the page leaves it to the browser.
 * @param {Key} pressed
 * @param {boolean} arrows The program asked for cursor keys of its own.
 * @returns {string | null}
 */
export function sentFor({ key, ctrlKey, altKey, shiftKey, metaKey }, arrows) {
  if (metaKey) return null;
  const held = 1 + Number(Boolean(shiftKey)) + 2 * Number(Boolean(altKey)) + 4 * Number(Boolean(ctrlKey));
  const letter = LETTERS[key];
  if (letter) return held > 1 ? `\u001b[1;${held}${letter}` : `\u001b${arrows ? "O" : "["}${letter}`;
  const made = FUNCTIONS[key];
  if (made) return held > 1 ? `\u001b[1;${held}${made}` : `\u001bO${made}`;
  const number = NUMBERED[key];
  if (number) return `\u001b[${number}${held > 1 ? `;${held}` : ""}~`;
  if (key === "Tab" && shiftKey) return "\u001b[Z";
  const before = altKey ? "\u001b" : "";
  const single = SINGLE[key];
  if (single) return before + (key === "Backspace" && ctrlKey ? "\b" : single);
  if ([...key].length !== 1) return null;
  if (!ctrlKey) return altKey ? before + key : null;
  const code = control(key);
  return code === null ? null : before + code;
}

/** @param {string} key @returns {string | null} */
function control(key) {
  if (key === " " || key === "2") return "\u0000";
  if (key === "/") return "\u001f";
  if (key === "?" || key === "8") return "\u007f";
  const code = key.toUpperCase().charCodeAt(0);
  return code >= 0x40 && code <= 0x5f ? String.fromCharCode(code - 0x40) : null;
}

/**
 * What is sent for a text that is pasted: lines end as a key would end them, and a program that asked for it is told that it is no typing.
 * @param {string} text
 * @param {boolean} bracketed
 */
export function pasted(text, bracketed) {
  const plain = text.replace(/\r?\n/g, "\r");
  // The mark that ends a paste is taken out, or the rest would count as typed.
  return bracketed ? `\u001b[200~${plain.replaceAll("\u001b", "")}\u001b[201~` : plain;
}
