// JSON, both ways, with integers beyond 2^53 as `bigint`.
//
// `JSON.parse` rounds such integers, and `JSON.stringify` refuses a `bigint`. Both are taken round
// by a string with a random mark that stands in for the number. New engines can do so by themselves
// (`context.source`, `JSON.rawJSON`), but not yet all that this client runs on.

import { randomHex } from "./random.js";

/** Sixteen digits in a row: only then may there be an integer beyond 2^53. */
const LONG_NUMBER = /\d{16}/;
/** A string, or a number of at least 16 characters, whole: a fraction's digits are no integer. */
const STRING_OR_LONG_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]{15,}/g;
const INTEGER = /^-?\d+$/;
/** Half a surrogate pair, as `JSON.stringify` writes one. */
const HALF_PAIR = /[^\\](?:\\\\)*\\ud[89a-f]/;
/** Objects that `JSON.stringify` writes as `{}`, or by their indexes, as `toString` names them. */
const OPAQUE =
  /(Map|Set|Promise|Iterator|Generator|Error|RegExp|Blob|File|Buffer|View|\d.*Array)]$/;

/**
 * The value of a JSON text.
 *
 * @param exact integers that a number cannot hold become a `bigint`; else they are rounded
 * @throws SyntaxError the text is no JSON
 */
export function decode(text: string, exact?: boolean): any {
  if (!exact || !LONG_NUMBER.test(text)) return JSON.parse(text);
  const mark = `${randomHex(8)}:`;
  const marked = text.replace(STRING_OR_LONG_NUMBER, (found) =>
    INTEGER.test(found) && !Number.isSafeInteger(+found) ? `"${mark}${found}"` : found,
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
 *     undefined in an array, a function, a symbol, half a surrogate pair, a value that holds
 *     itself, or whose levels are too many to follow; and for what `JSON.stringify` writes all the
 *     same, as `{}` or by its indexes: a map, a set, a promise, an iterator, an error, bytes
 */
export function encode(value: unknown): string {
  let mark = "";
  try {
    // Without this function `JSON.stringify` leaves out what JSON has no form for, or writes `null`.
    const text: string | undefined = JSON.stringify(value, function (this: unknown, key, part) {
      if (typeof part === "bigint") return (mark ||= `${randomHex(8)}:`) + part;
      const isRefused = part === undefined ? Array.isArray(this) : !isJson(part);
      if (isRefused) throw noForm(`${wordsOf(part)} (at "${key}")`);
      return part;
    });
    if (text === undefined) throw noForm("undefined");
    if (text.includes("\\ud") && HALF_PAIR.test(text)) throw noForm("half a surrogate pair");
    return mark === "" ? text : text.replace(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1");
  } catch (error) {
    throw error instanceof RangeError ? noForm("so many levels") : error;
  }
}

function noForm(what: string): TypeError {
  return new TypeError(`JSON has no form for ${what}`);
}

function isJson(part: unknown): boolean {
  if (typeof part === "number") return isFinite(part);
  if (typeof part !== "object") return typeof part !== "function" && typeof part !== "symbol";
  // Most objects are plain, and need no look at their kind.
  const isPlain = !part || Array.isArray(part) || Object.getPrototypeOf(part) === Object.prototype;
  return isPlain || !OPAQUE.test(kindOf(part));
}

function wordsOf(part: unknown): string {
  if (typeof part !== "object") return String(part);
  return `${kindOf(part)}: await it, or make an array or object of it,`;
}

function kindOf(part: unknown): string {
  return {}.toString.call(part);
}
