// Elements and SVG from data. Text is always set as text: markup in what others have written stays text. Nothing here parses HTML.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Child | Child[]} Children */
/**
 * @typedef {object} Extra What is no plain attribute.
 * @property {Record<string, (event: any) => void>} [on] Listeners by the name of the event.
 * @property {Record<string, string>} [css] Custom properties of CSS, such as `--part`.
 * @property {Record<string, string>} [data]
 */
/** @typedef {Extra & {[name: string]: any}} Attributes */

const SVG = "http://www.w3.org/2000/svg";
const SAFE = /^(\/(?!\/)|#|https?:\/\/|blob:)/;

/**
 * An element of HTML: `h("a", {href: "/jobs"}, "Jobs")`. An attribute that is null, undefined or false is left out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes | null} [attributes]
 * @param {...Children} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  dress(element, attributes);
  fill(element, children);
  return element;
}

/**
 * The same for SVG: geometry goes into attributes.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes | null} [attributes]
 * @param {...Children} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  dress(element, attributes);
  fill(element, children);
  return /** @type {SVGElementTagNameMap[K]} */ (element);
}

/**
 * Put these in the place of everything that an element holds.
 * @param {Element} element
 * @param {...Children} children
 */
export function show(element, ...children) {
  element.replaceChildren();
  fill(element, children);
}

/**
 * Make the children of an element those of a list, by key: an element that is there already is kept, with focus and selection, so rows do not jump.
 * @template T
 * @param {Element} parent
 * @param {readonly T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => Element} make
 * @param {(element: any, item: T) => void} [update]
 */
export function keyed(parent, items, keyOf, make, update) {
  /** @type {Map<string, Element>} */
  const known = new Map();
  const focused = /** @type {HTMLElement | null} */ (parent.contains(document.activeElement) ? document.activeElement : null);
  for (const child of parent.children) known.set(/** @type {any} */ (child).itemKey, child);
  /** @type {Element | null} */
  let before = null;
  for (const item of items) {
    const key = keyOf(item);
    let element = known.get(key);
    known.delete(key);
    if (element === undefined) {
      element = make(item);
      /** @type {any} */ (element).itemKey = key;
    } else if (update) update(element, item);
    /** @type {ChildNode | null} */
    const place = before === null ? parent.firstChild : before.nextSibling;
    if (place !== element) parent.insertBefore(element, place);
    before = element;
  }
  for (const element of known.values()) element.remove();
  // One that was moved has lost it.
  if (focused && focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/**
 * @param {Element} element
 * @param {Attributes | null | undefined} attributes
 */
function dress(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, /** @type {any} */ (listener));
    else if (name === "css") for (const [property, each] of Object.entries(value)) /** @type {HTMLElement} */ (element).style.setProperty(property, String(each));
    else if (name === "data") for (const [key, each] of Object.entries(value)) /** @type {HTMLElement} */ (element).dataset[key] = String(each);
    else if (name === "value" && "value" in element) /** @type {any} */ (element).value = value;
    else if (name === "style" || name.startsWith("on")) throw new Error(`${name} is not an attribute that may be set`);
    else if ((name === "href" || name === "src" || name === "action") && !SAFE.test(String(value))) throw new Error(`${name} leads somewhere that is not allowed`);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {Element} element
 * @param {Children[]} children
 */
function fill(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) fill(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
}
