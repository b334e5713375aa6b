// A WebSocket over a real server.

import { expect, test } from "vitest";
import {
  PayloadTooLarge,
  Socket,
  TopicNotFound,
  Unreachable,
  type WatchPage,
} from "../src/index.js";
import { until } from "./server.js";
import { first, fresh, useServer } from "./stories.js";
import { connectWs } from "./ws.js";

const server = useServer({ API_KEYS: "secret:read+write+delete+admin" });
const small = useServer({ MAX_BODY_BYTES: "100000" });
const client = () => server.client({ api_key: "secret" });
const socketOf = () => new Socket(client(), { connect: connectWs });

const dataOf = (pages: WatchPage[]) =>
  pages.flatMap(({ records }) => records.map(({ data }) => data));

test("records are published and watched over one connection, with the key (§7.7)", async () => {
  const topic = fresh();
  await client().topic(topic).put();
  await using socket = socketOf();
  const watching = first(3, socket.watch(topic, { limit: 1 }));

  const done = await socket.publish(topic, [{ data: 1 }, { data: 2, tag: "x" }]);
  await socket.publish(topic, [{ data: 3 }], { idempotency_key: "k" });
  const again = await socket.publish(topic, [{ data: 3 }], { idempotency_key: "k" });

  expect(done.seqs).toEqual([1, 2]);
  expect(again).toMatchObject({ deduped: true, seqs: [3] });
  expect(dataOf(await watching)).toEqual([1, 2, 3]);
  expect(await socket.ping()).toBeGreaterThan(1_700_000_000_000);
});

test("a watch that is not taken leaves its topic, and misses nothing (§7.7)", async () => {
  const topic = client().topic(fresh());
  const all = Array.from({ length: 1000 }, (_, data) => ({ data }));
  await topic.appendBatch(all);
  const commands: string[] = [];
  const connect = (url: string, headers: {}) => {
    const made = connectWs(url, headers);
    const send = made.send.bind(made);
    return Object.assign(made, {
      send: (text: string) => (commands.push(JSON.parse(text).op), send(text)),
    });
  };
  await using socket = new Socket(client(), { connect });
  const watch = socket.watch<number>(topic.name, { limit: 1 });
  const seen: number[] = [];

  for await (const { records } of watch) {
    seen.push(...records.map(({ data }) => data));
    if (seen.length === 1) await until("it left", () => commands.includes("unsubscribe"));
    if (seen.length === all.length) break;
  }

  expect(seen).toEqual(all.map(({ data }) => data));
  expect(commands.slice(0, 3)).toEqual(["subscribe", "unsubscribe", "subscribe"]);
});

test("a watch goes on from a cursor, and ends with its topic (§7.7)", async () => {
  const topic = client().topic(fresh());
  await topic.appendBatch([1, 2].map((data) => ({ data })));
  await using socket = socketOf();
  const begun = socket.watch(topic.name, { limit: 1 });
  await first(1, begun);
  begun.close();
  const pages: WatchPage[] = [];

  for await (const page of socket.watch(topic.name, { cursor: begun.cursor })) {
    pages.push(page);
    if (pages.length === 1) await topic.delete();
  }

  expect(dataOf(pages)).toEqual([2]);
  expect(pages.at(-1)!.gone).toBe(true);
});

test("a command that is refused rejects, and the socket stays (§7.7)", async () => {
  const topic = fresh();
  await using socket = socketOf();

  await expect(first(1, socket.watch("none"))).rejects.toThrow(TopicNotFound);
  await expect(socket.publish(topic, [{ data: 1 }], { create: false })).rejects.toThrow(
    TopicNotFound,
  );
  await expect(socket.publish(topic, [{ data: "x".repeat(9 << 20) }])).rejects.toThrow(
    PayloadTooLarge,
  );
  expect((await socket.publish(topic, [{ data: 1 }])).seqs).toEqual([1]);
});

test("a message that is too large is refused alone (§7.7)", async () => {
  const topic = fresh();
  await using socket = socketOf();
  await using other = new Socket(small.client(), { connect: connectWs });

  const refused = [
    socket.publish(topic, [{ data: "x".repeat(3 << 20) }]),
    socket.publish(topic, [{ data: "€".repeat(3 << 20) }]),
    other.publish(topic, [{ data: "x".repeat(100_000) }]),
  ].map((sent) => sent.catch(({ name }) => name));
  const taken = [socket, other].map((each) => each.publish(topic, [{ data: 1 }]));

  expect(await Promise.all(refused)).toEqual([
    "RecordTooLarge",
    "PayloadTooLarge",
    "PayloadTooLarge",
  ]);
  expect((await Promise.all(taken)).map(({ seqs }) => seqs)).toEqual([[1], [1]]);
});

test("a watch that is closed at once gives its topic free", async () => {
  const topic = client().topic(fresh());
  await topic.append(1);
  await using socket = socketOf();

  await socket.ping();
  socket.watch(topic.name).close();
  const watch = socket.watch(topic.name);
  const pages = await first(1, watch);
  await socket.publish(topic.name, [{ data: 2 }]);
  pages.push(...(await first(1, watch)));

  expect(dataOf(pages)).toEqual([1, 2]);
});

test("a connection that cannot be made leaves nothing behind", async () => {
  let isBroken = true;
  const connect: typeof connectWs = (url, headers) => {
    if (isBroken) throw new RangeError("not yet");
    return connectWs(url, headers);
  };
  await using socket = new Socket(client(), { connect });

  await expect(socket.ping()).rejects.toThrow(RangeError);
  expect(() => socket.watch("jobs")).toThrow(RangeError);
  isBroken = false;
  expect(await socket.ping()).toBeGreaterThan(0);
});

test("one watch for each topic, and none after the end", async () => {
  const topic = fresh();
  await client().topic(topic).put();
  const socket = socketOf();
  const watching = expect(first(1, socket.watch(topic))).rejects.toThrow(Unreachable);

  expect(() => socket.watch([topic])).toThrow(TypeError);
  await socket.close();
  await watching;
  await expect(socket.publish(topic, [{ data: 1 }])).rejects.toThrow(TypeError);
});

test("where nothing listens, the retries end (§0.6)", async () => {
  const { Client } = await import("../src/index.js");
  const socket = new Socket(new Client("http://127.0.0.1:9", { retry: { for_ms: 0 } }), {
    connect: connectWs,
  });

  await expect(socket.publish("jobs", [{ data: 1 }])).rejects.toThrow(Unreachable);
});
