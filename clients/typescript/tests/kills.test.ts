// SIGKILL, and a start on the same data and port: nothing is lost, and nothing comes twice.

import { afterAll, beforeAll, expect, test } from "vitest";
import { Producer, Queue, Socket, type WatchPage } from "../src/index.js";
import { Server, until } from "./server.js";
import { connectWs } from "./ws.js";

const server = new Server();
beforeAll(() => server.start());
afterAll(() => server.stop());

/** Patience for a server that takes its time to start. */
const RETRY = { for_ms: 100_000 };
const COUNT = 600;
const ALL = Array.from({ length: COUNT }, (_, n) => n);

/** Records that a watch handed out, until it has all. */
async function follow(pages: AsyncIterable<WatchPage<number>>, seen: number[]): Promise<void> {
  for await (const page of pages) {
    expect(page.tombstone).toBeNull();
    seen.push(...page.records.map(({ data }) => data));
    if (seen.length >= COUNT) return;
  }
}

test("each record is there once and in order, and each job is done (§0.8, §7.4, §7.7, §10)", async () => {
  const client = server.client({ retry: RETRY });
  const topic = client.topic<number>("produced");
  const queue = new Queue<number>(client, "jobs");
  await Promise.all([topic.put(), client.topic("published").put(), queue.put({ lease_ms: 1000 })]);
  await queue.appendBatch(ALL.map((data) => ({ data })));
  const watched: number[] = [];
  const published: number[] = [];
  const done = new Set<number>();
  const states: string[] = [];

  // A watch and a producer over HTTP, both over a WebSocket, and workers of two kinds.
  const watch = topic.watch({
    on_connection: (error) => states.push(error === null ? "made" : "lost"),
  });
  const producer = new Producer<number>(topic, { batch_records: 10 });
  const socket = new Socket(client, { connect: connectWs });
  const following = [follow(watch, watched), follow(socket.watch<number>("published"), published)];
  const work = { wait_ms: 200, concurrency: 4, on_error: () => {} };
  const handler = async ({ data }: { data: number }) => void done.add(data);
  const workers = [queue.work(handler, work), queue.work(handler, { ...work, push: true })];
  const publishing = (async () => {
    for (const data of ALL) await socket.publish("published", [{ data }]);
  })();
  for (const n of ALL) {
    await producer.send(n);
    if (n % 300 !== 100) continue;
    await until("some arrived", () => watched.length >= n / 2 && published.length >= n / 2);
    await server.kill();
    await server.start();
  }
  await producer.close();
  await Promise.all([publishing, ...following]);
  await until("all jobs are done", async () => (await queue.state({ touch: false })).count === 0);
  await Promise.all([socket.close(), ...workers.map((worker) => worker.stop())]);

  expect(watched).toEqual(ALL);
  expect(published).toEqual(ALL);
  expect([(await topic.state()).count, (await client.topic("published").state()).count]).toEqual([
    COUNT,
    COUNT,
  ]);
  expect(done.size).toBe(COUNT);
  expect(states.slice(0, 4)).toEqual(["lost", "made", "lost", "made"]);
});

test("a cursor goes on in another watch, after a kill (§7.2)", async () => {
  const topic = server.client({ retry: RETRY }).topic<number>("kept");
  await topic.appendBatch(ALL.map((data) => ({ data })));
  const seen: number[] = [];
  const watch = topic.watch({ limit: 200 });

  for await (const { records } of watch) {
    seen.push(...records.map(({ data }) => data));
    if (seen.length >= 200) break;
  }
  const { cursor } = watch;
  await server.kill();
  await server.start();
  await follow(topic.watch({ cursor }), seen);

  expect(seen).toEqual(ALL);
});
