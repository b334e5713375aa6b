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
  const misspelled = { tagg: "a" } as object;
  await expect(socket.publish(topic, [{ data: 1, ...misspelled }])).rejects.toThrow("mean tag?");
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

test("a call that its signal ends is taken back while it is not sent, and its reply is let go", async () => {
  const [topic, unsent] = [client().topic(fresh()), client().topic(fresh())];
  await topic.put();
  const replies: (() => void)[] = [];
  let holdsBack = false;
  const connect = (url: string, headers: {}) => {
    const made = connectWs(url, headers);
    const listen = made.addEventListener.bind(made) as (kind: string, take: any) => void;
    const addEventListener = (kind: string, take: any) =>
      listen(kind, (event: any) =>
        holdsBack && kind === "message" ? replies.push(() => take(event)) : take(event),
      );
    return Object.assign(made, { addEventListener });
  };
  await using socket = new Socket(client(), { connect });
  const controllers = [new AbortController(), new AbortController()] as const;
  const reasonOf = (call: Promise<unknown>) => call.then(String, (reason) => reason);

  const early = reasonOf(socket.publish(unsent.name, [{ data: 1 }], controllers[0]));
  controllers[0].abort("early");
  const watch = socket.watch(topic.name);
  await socket.ping();
  holdsBack = true;
  const calls = [socket.publish(topic.name, [{ data: 2 }], controllers[1])];
  calls.push(socket.publish("", [{ data: 3 }], controllers[1]));
  const late = Promise.all([...calls, socket.ping(controllers[1])].map(reasonOf));
  await until("all replies are there", () => replies.length >= 4);
  controllers[1].abort("late");
  holdsBack = false;
  for (const take of replies) take();

  expect([await early, ...(await late)]).toEqual(["early", "late", "late", "late"]);
  expect(await reasonOf(socket.ping(controllers[1]))).toBe("late");
  expect(dataOf(await first(1, watch))).toEqual([2]);
  await expect(unsent.state()).rejects.toThrow(TopicNotFound);
});

test("a watch over a socket ends with its signal, and gives its topic free", async () => {
  const topic = client().topic(fresh());
  await topic.append(1);
  await using socket = socketOf();
  const controller = new AbortController();
  const { signal } = controller;
  const seen: unknown[] = [];

  const watching = (async () => {
    for await (const { records } of socket.watch(topic.name, { signal })) {
      seen.push(...records.map(({ data }) => data));
      void socket.ping().then(() => controller.abort("enough"));
    }
  })();

  await expect(watching.catch((reason) => reason)).resolves.toBe("enough");
  expect(seen).toEqual([1]);
  expect(dataOf(await first(1, socket.watch(topic.name)))).toEqual([1]);
  expect(() => socket.watch("other", { signal })).toThrow("enough");
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
