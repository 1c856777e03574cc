// Job files as text: writes YAML of plain data, and finds where in it somebody is.

/** Words that YAML would read as something else than a text. */
const OTHER = /^(true|false|yes|no|on|off|null|~|[-+]?[\d.][\d._eE:+-]*|0x[\da-fA-F]+|0o[0-7]+|\.(inf|nan))$/i;
const PLAIN = /^[A-Za-z0-9_./](?:[A-Za-z0-9_./@%+=,| -]|:(?=\S))*$/;

/** Lines that may stand as they are below a `|`. */
const BLOCK = /^[^\s\u0000-\u001f][^\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\ufeff]*\n/;

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
    else if (typeof value === "object") {
      const inside = written(value, `${indent}  `);
      if (inside) text += `${name}\n${inside}`;
    }
    else if (typeof value === "string" && BLOCK.test(value)) text += `${name} |\n${value.replace(/\n+$/, "").split("\n").map((line) => (line ? `${indent}  ${line}` : "")).join("\n")}\n`;
    else text += `${name} ${scalar(value)}\n`;
  }
  return text;
}

/** @param {any} value */
function scalar(value) {
  if (typeof value === "object") return JSON.stringify(value);
  const text = String(value);
  if (typeof value !== "string") return text;
  return PLAIN.test(text) && !OTHER.test(text) && !text.endsWith(" ") && !text.includes(" #") && !text.includes(", ") ? text : JSON.stringify(text);
}

/**
 * A text with another value of one of its keys: all else stays as it is written, with its comments. What is undefined or empty is taken out. Null: it is not written a key a line.
 * @param {string} text
 * @param {string[]} path One key or two, outermost first.
 * @param {any} value
 * @returns {string | null}
 */
export function replaced(text, [key = "", name = ""], value) {
  const lines = text.split("\n");
  const { from, to } = block(lines, `${key}:`, 0);
  if (from < 0) {
    if (lines.some((line) => !/^(\s|#|- |---|[A-Za-z_][\w-]*:|$)/.test(line))) return null;
    const made = written({ [key]: name ? bare({ [name]: value }) : value });
    return made ? `${text.replace(/\n*$/, text.trim() ? "\n" : "")}${made}` : text;
  }
  if (!name) lines.splice(from, to - from, ...linesOf(written({ [key]: value })));
  else {
    if (!/^[\w-]+:\s*(#.*)?$/.test(lines[from] ?? "")) return null;
    const inside = lines.slice(from + 1, to);
    const depth = Math.max(2, inside.find((line) => /^\s*[^\s#]/.test(line))?.search(/\S/) ?? 2);
    const found = block(inside, `${" ".repeat(depth)}${name}:`, depth);
    inside.splice(Math.max(0, found.from), found.to - found.from, ...linesOf(written(bare({ [name]: value }), " ".repeat(depth))));
    lines.splice(from, to - from, ...(inside.some((line) => line.trim()) ? [lines[from] ?? "", ...inside] : []));
  }
  return lines.join("\n");
}

/** Where what begins so is among lines, and where it ends; -1 where it is not. Comments and empty lines before the next key are about that one. @param {string[]} lines @param {string} start @param {number} depth */
function block(lines, start, depth) {
  const from = lines.findIndex((line) => line.startsWith(start));
  if (from < 0) return { from, to: from };
  let to = from + 1;
  while (to < lines.length && (!lines[to]?.trim() || (lines[to]?.search(/\S/) ?? 0) > depth || /^\s*(#|- |-$)/.test(lines[to] ?? ""))) to += 1;
  while (to > from + 1 && (lines[to - 1]?.search(/\S/) ?? -1) <= depth && !/^\s*-/.test(lines[to - 1] ?? "")) to -= 1;
  return { from, to };
}

/** @param {Record<string, any>} data */
const bare = (data) => Object.fromEntries(Object.entries(data).filter(([, value]) => value !== ""));
/** @param {string} text */
const linesOf = (text) => (text ? text.replace(/\n$/, "").split("\n") : []);

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
