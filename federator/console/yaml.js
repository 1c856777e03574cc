// Job files as text: writes YAML of plain data, and finds where in it somebody is.

/** Words that YAML would read as something else than a text. */
const OTHER = /^(true|false|yes|no|on|off|null|~|[-+]?[\d.][\d._eE:+-]*|0x[\da-fA-F]+|0o[0-7]+|\.(inf|nan))$/i;
const PLAIN = /^[A-Za-z0-9_./](?:[A-Za-z0-9_./@%+=,| -]|:(?=\S))*$/;

/**
 * YAML of plain data; what is undefined or empty is left out.
 * @param {Record<string, any>} data
 * @param {string} [indent]
 * @returns {string}
 */
export function written(data, indent = "") {
  let text = "";
  for (const [key, value] of Object.entries(data)) {
    if (value === undefined || value === null || value === "" || (typeof value === "object" && Object.keys(value).length === 0)) continue;
    const name = `${indent}${scalar(key)}:`;
    if (Array.isArray(value)) text += `${name} [${value.map(scalar).join(", ")}]\n`;
    else if (typeof value === "object") text += `${name}\n${written(value, `${indent}  `)}`;
    else if (typeof value === "string" && value.includes("\n")) text += `${name} |\n${value.replace(/\n+$/, "").split("\n").map((line) => (line ? `${indent}  ${line}` : "")).join("\n")}\n`;
    else text += `${name} ${scalar(value)}\n`;
  }
  return text;
}

/** @param {any} value */
function scalar(value) {
  const text = String(value);
  if (typeof value !== "string") return text;
  return PLAIN.test(text) && !OTHER.test(text) && !text.endsWith(" ") && !text.includes(" #") && !text.includes(", ") ? text : JSON.stringify(text);
}

/**
 * The keys under which a place in a text is, outermost first: by the indentation of the lines before it.
 * @param {string} text
 * @param {number} place
 * @returns {string[]}
 */
export function pathAt(text, place) {
  const end = text.indexOf("\n", place);
  const lines = text.slice(0, end < 0 ? text.length : end).split("\n");
  /** @type {string[]} */
  const path = [];
  let within = Infinity;
  for (const line of lines.reverse()) {
    const found = /^(\s*)(?:- )?([A-Za-z_][\w-]*)\s*:/.exec(line);
    if (!found) {
      if (within === Infinity && line.trim()) within = line.search(/\S/);
      continue;
    }
    const depth = found[1]?.length ?? 0;
    if (depth < within || path.length === 0) {
      if (path.length > 0 || depth < within || within === Infinity) path.unshift(found[2] ?? "");
      within = depth;
    }
    if (depth === 0) break;
  }
  return path;
}

/**
 * What a JSON Schema says of the field at a path, and which fields are known there; null where it says nothing.
 * @param {any} schema
 * @param {string[]} path
 */
export function described(schema, path) {
  let here = resolve(schema, schema);
  /** @type {any} */
  let field = null;
  for (const name of path) {
    const next = propertyOf(schema, here, name);
    if (!next) return null;
    field = next;
    here = resolve(schema, next);
  }
  const known = fieldsOf(schema, here);
  return { name: path[path.length - 1] ?? "", text: String(field?.description ?? ""), examples: examplesOf(schema, field), known };
}

/** @param {any} schema @param {any} part @returns {any} */
function resolve(schema, part) {
  let found = part;
  for (let step = 0; step < 8 && found?.$ref; step += 1) found = schema.$defs?.[found.$ref.replace("#/$defs/", "")];
  return found;
}

/** A part, and the choices in it. @param {any} schema @param {any} part @returns {any[]} */
function choices(schema, part) {
  const found = resolve(schema, part);
  return found ? [found, ...[...(found.anyOf ?? []), ...(found.oneOf ?? [])].flatMap((each) => choices(schema, each)), ...(found.items ? choices(schema, found.items) : [])] : [];
}

/** @param {any} schema @param {any} part @param {string} name */
const propertyOf = (schema, part, name) => choices(schema, part).find((each) => each.properties?.[name])?.properties[name];
/** @param {any} schema @param {any} part @returns {string[]} */
const fieldsOf = (schema, part) => [...new Set(choices(schema, part).flatMap((each) => Object.keys(each.properties ?? {})))];
/** @param {any} schema @param {any} part @returns {string[]} */
const examplesOf = (schema, part) => [...new Set(choices(schema, part).flatMap((each) => [...(each.examples ?? []), ...(each.enum ?? [])].map(String)))];
