// Looks of text as terminals are told them (SGR, "select graphic rendition"): attributes, and colours of the palettes of 16 and 256 and of 24 bits.
import { h } from "./dom.js";

/**
 * How letters look. A colour is -1 for the usual one, 0 to 255 of the palette, or `TRUE` with 24 bits.
 * @typedef {{readonly fg: number, readonly bg: number, readonly flags: number}} Style
 */
/** @typedef {{text: string, style: Style}} Run */

const TRUE = 0x1000000;
/** The usual colours, as `screens.css` has them. */
const GROUND = 0x14171b;
const TEXT = 0xe4e8ed;
const PALETTE = [GROUND, 0xe2564a, 0x3fa34d, 0xc9922b, 0x3a6fd0, 0xa855c0, 0x1f9fb5, 0xc8ced6, 0x6b7482, 0xff7a6e, 0x6fd084, 0xf0c75e, 0x77a8ff, 0xd792ea, 0x63d3e3, 0xffffff];
const LEGIBLE = 4.5;
const BOLD = 1;
const FAINT = 2;
const ITALIC = 4;
const UNDERLINE = 8;
const INVERSE = 16;
const STRUCK = 32;
/** @type {readonly [number, string][]} */
const CLASSES = [[BOLD, "bold"], [FAINT, "dim"], [ITALIC, "italic"], [UNDERLINE, "underline"], [STRUCK, "struck"]];
/** What switches attributes on and off. Blinking and concealed text stay as they are: the one disturbs, the other hides. @type {Record<number, [number, boolean]>} */
const ATTRIBUTES = { 1: [BOLD, true], 2: [FAINT, true], 3: [ITALIC, true], 4: [UNDERLINE, true], 7: [INVERSE, true], 9: [STRUCK, true], 21: [UNDERLINE, true], 22: [BOLD | FAINT, false], 23: [ITALIC, false], 24: [UNDERLINE, false], 27: [INVERSE, false], 29: [STRUCK, false] };
const STEPS = [0, 95, 135, 175, 215, 255];

/** @type {Style} */
export const PLAIN = Object.freeze({ fg: -1, bg: -1, flags: 0 });

/**
 * The numbers of a sequence: `38;5;196` is `[[38], [5], [196]]`, and `4:3` is `[[4, 3]]`. At most 32, each below 65,536; what is left out is 0.
 * @param {string} text
 */
export function numbers(text) {
  return text.split(";", 32).map((each) => each.split(":", 8).map((digits) => Math.min(65535, Number(digits) || 0)));
}

/**
 * A style after such a sequence. What it does not know it leaves as it is.
 * @param {Style} style
 * @param {number[][]} given
 * @returns {Style}
 */
export function restyled(style, given) {
  let { fg, bg, flags } = style;
  for (let index = 0; index < given.length; index += 1) {
    const [code = 0, sub] = given[index] ?? [];
    const attribute = ATTRIBUTES[code];
    if (code === 0) [fg, bg, flags] = [-1, -1, 0];
    else if (attribute) flags = attribute[1] && !(code === 4 && sub === 0) ? flags | attribute[0] : flags & ~attribute[0];
    else if (code === 38 || code === 48) {
      const [colour, taken] = colourOf(given, index);
      index += taken;
      if (colour === null) continue;
      if (code === 38) fg = colour;
      else bg = colour;
    } else if (code >= 30 && code <= 37) fg = code - 30;
    else if (code === 39) fg = -1;
    else if (code >= 40 && code <= 47) bg = code - 40;
    else if (code === 49) bg = -1;
    else if (code >= 90 && code <= 97) fg = code - 82;
    else if (code >= 100 && code <= 107) bg = code - 92;
  }
  return fg === style.fg && bg === style.bg && flags === style.flags ? style : { fg, bg, flags };
}

/** The colour after a 38 or 48, in either spelling, and how many numbers beyond it were used. @param {number[][]} given @param {number} index @returns {[number | null, number]} */
function colourOf(given, index) {
  const own = given[index] ?? [];
  const inside = own.length > 1;
  const rest = inside ? own.slice(1) : given.slice(index + 1, index + 5).map((each) => each[0] ?? 0);
  if (rest[0] === 5) return [rest[1] !== undefined && rest[1] < 256 ? rest[1] : null, inside ? 0 : 2];
  if (rest[0] !== 2) return [null, inside ? 0 : 1];
  // With colons there may be a colour space before the three.
  const parts = rest.slice(inside && rest.length > 4 ? 2 : 1).slice(0, 3);
  const good = parts.length === 3 && parts.every((each) => each < 256);
  return [good ? parts.reduce((sum, each) => sum * 256 + each, 0) + TRUE : null, inside ? 0 : 4];
}

/** A colour as 24 bits. @param {number} colour */
function rgb(colour) {
  if (colour < 16) return PALETTE[colour] ?? 0;
  if (colour >= TRUE) return colour - TRUE;
  if (colour >= 232) return (8 + 10 * (colour - 232)) * 0x010101;
  const cube = colour - 16;
  return [Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].reduce((sum, each) => sum * 256 + (STEPS[each] ?? 0), 0);
}

/** @param {number} colour 24 bits. */
const parts = (colour) => [colour >> 16, (colour >> 8) & 255, colour & 255];
/** @param {number} colour 24 bits. */
const css = (colour) => `#${colour.toString(16).padStart(6, "0")}`;

/** How bright a colour is, as WCAG reckons it. @param {number} colour 24 bits. */
function luminance(colour) {
  const [red = 0, green = 0, blue = 0] = parts(colour).map((each) => (each <= 10 ? each / 3294 : ((each / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The colour, or one nearer to white or black that can be read on that ground: nothing hides by being as its ground is. @param {number} front @param {number} back 24 bits, both. */
function legible(front, back) {
  const ground = luminance(back);
  const pole = ground < 0.18 ? 255 : 0;
  let found = front;
  for (let step = 0; step < 40; step += 1) {
    const [low, high] = [luminance(found), ground].sort((one, other) => one - other);
    if (((high ?? 0) + 0.05) / ((low ?? 0) + 0.05) >= LEGIBLE) break;
    found = parts(found).reduce((sum, each) => sum * 256 + Math.round(each + (pole - each) / 8), 0);
  }
  return found;
}

/** Whether two look the same. @param {Style} one @param {Style} other */
export const alike = (one, other) => one === other || (one.fg === other.fg && one.bg === other.bg && one.flags === other.flags);

/**
 * Text in its looks: a text alone where they are the usual ones.
 * @param {string} text
 * @param {Style} style
 * @param {string} [more] Further classes.
 * @returns {HTMLElement | string}
 */
export function painted(text, style, more = "") {
  if (!more && alike(style, PLAIN)) return text;
  const inverse = Boolean(style.flags & INVERSE);
  const [front, back] = [style.fg < 0 ? TEXT : rgb(style.fg), style.bg < 0 ? GROUND : rgb(style.bg)];
  const [letters, ground] = inverse ? [back, front] : [front, back];
  /** @type {Record<string, string>} */
  const colours = {};
  if (letters !== TEXT || ground !== GROUND) colours["color"] = css(legible(letters, ground));
  if (ground !== GROUND) colours["background-color"] = css(ground);
  const names = CLASSES.filter(([flag]) => style.flags & flag).map(([, name]) => name);
  return h("span", { class: [...names, more].filter(Boolean).join(" ") || null, css: colours }, text);
}
