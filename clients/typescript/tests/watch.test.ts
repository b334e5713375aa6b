// Watches over a real server.

import { expect, test } from "vitest";
import { InvalidRequest, TopicNotFound, type WatchPage } from "../src/index.js";
import { until } from "./server.js";
import { all, first, fresh, shared } from "./stories.js";

const client = () => shared.client();

/**
 * A client, and a way to let the server seem to have forgotten its sessions once, as after a start.
 */
function forgetful() {
  const wids: string[] = [];
  let forgets = false;
  const client = shared.client({
    fetch: (input, init) => {
      const wid = /wid_.*/.exec(String(input))?.[0];
      if (wid === undefined) return fetch(input, init);
      wids.push(wid);
      const url = forgets ? String(input).replace(wid, "wid_none") : input;
      forgets = false;
      return fetch(url, init);
    },
  });
  return { client, wids, forget: () => (forgets = true) };
}

const dataOf = (pages: WatchPage[]) =>
  pages.flatMap(({ records }) => records.map(({ data }) => data));

test("several topics come over one connection, each from its own beginning (§7.2)", async () => {
  const [a, b, c] = [fresh(), fresh(), fresh()];
  for (const name of [a, b, c])
    await client()
      .topic(name)
      .appendBatch([{ data: `${name}1` }, { data: `${name}2` }]);
  const watch = client().watch({ [a]: 1, [b]: {}, [c]: { tail: true } });

  await watch.subscribe();
  await client().topic(c).append(`${c}3`);
  const pages = await first(3, watch);

  expect(dataOf(pages).sort()).toEqual([`${a}2`, `${b}1`, `${b}2`, `${c}3`].sort());
  expect(pages.every(({ tombstone, gone }) => tombstone === null && !gone)).toBe(true);
});

test("a beginning that a program has not is none", async () => {
  const [a, b] = [client().topic(fresh()), client().topic(fresh())];
  for (const topic of [a, b]) await topic.appendBatch([{ data: 1 }, { data: 2 }]);

  const pages = await first(
    2,
    client().watch({ [a.name]: undefined, [b.name]: { from: undefined } }, { from: 1 }),
  );

  expect(dataOf(pages)).toEqual([2, 2]);
});

test("a loop that was left goes on behind its last page, and so does a cursor (§7.4)", async () => {
  const topic = client().topic(fresh());
  await topic.appendBatch([1, 2, 3, 4].map((data) => ({ data })));
  const watch = topic.watch({ limit: 1 });

  const two = [...(await first(1, watch)), ...(await first(1, watch))];
  const rest = await first(2, topic.watch({ cursor: watch.cursor, limit: 1 }));

  expect(dataOf(two)).toEqual([1, 2]);
  expect(dataOf(rest)).toEqual([3, 4]);
});

test("what was lost is a tombstone, and a filtered watch moves on (§7.5)", async () => {
  const topic = client().topic(fresh());
  await topic.appendBatch(
    [1, 2, 3, 4].map((data) => ({ data, tag: data === 4 ? "x" : "y" })),
    { config: { cap_records: 2 } },
  );

  const pages = await first(2, topic.watch({ match: "x", include_tags: true }));

  expect(pages[0]).toMatchObject({ records: [], tombstone: { gap_from: 1, gap_to: 2 }, next: 2 });
  expect(pages[1]!.records).toMatchObject([{ seq: 4, tag: "x", data: 4 }]);
});

test("a topic that is deleted is told, and with the last one the watch ends (§7.5)", async () => {
  const topic = client().topic(fresh());
  await topic.append(1);
  const pages: WatchPage[] = [];

  for await (const page of topic.watch()) {
    pages.push(page);
    if (pages.length === 1) await topic.delete();
  }

  expect(pages.map(({ gone }) => gone)).toEqual([false, true]);
});

test("a topic that was made anew while the server was away is read from its start (§3.3)", async () => {
  const { client, forget } = forgetful();
  const topic = client.topic(fresh());
  await topic.appendBatch([1, 2, 3].map((data) => ({ data })));
  const watch = topic.watch({ limit: 1 });
  const pages = await first(2, watch);
  await topic.delete();
  await topic.appendBatch([7, 8].map((data) => ({ data })));
  forget();

  pages.push(...(await first(3, watch)));

  expect(pages[2]).toMatchObject({ tombstone: { reason: "recreated" } });
  expect(dataOf(pages)).toEqual([1, 2, 7, 8]);
});

test("all partitions are watched, and those that come later (§2.1)", async () => {
  const topic = client().topic(fresh());
  await topic.put({ partitions: 2 });
  await topic.appendBatch([0, 1].map((data) => ({ data, partition: data })));
  const watch = topic.watch();
  const pages: WatchPage[] = [];

  for await (const page of watch) {
    pages.push(page);
    if (pages.length === 2) {
      await topic.configure({ partitions: 3 });
      await topic.append(2, { partition: 2 });
    }
    if (pages.length === 3) break;
  }

  expect(pages.map(({ partition, records }) => [partition, records[0]!.data]).sort()).toEqual([
    [0, 0],
    [1, 1],
    [2, 2],
  ]);
  await topic.append(3, { partition: 2 });
  expect(dataOf(await first(1, topic.watch({ cursor: watch.cursor })))).toEqual([3]);
});

test("a signal, or `close`, ends a watch that waits", async () => {
  const topic = client().topic(fresh());
  await topic.put();
  const controller = new AbortController();
  const aborted = topic.watch({ signal: controller.signal });
  const closed = topic.watch();
  await Promise.all([aborted.subscribe(), closed.subscribe()]);

  const ended = expect(all(aborted)).rejects.toThrow("enough");
  const pages = all(closed);
  controller.abort(new Error("enough"));
  closed.close();

  await ended;
  expect(await pages).toEqual([]);
});

test("a topic that does not exist is refused, or left out (§7.2)", async () => {
  const name = fresh();
  await client().topic(name).append(1);

  await expect(first(1, client().watch([name, "none"]))).rejects.toThrow(TopicNotFound);
  expect(dataOf(await first(1, client().watch([name, "none"], { lenient: true })))).toEqual([1]);
  await expect(first(1, client().watch(name, { limt: 3 } as {}))).rejects.toThrow(InvalidRequest);
});

test("more topics than an id can name go on from a cursor, too (§7.4)", async () => {
  const names = Array.from({ length: 70 }, () => fresh("many"));
  const { client, forget } = forgetful();
  await Promise.all(names.map((name) => client.topic(name).append(name)));
  const watch = client.watch(names);

  const begun = await first(40, watch);
  forget();
  const rest = await first(30, watch);

  expect(dataOf([...begun, ...rest]).sort()).toEqual([...names].sort());
});

test("another stream of the same session is told from a break (§7.3)", async () => {
  const { client, wids } = forgetful();
  const topic = client.topic(fresh());
  await topic.append(1);
  const waiting = expect(all(topic.watch({ heartbeat_ms: 1000 }))).rejects.toMatchObject({
    status: 409,
  });
  await until("it is watched", () => wids.length > 0);
  const other = new AbortController();
  const opened = await fetch(`${shared.url}/v0/watch/${wids[0]}`, {
    headers: { accept: "text/event-stream" },
    signal: other.signal,
  });

  await waiting;
  expect(opened.status).toBe(200);
  other.abort();
});
