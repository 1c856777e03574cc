// What a terminal sends for the mouse, as xterm does, to programs that have asked for it in the form of SGR (mode 1006).

/** @typedef {"down" | "up" | "move" | "wheel"} Kind */
/** What a program asked for: nothing (0), buttons (1000), drags too (1002), or every move (1003). @typedef {{mouse: number, sgrMouse: boolean}} MouseModes */
/** @typedef {{altKey?: boolean, ctrlKey?: boolean}} Held */

/**
 * What is sent; empty: the program did not ask for it.
 * @param {Kind} kind
 * @param {number} button 0 left, 1 middle, 2 right, -1 none; of the wheel 0 up, 1 down.
 * @param {readonly [number, number]} cell Column and row, from 0.
 * @param {MouseModes} modes
 * @param {Held} [held]
 */
export function mouseSent(kind, button, [column, row], { mouse, sgrMouse }, { altKey, ctrlKey } = {}) {
  if (!mouse || !sgrMouse) return "";
  if (kind === "move" && mouse < (button < 0 ? 1003 : 1002)) return "";
  const code = (button < 0 ? 3 : button) + 8 * Number(Boolean(altKey)) + 16 * Number(Boolean(ctrlKey)) + (kind === "move" ? 32 : 0) + (kind === "wheel" ? 64 : 0);
  return `\u001b[<${code};${column + 1};${row + 1}${kind === "up" ? "m" : "M"}`;
}

/** The button that is held while the mouse moves. @param {number} buttons As a browser tells them. */
export const heldButton = (buttons) => (buttons & 1 ? 0 : buttons & 4 ? 1 : buttons & 2 ? 2 : -1);
