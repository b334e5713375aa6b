// A producer's batches, over a real server and over answers from a script.

import { expect, test } from "vitest";
import { Client, InvalidRequest, NotSent, Producer, Unreachable } from "../src/index.js";
import { Settled } from "../src/waiting.js";
import { all, fresh, shared } from "./stories.js";

test("records are sent in batches and in order, each with its number", async () => {
  const topic = shared.client().topic<number>(fresh());
  const sent = [];

  {
    await using producer = new Producer<number>(topic, { batch_records: 100 });
    for (let n = 0; n < 1050; n++) sent.push(await producer.send(n, { tag: `t${n % 3}` }));
  }

  expect(await sent.at(-1)!.seq).toBe(1050);
  const pages = await all(topic.read({ include_tags: true }));
  expect(pages.flatMap(({ records }) => records.map(({ data }) => data))).toEqual(
    Array.from({ length: 1050 }, (_, n) => n),
  );
  expect(pages[0]!.records[4]!.tag).toBe("t1");
});

test("a record that is alone goes when it has waited, or at once by `flush`", async () => {
  const topic = shared.client().topic<number>(fresh());
  const patient = new Producer<number>(topic, { linger_ms: 1_000_000 });
  const prompt = new Producer<number>(topic, { linger_ms: 1 });

  const waits = await patient.send(1);
  await patient.flush();
  const goes = await prompt.send(2);

  expect([await waits.seq, await goes.seq]).toEqual([1, 2]);
  await patient.close();
  await prompt.close();
});

test("`send` waits while too much is not acknowledged, and keeps the order of calls", async () => {
  const topic = shared.client().topic<string>(fresh());
  const producer = new Producer<string>(topic, { buffer_chars: 50, linger_ms: 1_000_000 });

  const sends = Array.from({ length: 20 }, (_, n) => producer.send(`${n}:${"x".repeat(20)}`));
  const sent = await Promise.all(sends);
  await producer.close();
  const seqs = await Promise.all(sent.map(({ seq }) => seq));

  expect(seqs).toEqual(Array.from({ length: 20 }, (_, n) => n + 1));
  expect((await topic.page()).records.map(({ data }) => parseInt(data))).toEqual(
    Array.from({ length: 20 }, (_, n) => n),
  );
});

test("a `send` that waits ends with its signal, and its record is not sent", async () => {
  const name = fresh();
  const mayGo = new Settled<void>();
  const client = shared.client({
    fetch: async (input, init) => (await mayGo.promise, fetch(input, init)),
  });
  const options = { batch_records: 1, buffer_chars: 1 };
  const producer = new Producer<number>(client.topic<number>(name), options);
  const controller = new AbortController();

  const sends = [producer.send(1), producer.send(2, controller), producer.send(3, controller)];
  sends.push(producer.send(4));
  controller.abort("enough");
  const ended = await Promise.all(sends.slice(1, 3).map((sent) => sent.catch((reason) => reason)));
  mayGo.resolve();
  const taken = await Promise.all([sends[0]!, sends[3]!]);
  const refused = await producer.send(5, controller).catch((reason) => reason);
  await producer.close();

  expect([...ended, refused]).toEqual(["enough", "enough", "enough"]);
  expect(await Promise.all(taken.map(({ seq }) => seq))).toEqual([1, 2]);
  expect((await client.topic(name).page()).records.map(({ data }) => data)).toEqual([1, 4]);
});

test.each([[{ n: NaN }], ["\ud800"], [() => {}], [{ toJSON: () => undefined }]])(
  "a value that JSON cannot say affects no other record",
  async (value) => {
    const producer = new Producer(shared.client().topic(fresh()));

    await expect(producer.send(value)).rejects.toThrow(TypeError);
    await expect((await producer.send(1)).seq).resolves.toBe(1);
    await producer.close();
    await expect(producer.send(2)).rejects.toThrow(TypeError);
  },
);

test("a number that is not waited for, and does not come, ends no program", async () => {
  const unhandled: unknown[] = [];
  const note = (why: unknown) => unhandled.push(why);
  process.on("unhandledRejection", note);
  const client = new Client("http://127.0.0.1:9", { retry: { for_ms: 0 } });
  const producer = new Producer(client.topic("jobs"));

  const { seq } = await producer.send(1);
  await expect(producer.close()).rejects.toThrow(Unreachable);
  await new Promise((resolve) => setImmediate(resolve));

  expect(unhandled).toEqual([]);
  await expect(seq).rejects.toThrow(Unreachable);
  process.off("unhandledRejection", note);
});

test("after a batch that failed nothing more is sent", async () => {
  const topic = shared.client().topic(fresh());
  const producer = new Producer(topic, { batch_records: 1, create: false });

  const [first, second] = await Promise.all([producer.send(1), producer.send(2)]);

  await expect(first.seq).rejects.toThrow(/does not exist/);
  await expect(second.seq).rejects.toThrow(NotSent);
  await expect(producer.send(3)).rejects.toThrow(NotSent);
  await expect(producer.flush()).rejects.toThrow(/does not exist/);
  await producer.close();
});

test("a batch that failed is told by `close`, where nobody asked before", async () => {
  const client = new Client("http://127.0.0.1:9", { retry: { for_ms: 0 } });
  const producer = new Producer(client.topic("jobs"));

  await producer.send(1);

  await expect(producer.close()).rejects.toThrow(Unreachable);
  await expect(
    new Producer(shared.client().topic(fresh()), { config: { cap: 1 } as {} })
      .send(1)
      .then(({ seq }) => seq),
  ).rejects.toThrow(InvalidRequest);
});
