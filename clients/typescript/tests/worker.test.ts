// Queues and workers over a real server.

import { expect, test, vi } from "vitest";
import {
  Conflict,
  JobNotFound,
  LeaseLost,
  Queue,
  TopicNotFound,
  type HeldJob,
} from "../src/index.js";
import { Settled } from "../src/waiting.js";
import { until } from "./server.js";
import { all, fresh, shared } from "./stories.js";

async function queueOf(count: number, config = {}): Promise<Queue<number>> {
  const queue = new Queue<number>(shared.client(), fresh("q"));
  await queue.put(config);
  if (count > 0) await queue.appendBatch(Array.from({ length: count }, (_, data) => ({ data })));
  return queue;
}

test("jobs are claimed, extended, acked and given back by single calls (§10.2-§10.6)", async () => {
  const queue = await queueOf(3);

  const { claimed } = await queue.claim({ node: "w1", max: 3 });
  const extended = await queue.extend(claimed, { node: "w1", lease_ms: 60_000, progress: "half" });
  const acked = await queue.ack(claimed[0]!, { node: "w1", result: { size: 7 } });
  const nacked = await queue.nack([2, 3], { node: "w1", delay_ms: 60_000, reason: "later" });

  expect(claimed.map(({ seq, data, deliveries }) => [seq, data, deliveries])).toEqual([
    [1, 0, 1],
    [2, 1, 1],
    [3, 2, 1],
  ]);
  expect([extended.extended, acked.acked, nacked.nacked]).toEqual([3, 1, 2]);
  expect(await queue.job(1)).toMatchObject({ state: "done", result: { size: 7 } });
  expect((await all(queue.jobs({ state: "delayed" }))).map(({ seq }) => seq)).toEqual([2, 3]);
  expect((await queue.job(2)).reasons).toMatchObject([{ node: "w1", reason: "later" }]);
  expect((await queue.promote({ seq: 2 })).done).toBe(1);
  expect((await queue.retry({ state: "delayed", dry_run: true })).done).toBe(1);
  expect((await queue.cancel({ seq: 3 })).done).toBe(1);
  await expect(queue.job(3)).rejects.toThrow(JobNotFound);
});

test("a worker does jobs by turns, and keeps their results (§10.4)", async () => {
  const queue = await queueOf(10);
  let most = 0;
  let now = 0;

  const worker = queue.work(
    async ({ data }) => {
      most = Math.max(most, ++now);
      await new Promise((resolve) => setImmediate(resolve));
      now -= 1;
      return data * 2;
    },
    { concurrency: 3, drain: true, keep_results: true },
  );

  expect(await worker.done).toBe(10);
  expect(most).toBeGreaterThan(1);
  expect(most).toBeLessThanOrEqual(3);
  expect((await queue.job(4)).result).toBe(6);
});

test("jobs with options are done by priority, once for a key (§2)", async () => {
  const queue = await queueOf(0);
  await queue.append(1);
  await queue.append(2, { priority: 5 });
  await queue.append(3, { unique: "k" });
  const { unique } = await queue.append(4, { unique: "k" });
  await queue.append(5, { delay_ms: 3_600_000 });
  const seen: number[] = [];

  await queue.work(({ data }) => void seen.push(data), { drain: true }).done;

  expect(unique).toEqual([3]);
  expect(seen).toEqual([2, 1, 3]);
});

test("many jobs are counted: how many were there already, and how many made way (§10)", async () => {
  const queue = await queueOf(0);
  const jobs = ["a", "b", "a"].map((key, data) => ({ data, unique: key }));
  const newer = { data: 7, unique: { key: "b", on_conflict: "replace" as const } };

  const first = await queue.appendMany(jobs, { batch_records: 2 });
  const second = await queue.appendMany([...jobs.slice(0, 1), newer]);

  expect(first).toEqual({ records: 3, deduped: 0, batches: 2, unique: 1, replaced: 0 });
  expect(second).toEqual({ records: 2, deduped: 0, batches: 1, unique: 1, replaced: 1 });
});

test("a job that failed is given back with its reason and a delay that doubles (§10.5)", async () => {
  const queue = await queueOf(1);
  const failures: [string, number][] = [];

  const worker = queue.work(
    () => {
      throw new RangeError("too large");
    },
    {
      first_delay_ms: 3,
      longest_delay_ms: 5,
      limit: 3,
      on_error: (error, job) => failures.push([String(error), job.deliveries]),
    },
  );

  expect(await worker.done).toBe(0);
  expect(failures.map(([, deliveries]) => deliveries)).toEqual([1, 2, 3]);
  expect((await queue.job(1)).reasons.at(-1)).toMatchObject({
    reason: "RangeError: too large",
    node: worker.node,
  });
});

test("a queue's own backoff decides, and `dead` ends a job (§0.10, §10.5)", async () => {
  const dead = fresh("dead");
  const queue = await queueOf(2, { dead_letter: dead, backoff: { base_ms: 3_600_000 } });

  const worker = queue.work(
    async (job) => {
      if (job.data === 0) await job.nack({ dead: true, reason: "never" });
      else throw new Error("later");
    },
    { limit: 2, on_error: () => {} },
  );
  await worker.done;

  const [job] = await all(queue.jobs());
  expect(job!.ready_at).toBeGreaterThan(Date.now() + 3_000_000);
  expect((await shared.client().topic(dead).page()).records.length).toBe(1);
  expect((await queue.redrive(dead)).moved).toBe(1);
});

test("a lease is extended for as long as its job takes (§10.6)", async () => {
  const queue = await queueOf(1, { lease_ms: 300 });

  const worker = queue.work(
    async (job) => {
      const begun = job.deadline;
      await job.progress({ at: 1 });
      await until("it was extended five times", () => job.deadline > begun + 500);
    },
    { limit: 1 },
  );

  expect(await worker.done).toBe(1);
});

test.each([
  [3_000_000_000, 86_400_000],
  [50, 100],
  [0, 100],
])("a lease of %d ms is extended as the server bounds it (§10.6)", async (lease_ms, bounded_ms) => {
  const bodies: { [action: string]: any[] } = { claim: [], extend: [], ack: [] };
  const job = { $seq: 1, $ts: 1, data: 1, lease_id: "1-1", deliveries: 1, deadline: 1 };
  const answer = { claimed: [job], count: 1, skipped: [], deadlines: {} };
  const client = shared.client({
    fetch: async (input, init) => {
      if (init!.body)
        bodies[String(input).split("/").at(-1)!]!.push(JSON.parse(String(init!.body)));
      return Response.json({ ...answer, config: { lease_ms: 30_000 } });
    },
  });
  const finished = new Settled<void>();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });

  const options = { lease_ms, first_delay_ms: 1000, limit: 1 };
  const worker = new Queue(client, "images").work(() => finished.promise, options);
  await vi.advanceTimersByTimeAsync(0);
  await vi.advanceTimersByTimeAsync(bounded_ms / 3 + 1);
  const extensions = [...bodies.extend!];
  finished.resolve();
  vi.useRealTimers();

  expect(await worker.done).toBe(1);
  expect(extensions).toMatchObject([{ lease_ms: bounded_ms, lease_ids: ["1-1"] }]);
});

test("a job whose lease is lost is told so, and its ack does not count (§10.4)", async () => {
  const queue = await queueOf(1);
  const errors: unknown[] = [];
  let lost: HeldJob | undefined;

  const worker = queue.work(
    async (job) => {
      lost = job;
      await queue.nack(job, { node: job === undefined ? "" : worker.node, delay_ms: 3_600_000 });
    },
    { limit: 1, on_error: (error) => errors.push(error) },
  );

  expect(await worker.done).toBe(0);
  expect(lost!.state).toBe("lost");
  expect(lost!.signal.aborted).toBe(true);
  expect(errors[0]).toBeInstanceOf(LeaseLost);
});

test("a worker that is stopped finishes what it has, and takes no more", async () => {
  const queue = await queueOf(5);
  const seen: number[] = [];
  let release = () => {};
  const gate = new Promise<void>((resolve) => (release = resolve));

  const worker = queue.work(
    async ({ data }) => {
      seen.push(data);
      await gate;
    },
    { concurrency: 2 },
  );
  await until("two are in hand", () => seen.length === 2);
  const stopped = worker.stop();
  release();

  expect(await stopped).toBe(2);
  expect((await queue.state()).queue).toMatchObject({ ready: 3, in_flight: 0 });
});

test.each([false, true])(
  "an aborted worker gives its jobs back at once (push: %s)",
  async (push) => {
    const queue = await queueOf(2);
    const controller = new AbortController();
    const held: HeldJob[] = [];

    const worker = queue.work(
      (job) => {
        held.push(job);
        return new Promise(() => {});
      },
      { concurrency: 2, push, signal: controller.signal },
    );
    await until("two are in hand", () => held.length === 2);
    controller.abort(new Error("enough"));

    expect(await worker.done).toBe(0);
    expect(held.every(({ signal }) => signal.reason.message === "enough")).toBe(true);
    await until(
      "both are back",
      async () => (await queue.state({ touch: false })).queue!.ready === 2,
    );
  },
);

test("an aborted worker does not wait for a server that is silent", async () => {
  const name = fresh("q");
  await shared.client().topic(name).put({ type: "queue" });
  const silence = (signal: AbortSignal) =>
    new Promise<Response>((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  const client = shared.client({
    fetch: (input, init) =>
      /ack|claim$/.test(String(input)) && held !== undefined
        ? silence(init!.signal!)
        : fetch(input, init),
  });
  const queue = new Queue(client, name);
  await queue.append(1);
  const controller = new AbortController();
  let held: HeldJob | undefined;
  const handler = (job: HeldJob) => {
    held = job;
    return new Promise(() => {});
  };

  const worker = queue.work(handler, { concurrency: 2, signal: controller.signal });
  await until("one is in hand", () => held !== undefined);
  controller.abort(new Error("enough"));

  // A call to the server may take thirty seconds, and is sent again for fifteen.
  expect(await worker.done).toBe(0);
  expect(held!.state).toBe("lost");
}, 14_000);

test("each call about a job in hand ends with its signal", async () => {
  const queue = await queueOf(1);
  const reasons: unknown[] = [];
  const signal = AbortSignal.abort("mine");

  const worker = queue.work(
    async (job) => {
      await job.progress(1, { signal }).catch((reason) => reasons.push(reason));
      await job.ack({ signal }).catch((reason) => reasons.push(reason));
      expect(await job.nack({ signal })).toBe(false);
    },
    { limit: 1, on_error: () => {} },
  );

  expect(await worker.done).toBe(0);
  expect(reasons).toEqual(["mine", "mine"]);
});

test("pushed jobs are done, up to a limit (§10.8)", async () => {
  const queue = await queueOf(5);
  const seen: number[] = [];

  const worker = queue.work(({ data }) => void seen.push(data), { push: true, limit: 3 });

  expect(await worker.done).toBe(3);
  expect(seen).toEqual([0, 1, 2]);
  await until(
    "the rest is back",
    async () => (await queue.state({ touch: false })).queue!.ready === 2,
  );
});

test.each([false, true])("a queue that is none ends its worker (push: %s)", async (push) => {
  const log = fresh();
  await shared.client().topic(log).put();

  await expect(new Queue(shared.client(), "none").work(() => {}, { push }).done).rejects.toThrow(
    TopicNotFound,
  );
  await expect(new Queue(shared.client(), log).work(() => {}, { push }).done).rejects.toThrow(
    Conflict,
  );
});

test("a result that JSON cannot say is a failure of its job, and no reason has half a character", async () => {
  const queue = await queueOf(2, { max_deliveries: 1, dead_letter: fresh("dead"), keep_done: 10 });
  const errors: unknown[] = [];

  const worker = queue.work(
    ({ data }) => {
      if (data === 0) return { size: NaN };
      throw new Error("half a \ud834 character");
    },
    { limit: 2, keep_results: true, first_delay_ms: 0, on_error: (error) => errors.push(error) },
  );

  expect(await worker.done).toBe(0);
  expect(errors[0]).toBeInstanceOf(TypeError);
  expect((await queue.job(1)).reasons[0]!.reason).toMatch(/no form for NaN/);
  expect((await queue.job(2)).reasons[0]!.reason).toBe("Error: half a \ufffd character");
});

test("what a server does not take of a job leaves the job in hand, to be given back (§10.4)", async () => {
  const queue = await queueOf(2, { max_deliveries: 1, dead_letter: fresh("dead"), keep_done: 10 });
  const errors: string[] = [];

  const worker = queue.work(
    async (job) => {
      if (job.data === 0) return "x".repeat(1 << 20);
      await expect(job.nack({ reason: "\ud800" })).rejects.toThrow(TypeError);
      return job.nack({ delay_ms: -1 });
    },
    {
      limit: 2,
      keep_results: true,
      first_delay_ms: 0,
      on_error: ({ name }: any, { state }) => errors.push(`${name} ${state}`),
    },
  );

  expect(await worker.done).toBe(0);
  expect(errors).toEqual(["PayloadTooLarge nacked", "InvalidRequest nacked"]);
  expect((await queue.job(1)).reasons[0]!.reason).toMatch(/^PayloadTooLarge: /);
});

test("an error of any kind is a job's and not the worker's", async () => {
  const queue = await queueOf(2);
  const thrown = [undefined, Object.create(null)];

  const worker = queue.work(({ data }) => Promise.reject(thrown[data]), {
    limit: 2,
    on_error: () => {},
  });

  expect(await worker.done).toBe(0);
  expect((await queue.job(2)).reasons[0]!.reason).toBe("object");
});

test("an `on_error` that throws ends its worker", async () => {
  const queue = await queueOf(3);

  const worker = queue.work(
    () => {
      throw new Error("failed");
    },
    {
      on_error: () => {
        throw new RangeError("enough");
      },
    },
  );

  await expect(worker.done).rejects.toThrow(RangeError);
});
