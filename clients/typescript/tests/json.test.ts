// JSON with integers of any size.

import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { decode, encode } from "../src/json.js";

test.each([
  ["12345678901234567890", 12345678901234567890n],
  ["-9007199254740993", -9007199254740993n],
  ["9007199254740991", 9007199254740991],
  ["1234567890123456", 1234567890123456],
  ["12345678901234567890.5", 12345678901234567000],
  ["12345678901234567890e2", 12345678901234567890e2],
  ["0.30000000000000004", 0.1 + 0.2],
  [
    "[-1.2345678901234567e-12, 12345678901234567890]",
    [-1.2345678901234567e-12, 12345678901234567890n],
  ],
  ["1e-12345678901234567", 0],
  ['"12345678901234567890"', "12345678901234567890"],
  [
    '["\\"12345678901234567890", 12345678901234567890]',
    ['"12345678901234567890', 12345678901234567890n],
  ],
  [
    '{"12345678901234567890":[1,{"a":-12345678901234567890}]}',
    { "12345678901234567890": [1, { a: -12345678901234567890n }] },
  ],
  ["true", true],
])("%s is read exactly", (text, value) => {
  expect(decode(text, true)).toEqual(value);
});

test("integers are rounded where exact ones are not asked for", () => {
  expect(decode("9007199254740993", false)).toBe(9007199254740992);
});

test("a long text is read without a stack of its length", () => {
  const text = JSON.stringify({ data: '\\"x'.repeat(1 << 20), id: 1 }).replace(
    '"id":1',
    '"id":12345678901234567890',
  );

  expect(decode(text, true).id).toBe(12345678901234567890n);
});

test("a number of a million digits is read in one pass", () => {
  expect(decode(`[${"1".repeat(1 << 20)}.5, 12345678901234567890]`, true)[1]).toBe(
    12345678901234567890n,
  );
});

test("what is no JSON is no value", () => {
  expect(() => decode("{1234567890123456789", true)).toThrow(SyntaxError);
});

test.each([
  [{ id: 2n ** 70n, list: [-1n, null] }, '{"id":1180591620717411303424,"list":[-1,null]}'],
  [
    { at: new Date(0), gone: undefined, none: null },
    '{"at":"1970-01-01T00:00:00.000Z","none":null}',
  ],
  ["null", '"null"'],
  ["\\ud800 \ud83d\ude00", '"\\\\ud800 \ud83d\ude00"'],
])("a value is written exactly", (value, text) => {
  expect(encode(value)).toBe(text);
});

const own: unknown[] = [];
own.push(own);

function nested(levels: number, inner: unknown = 1): unknown {
  for (let n = 0; n < levels; n++) inner = [inner];
  return inner;
}

test.each([
  [NaN],
  [{ a: Infinity }],
  [[undefined]],
  [undefined],
  [[() => {}]],
  [{ own: () => {} }],
  [Symbol("x")],
  [{ own: Symbol("x") }],
  ["\ud800"],
  [{ "half \udc00": 1 }],
  ["\\\ud800"],
  [own],
  [nested(200_000)],
  [nested(200_000, null)],
])("what JSON has no form for is refused", (value) => {
  expect(() => encode(value)).toThrow(TypeError);
});

test.each([
  ["Map", new Map([["EUR", 1.09]])],
  ["Set", new Set([1])],
  ["Promise", Promise.resolve(1)],
  ["Uint8Array", new Uint8Array(3)],
  ["BigInt64Array", new BigInt64Array(1)],
  ["ArrayBuffer", new ArrayBuffer(3)],
  ["DataView", new DataView(new ArrayBuffer(3))],
  ["Error", new Error("too large")],
  ["Error", Object.assign(new RangeError("too large"), { bytes: 7 })],
  ["RegExp", /x/],
  ["Blob", new Blob(["x"])],
  ["Map Iterator", new Map().values()],
  ["AsyncGenerator", (async function* () {})()],
])("what `JSON.stringify` would write without its content is refused: %s", (kind, value) => {
  const at = "b";

  expect(() => encode({ a: [{ [at]: value }] })).toThrow(TypeError);
  for (const each of [{ [at]: value }, { a: [{ [at]: value }] }, nested(100, { [at]: value })])
    expect(() => encode(each)).toThrow(
      `form for [object ${kind}]: await it, or make an array or object of it, (at "b")`,
    );
});

test("objects of a program's own are written by their members, or as their `toJSON` says", () => {
  class Order {
    id = 7;
    readonly lines = [new (class {})()];
    get [Symbol.toStringTag](): string {
      return "Order";
    }
  }
  const foreign = runInNewContext("({ a: [1], none: null })");
  const bytes = Buffer.from("é").toJSON();

  expect(encode(new Order())).toBe('{"id":7,"lines":[{}]}');
  expect(encode(Object.assign(Object.create(null), { a: 1 }))).toBe('{"a":1}');
  expect(encode({ constructor: null, toString: 1 })).toBe('{"constructor":null,"toString":1}');
  expect(encode([foreign, new Number(1), new URL("http://a/"), bytes])).toBe(
    '[{"a":[1],"none":null},1,"http://a/",{"type":"Buffer","data":[195,169]}]',
  );
});
