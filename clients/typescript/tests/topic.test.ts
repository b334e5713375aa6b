// Topics: written, read, deleted, over a real server.

import { expect, test } from "vitest";
import * as topics from "../src/index.js";
import { all, fresh, shared } from "./stories.js";

const client = () => shared.client();

test("a value and what is said of it come back as they were appended (§2, §3)", async () => {
  const jobs = client().topic<{ url: string }>(fresh());

  const done = await jobs.append(
    { url: "s3://b/a.png" },
    { tag: "eu", node: "n1", meta: { trace: 1 } },
  );
  const [page] = await all(jobs.read({ include_tags: true }));

  expect(done).toMatchObject({ seqs: [1], created: true, deduped: false });
  expect(page!.records).toEqual([
    {
      seq: 1,
      ts: expect.any(Number),
      tag: "eu",
      node: "n1",
      meta: { trace: 1 },
      data: { url: "s3://b/a.png" },
    },
  ]);
  expect(page).toMatchObject({ next: 1, caught_up: true, tombstone: null, lag: 0 });
});

test("a batch is appended as a whole, in order (§2)", async () => {
  const topic = client().topic(fresh());

  const { seqs } = await topic.appendBatch([{ data: "a" }, { data: null, tag: "x" }, { data: 3 }]);
  const { records } = await topic.page({ from: 1, include_tags: true });

  expect(seqs).toEqual([1, 2, 3]);
  expect(records.map(({ data, tag }) => [data, tag])).toEqual([
    [null, "x"],
    [3, undefined],
  ]);
});

test("the same key again appends nothing (§0.8)", async () => {
  const topic = client().topic(fresh());

  await topic.append(1, { idempotency_key: "order-7" });
  const again = await topic.append(1, { idempotency_key: "order-7" });

  expect(again).toMatchObject({ deduped: true, seqs: [1] });
});

test("any number of records goes in batches, once however often it is sent (§0.8)", async () => {
  const topic = client().topic(fresh());
  async function* records() {
    for (let n = 0; n < 2500; n++) yield { data: n };
  }
  const sizes: number[] = [];

  const total = await topic.appendMany(records(), {
    key_prefix: "import:",
    progress: ({ count }) => sizes.push(count),
  });
  const again = await topic.appendMany(records(), { key_prefix: "import:" });

  expect(total).toEqual({ records: 2500, deduped: 0, batches: 3, unique: 0, replaced: 0 });
  expect(sizes).toEqual([1000, 1000, 500]);
  expect(again.deduped).toBe(2500);
  expect((await topic.state()).count).toBe(2500);
});

test("a read goes over pages and ends at the head as it saw it first (§3.2)", async () => {
  const topic = client().topic(fresh());
  await topic.appendBatch(Array.from({ length: 10 }, (_, data) => ({ data })));
  const seen: number[] = [];

  for await (const page of topic.read({ from: 2, page_records: 3 })) {
    seen.push(...page.records.map(({ data }) => data));
    await topic.append("later");
  }

  expect(seen.slice(0, 8)).toEqual([2, 3, 4, 5, 6, 7, 8, 9]);
  expect(seen.length).toBeLessThanOrEqual(9);
});

test("a read that follows waits for what comes, until it is aborted (§3)", async () => {
  const topic = client().topic(fresh());
  await topic.append(1);
  const controller = new AbortController();
  const seen: number[] = [];

  const read = async () => {
    for await (const { records } of topic.read({ follow: true, signal: controller.signal })) {
      seen.push(...records.map(({ data }) => data));
      if (seen.length === 1) await topic.append(2);
      else controller.abort(new Error("enough"));
    }
  };

  await expect(read()).rejects.toThrow("enough");
  expect(seen).toEqual([1, 2]);
});

test("what a cap evicted is a tombstone, and never skipped (§3.3)", async () => {
  const topic = client().topic(fresh());
  const records = ["one", "two", "three", "four"].map((data) => ({ data }));
  await topic.appendBatch(records, { config: { cap_records: 2 } });

  const page = await topic.page();

  expect(page.tombstone).toMatchObject({ gap_from: 1, gap_to: 2, reason: "cap" });
  expect(page.records.map(({ data }) => data)).toEqual(["three", "four"]);
});

test("a topic that is deleted and made again during a read is a tombstone (§3.3)", async () => {
  const topic = client().topic(fresh());
  await topic.appendBatch([{ data: 1 }, { data: 2 }]);
  const reading = topic.read({ follow: true, page_records: 1 });

  await reading.next();
  await topic.delete();
  await topic.appendBatch([{ data: 3 }, { data: 4 }]);
  const { value } = await reading.next();
  await reading.return();

  expect(value).toMatchObject({ tombstone: { reason: "recreated" }, records: [{ data: 3 }] });
});

test("a topic of several partitions is read whole, or one of them (§2.1)", async () => {
  const topic = client().topic(fresh());
  await topic.put({ partitions: 3 });
  const done = await topic.appendBatch([0, 1, 2].map((data) => ({ data, partition: data })));

  const pages = await all(topic.read());
  const one = await all(topic.read({ partition: 2 }));

  expect(done.seqs).toEqual([1, 1, 1]);
  expect(
    pages.flatMap(({ partition, records }) => records.map(({ data }) => [partition, data])),
  ).toEqual([
    [0, 0],
    [1, 1],
    [2, 2],
  ]);
  expect(one.map(({ records }) => records[0]!.data)).toEqual([2]);
  await expect(all(topic.read({ from: 1 }))).rejects.toThrow(topics.PartitionRequired);
  await expect(topic.page({ partition: 9 })).rejects.toThrow(topics.PartitionNotFound);
});

test("a page for caches is not sent again while it holds (§3.4)", async () => {
  const topic = client().topic(fresh());
  await topic.append(1);

  const page = await topic.stablePage();
  const same = await topic.stablePage({ known: page });
  await topic.append(2);
  const other = await topic.stablePage({ known: page });

  expect(page).toMatchObject({ records: [{ seq: 1, data: 1 }], next: 1, tombstone: null });
  expect(same).toBe(page);
  expect(other.records.length).toBe(2);
});

test("a topic is a table by its tags (§3.5)", async () => {
  const topic = client().topic(fresh());
  await topic.appendBatch([
    { data: 1.08, tag: "EUR" },
    { data: 1.27, tag: "GBP" },
    { data: 1.09, tag: "EUR" },
  ]);

  expect(await topic.latest("EUR")).toMatchObject({ seq: 3, tag: "EUR", data: 1.09 });
  expect((await all(topic.latestAll({ prefix: "G" }))).map(({ data }) => data)).toEqual([1.27]);
  expect((await all(topic.latestAll())).length).toBe(2);
  await expect(topic.latest("CHF")).rejects.toThrow(topics.RecordNotFound);
});

test("a config is replaced, or changed in part (§1.1)", async () => {
  const topic = client().topic(fresh());

  await topic.put({ cap_records: 10, durability: "fsync", dead_letter: null });
  await topic.configure({ ttl_ms: 1000 });
  const { config } = await topic.configure({ durable: false });

  expect(config).toMatchObject({
    cap_records: 10,
    ttl_ms: 1000,
    durability: "disk",
    durable: false,
  });
});

test("records are deleted by number, by tag and by subject (§5)", async () => {
  const topic = client().topic(fresh());
  await topic.appendBatch(["a.x", "a.y", "b.x", "b.y", "b.z"].map((tag) => ({ data: tag, tag })));

  expect((await topic.deleteRecords({ before_seq: 2 })).deleted).toBe(1);
  expect((await topic.deleteRecords({ match: ["tag", "Glob", "a.*"] })).deleted).toBe(1);
  expect((await topic.purge({ filter: "b.*", keep: 1 })).purged).toBe(2);
  expect((await topic.page()).records.map(({ data }) => data)).toEqual(["b.z"]);
});

test("a topic is deleted, empty or not (§1.4)", async () => {
  const topic = client().topic(fresh());
  await topic.append(1);

  await expect(topic.delete({ if_empty: true })).rejects.toThrow(topics.Conflict);
  expect((await topic.delete()).deleted).toBe(true);
  await expect(topic.state()).rejects.toThrow(topics.TopicNotFound);
});

test("lists have all items, page by page (§1.3)", async () => {
  const prefix = `${fresh("list")}:`;
  const { length } = await Promise.all(
    Array.from({ length: 12 }, (_, n) => client().topic(`${prefix}${n}`).put()),
  );

  expect((await all(client().topics({ prefix }))).length).toBe(length);
});

test("the server says how it is (§8)", async () => {
  const { health, ready, limits, cluster, metrics } = Object.fromEntries(
    await Promise.all(
      (["health", "ready", "limits", "cluster", "metrics"] as const).map(async (what) => [
        what,
        await new topics.Server(client())[what](),
      ]),
    ),
  );

  expect(health.status).toBe("ok");
  expect(limits.max_batch_records).toBe(10_000);
  expect(cluster.enabled).toBe(false);
  expect([ready, metrics].every((each) => each.performance !== undefined)).toBe(true);
});

test("a member that the server does not know is refused (strict handling)", async () => {
  const topic = client().topic(fresh());

  await expect(topic.put({ cap_record: 3 } as {})).rejects.toThrow(/cap_record/);
  await expect(topic.append(1, { tga: "x" } as {})).rejects.toThrow(topics.InvalidRequest);
});

test("a name that would change the path is refused before anything is sent (§1.1)", () => {
  expect(() => client().topic("..").state()).toThrow(TypeError);
  expect(() => client().topic("").state()).toThrow(TypeError);
});

test("integers beyond 2^53 go both ways exactly, where they are asked for (§0.3)", async () => {
  const name = fresh();
  const exact = shared.client({ bigint: true }).topic(name);
  const value = {
    id: 2n ** 63n + 1n,
    small: 7,
    list: [-(2n ** 60n)],
    text: "12345678901234567890",
  };

  await exact.append(value);

  expect((await exact.page()).records[0]!.data).toEqual(value);
  expect((await client().topic(name).page()).records[0]!.data.id).toBe(2 ** 63);
});
