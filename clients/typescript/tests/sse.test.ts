// Server-sent events in pieces of any size.

import { expect, test } from "vitest";
import { EventParser, type ServerEvent } from "../src/sse.js";

const STREAM = [
  "retry: 2000\nid: a\n\n",
  ": hb 1\n\n",
  'id: b\r\nevent: record\r\ndata: {"x":\r\ndata: "é𝄞"}\r\n\r\n',
  "data:no space\n\n",
  "event: caught-up\rdata\rid\r\r",
  "data: unfinished\n",
].join("");
const EVENTS: ServerEvent[] = [
  { kind: "", data: "", id: undefined, retry_ms: 2000 },
  { kind: "", data: "", id: "a" },
  { kind: "", data: "", id: "a" },
  { kind: "", data: "", id: "a" },
  { kind: "record", data: '{"x":\n"é𝄞"}', id: "b" },
  { kind: "message", data: "no space", id: "b" },
  { kind: "caught-up", data: "", id: "" },
];

test.each([1, 2, 3, 5, 7, 1000])("pieces of %i bytes make no difference", (size) => {
  const bytes = new TextEncoder().encode(STREAM);
  const parser = new EventParser();
  const found: ServerEvent[] = [];

  for (let at = 0; at < bytes.length; at += size)
    found.push(...parser.feed(bytes.subarray(at, at + size)));

  expect(found).toEqual(EVENTS);
});
