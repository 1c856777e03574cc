// Where each piece of work lies in its lane: one row per GPU, so that height is what it takes. Nothing here draws.

/**
 * @typedef {object} Lane As `GET /v1/plan` has it; fields without a value are left out there.
 * @property {string} key
 * @property {string} site
 * @property {string} pool
 * @property {string} [kind]
 * @property {string} [model]
 * @property {string} [market]
 * @property {boolean} [shared]
 * @property {number} [gpus_per_node]
 * @property {Record<string, number>} [members]
 * @property {string} [lease]
 * @property {string} [offer]
 * @property {string} [closed]
 */
/**
 * @typedef {object} Bar
 * @property {string} id
 * @property {string} lane
 * @property {string} state
 * @property {number} start_at
 * @property {number} end_at
 * @property {number} [gpus]
 * @property {string[]} [members]
 * @property {string} [job]
 * @property {string} [name]
 * @property {string} [owner]
 * @property {string} [queue]
 * @property {number | null} [deadline_at]
 * @property {string} [status]
 * @property {string} [because]
 * @property {number} [tasks]
 * @property {number} [ran_until] Of work of the past that grows with the moment that is shown: when it really ended.
 */
/** @typedef {{bar: Bar, boxes: {row: number, rows: number}[]}} Packed A bar, and the rows that it lies in. */
/** @typedef {{lane: Lane, rows: number, packed: Packed[]}} PackedLane `rows`: how high the lane is. */

/** Work that ends a moment after the next begins, by estimates that do not quite fit, does not overlap it. */
const SLACK_S = 2;
/** Rows of a lane for what has no GPU of its own there: work on CPUs, on parts of GPUs, and what is late and in the way. */
const MOST_BELOW = 64;

/**
 * Every lane with its bars in rows.
 * @param {readonly Lane[]} lanes
 * @param {readonly Bar[]} bars
 * @returns {PackedLane[]}
 */
export function pack(lanes, bars) {
  /** @type {Map<string, Bar[]>} */
  const of = new Map();
  for (const bar of bars) {
    const known = of.get(bar.lane);
    if (known) known.push(bar);
    else of.set(bar.lane, [bar]);
  }
  return lanes.map((lane) => packLane(lane, (of.get(lane.key) ?? []).sort((one, other) => one.start_at - other.start_at || (one.id < other.id ? -1 : 1))));
}

/**
 * @param {Lane} lane
 * @param {readonly Bar[]} bars In the order in which they start.
 * @returns {PackedLane}
 */
function packLane(lane, bars) {
  const each = lane.shared ? 0 : (lane.gpus_per_node ?? 0);
  /** @type {{member: string, first: number}[]} */
  const hosts = [];
  for (const [member, count] of Object.entries(lane.members ?? {})) for (let host = 0; each && host < count; host++) hosts.push({ member, first: hosts.length * each });
  const free = new Float64Array(hosts.length * each).fill(-Infinity);
  /** @type {number[]} */
  const below = [];
  const packed = bars.map((bar) => {
    if (bar.state === "booting" || bar.state === "kept") return { bar, boxes: [{ row: 0, rows: Math.max(1, free.length) }] };
    const rows = onHosts(bar, hosts, each, free);
    if (rows) {
      for (const row of rows) free[row] = bar.end_at;
      return { bar, boxes: runs(rows) };
    }
    let row = below.findIndex((end) => end <= bar.start_at + SLACK_S);
    if (row < 0) row = below.length < MOST_BELOW ? below.length : below.indexOf(Math.min(...below));
    below[row] = bar.end_at;
    return { bar, boxes: [{ row: free.length + row, rows: 1 }] };
  });
  return { lane, rows: Math.max(1, free.length + below.length), packed };
}

/**
 * The rows of the GPUs that a bar is drawn on: where its members have them free, or any; null where there are none for it.
 * @param {Bar} bar
 * @param {readonly {member: string, first: number}[]} hosts
 * @param {number} each GPUs of a host.
 * @param {Float64Array} free Until when each GPU is taken.
 */
function onHosts(bar, hosts, each, free) {
  const ranks = bar.members?.length ? bar.members : [""];
  const gpus = (bar.gpus ?? 0) / ranks.length;
  if (!hosts.length || gpus < 1) return null;
  const taken = new Set();
  /** @param {number} row */
  const open = (row) => /** @type {number} */ (free[row]) <= bar.start_at + SLACK_S && !taken.has(row);
  for (const member of ranks) {
    let left = Math.round(gpus);
    for (const whole of [true, false]) {
      for (const host of hosts) {
        if (left <= 0) break;
        if (member && host.member !== member) continue;
        const rows = [];
        for (let row = host.first; row < host.first + each; row++) if (open(row)) rows.push(row);
        if (whole && rows.length < Math.min(left, each)) continue;
        for (const row of rows.slice(0, left)) taken.add(row);
        left -= Math.min(left, rows.length);
      }
    }
    if (left > 0) return null;
  }
  return [...taken].sort((one, other) => one - other);
}

/** Rows that lie beside each other, as boxes. @param {readonly number[]} rows */
function runs(rows) {
  /** @type {{row: number, rows: number}[]} */
  const boxes = [];
  for (const row of rows) {
    const last = boxes[boxes.length - 1];
    if (last && last.row + last.rows === row) last.rows += 1;
    else boxes.push({ row, rows: 1 });
  }
  return boxes;
}
