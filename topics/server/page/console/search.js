// Search in the data of records: a text, or a value at a JSON path, from the newest record back.
//
// The server does not look into data, so the records are read and looked at here, a window at a time; it says how
// far it is and may be stopped anywhere.

import { textOf } from "./json.js";
import { read } from "./reading.js";

const WINDOW = 1000, FOUND_MAX = 50, WHOLE = /^-?\d+$/;
const PATH = /^\$((?:\.[^.[\]=\s]+|\[\d+\])+)\s*=\s*(.*)$/;

/** What stands at a path of a value that is kept as tokens; undefined: nothing. */
function at(value, steps) {
  for (const step of steps) {
    if (typeof value === "string") return undefined;
    const found = value.isObject ? value.parts.findLast(([name]) => JSON.parse(name) === step) : value.parts[step];
    if (!found) return undefined;
    value = found[1];
  }
  return value;
}

/** Whether a token is what was typed: as JSON, as a number of the same value, or as the text of a string. */
function isTyped(token, typed) {
  const text = textOf(token);
  if (text === typed) return true;
  if (text[0] === '"') return JSON.parse(text) === typed;
  if (WHOLE.test(text) && WHOLE.test(typed)) return BigInt(text) === BigInt(typed);
  return typed !== "" && /^-?\d/.test(text) && Number(text) === Number(typed);
}

/** Whether a record's data is looked for. @param typed a text, or `$.path = value` */
export function matcher(typed) {
  const path = typed.match(PATH);
  if (path) {
    const steps = path[1].match(/[^.[\]]+/g), value = path[2].trim();
    return ({ data }) => {
      const token = at(data, steps);
      return token !== undefined && isTyped(token, value);
    };
  }
  const wanted = typed.toLowerCase();
  return ({ data }) => {
    const text = textOf(data), shown = text.includes("\\") ? text + JSON.stringify(JSON.parse(text)) : text;
    return shown.toLowerCase().includes(wanted);
  };
}

/** Records before a seq that match, newest first, at most so many as are shown.
 * @param onProgress Called with what was looked at, and how many were found.
 * @returns {items: ascending, next: where to go on, or 0, error: what ended it early} */
export async function search(topic, { before, typed, tag, isStopped, onProgress }) {
  const isHit = matcher(typed), found = [], filter = tag ? { match: tag } : {};
  let high = before - 1, looked = 0, earliest = 1, error;
  try {
    while (high >= earliest && found.length < FOUND_MAX && !isStopped()) {
      const low = Math.max(high - WINDOW, 0), window = await readWindow(topic, low, high, filter, isStopped);
      if (!window) break; // it was not read to its end: the next search begins with it
      earliest = window.earliest;
      looked += window.items.length;
      found.unshift(...window.items.filter(isHit));
      high = low;
      onProgress(looked, found.length, low);
    }
  } catch (why) {
    error = why;
  }
  const items = found.slice(-FOUND_MAX);
  const next = found.length > FOUND_MAX ? items[0].seq : high >= earliest ? high + 1 : 0;
  return { items, next, error };
}

/** The records after `low`, to `high` inclusive; null where it was stopped before the last of them was read. */
async function readWindow(topic, low, high, filter, isStopped) {
  const items = [];
  let page, from = low;
  do {
    page = await read(topic, { ...filter, from_seq: from, limit: WINDOW, include_tags: true });
    items.push(...page.items.filter((item) => item.seq && item.seq <= high));
    from = page.next;
    if (from >= high || page.isEnd) return { items, earliest: page.earliest };
  } while (!isStopped());
  return null;
}
