// JSON, both ways, with integers beyond 2^53 as `bigint`.
//
// `JSON.parse` rounds such integers, and `JSON.stringify` refuses a `bigint`. Both are taken round
// by a string with a random mark that stands in for the number. New engines can do so by themselves
// (`context.source`, `JSON.rawJSON`), but not yet all that this client runs on.

import { randomHex } from "./random.js";

/** Sixteen digits in a row: only then may there be an integer beyond 2^53. */
const LONG_NUMBER = /\d{16}/;
/**
 * A string, or a number that is an integer of at least 16 digits and neither has a fraction nor an
 * exponent.
 */
const STRING_OR_LONG_INTEGER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d{16,}(?![\d.eE])/g;

/**
 * The value of a JSON text.
 *
 * @param exact integers that a number cannot hold become a `bigint`; else they are rounded
 * @throws SyntaxError the text is no JSON
 */
export function decode(text: string, exact: boolean): any {
  if (!exact || !LONG_NUMBER.test(text)) return JSON.parse(text);
  const mark = `${randomHex(8)}:`;
  const marked = text.replace(STRING_OR_LONG_INTEGER, (found) =>
    found[0] === '"' || Number.isSafeInteger(Number(found)) ? found : `"${mark}${found}"`,
  );
  if (marked.length === text.length) return JSON.parse(text);
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value,
  );
}

/**
 * A value as JSON. A `bigint` is written as the integer that it is, exactly; an object with
 * `toJSON`, as a `Date`, as what that returns; a property that is undefined is left out.
 *
 * @throws TypeError JSON has no form for the value, or for a part of it: NaN, an infinity,
 *     undefined in an array, a function, a symbol, a value that holds itself, or whose levels are
 *     too many to follow
 */
export function encode(value: unknown): string {
  try {
    return encoded(value);
  } catch (error) {
    throw error instanceof RangeError
      ? new TypeError("JSON has no form for so many levels")
      : error;
  }
}

function encoded(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    // A `bigint`, or a value that holds itself, which the second attempt refuses.
    return encodeCarefully(value);
  }
  if (text === undefined) throw new TypeError(`JSON has no form for ${typeof value}`);
  // `JSON.stringify` writes `null` in place of NaN, infinities, and in arrays of much else.
  return text.includes("null") ? encodeCarefully(value) : text;
}

function encodeCarefully(value: unknown): string {
  const mark = `${randomHex(8)}:`;
  let hasMarks = false;
  const text = JSON.stringify(value, function (this: unknown, key, part) {
    if (typeof part === "bigint") {
      hasMarks = true;
      return mark + part;
    }
    const isRefused = part === undefined ? Array.isArray(this) : !isJson(part);
    if (isRefused) throw new TypeError(`JSON has no form for ${String(part)} (at "${key}")`);
    return part;
  });
  return hasMarks ? text.replace(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1") : text;
}

function isJson(part: unknown): boolean {
  if (typeof part === "number") return Number.isFinite(part);
  return typeof part !== "function" && typeof part !== "symbol";
}
