// How calls are sent, sent again, and what they reject with; over answers from a script.

import { expect, test } from "vitest";
import * as topics from "../src/index.js";

const { Client } = topics;

interface Sent {
  url: string;
  method: string;
  headers: { [name: string]: string };
  body: any;
}

/** A client over answers in their order, and what was sent. An error is a connection that broke. */
function scripted(answers: (Response | Error)[], options: topics.ClientOptions = {}) {
  const sent: Sent[] = [];
  const client = new Client("http://topics.test/base/", {
    retry: { first_pause_ms: 1, longest_pause_ms: 1 },
    ...options,
    fetch: async (input, { method, headers, body }: any = {}) => {
      sent.push({
        url: String(input),
        method,
        headers,
        body: body === undefined ? undefined : JSON.parse(body),
      });
      const answer = answers.shift()!;
      if (answer instanceof Error) throw answer;
      return answer;
    },
  });
  return { client, sent };
}

const json = (value: unknown, status = 200, headers = {}) =>
  new Response(JSON.stringify(value), { status, headers });
const refusal = (status: number, code: string, detail = {}, headers = {}) =>
  json({ error: { code, message: code, detail } }, status, headers);
const broken = () => new TypeError("fetch failed", { cause: { code: "ECONNRESET" } });
const unsent = () => new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });
const APPENDED = { first_seq: 1, last_seq: 1, count: 1 };

test("each request has the key, and asks for strict handling", async () => {
  const { client, sent } = scripted([json(APPENDED)], { api_key: "tk_1" });

  await client.topic("a:b/c").append(1);

  expect(sent[0]).toMatchObject({
    url: "http://topics.test/base/v0/topics/a:b%2Fc?return_seqs=false",
    headers: {
      authorization: "Bearer tk_1",
      prefer: "handling=strict",
      "content-type": "application/json",
    },
  });
});

test("an append is sent again under its key after a break, and 429 and 503 (§0.8)", async () => {
  const answers = [
    broken(),
    refusal(429, "throttled", { retry_after_ms: 1 }),
    refusal(503, "not_ready"),
    json(APPENDED),
  ];
  const { client, sent } = scripted(answers);

  expect((await client.topic("jobs").append(1)).seqs).toEqual([1]);
  expect(sent.length).toBe(4);
  expect(new Set(sent.map(({ body }) => body.idempotency_key)).size).toBe(1);
});

test("what could do its work twice is sent again only where it cannot have arrived (§5)", async () => {
  const { client, sent } = scripted([unsent(), broken()]);

  await expect(client.topic("jobs").purge()).rejects.toThrow(topics.Unreachable);
  expect(sent.length).toBe(2);
});

test("an append without a key is sent once where its answer is lost", async () => {
  const { client, sent } = scripted([broken()]);

  await expect(client.topic("jobs").append(1, { idempotency_key: null })).rejects.toThrow(
    topics.Unreachable,
  );
  expect(sent[0]!.body).toEqual({ records: [{ data: 1 }] });
});

test("a 500 is not sent again, except for the calls of a worker (§0.6)", async () => {
  const one = scripted([refusal(500, "internal")]);
  const other = scripted([refusal(500, "internal"), json({ claimed: [], count: 0 })]);

  await expect(one.client.topic("jobs").append(1)).rejects.toThrow(topics.ServerFault);
  expect((await new topics.Queue(other.client, "q").claim({ node: "w" })).claimed).toEqual([]);
});

test("a refusal that may have taken effect is not sent again where that could do it twice (§0.6)", async () => {
  const { client } = scripted([refusal(503, "not_leader", { outcome: "unknown" })]);

  await expect(client.topic("jobs").delete()).rejects.toThrow(topics.NotReady);
});

test("Retry-After is obeyed, and ends the retries where it is longer than they are (§0.6)", async () => {
  const { client, sent } = scripted([refusal(429, "throttled", {}, { "retry-after": "20" })]);

  await expect(client.topic("jobs").append(1)).rejects.toMatchObject({
    status: 429,
    retry_after_ms: 20_000,
  });
  expect(sent.length).toBe(1);
});

test("patience that is not given is the usual one", async () => {
  const { client, sent } = scripted([broken(), json(APPENDED)], { retry: { for_ms: undefined } });

  await client.topic("jobs").append(1);

  expect(sent.length).toBe(2);
});

test("`health` is asked once", async () => {
  const { client } = scripted([refusal(503, "shutting_down")]);

  await expect(new topics.Server(client).health()).rejects.toThrow(topics.NotReady);
});

test("who is connected, page by page (§8.9)", async () => {
  const { client, sent } = scripted([
    json({ clients: [{ client: "0-1" }], next_after: "0-1" }),
    json({ clients: [{ client: "1-1" }], next_after: null }),
  ]);

  const found = [];
  for await (const each of new topics.Server(client).clients({ topic: "t" })) {
    found.push(each.client);
  }

  expect(found).toEqual(["0-1", "1-1"]);
  expect(sent[1]?.url).toBe("http://topics.test/base/v0/clients?topic=t&limit=1000&after=0-1");
});

test.each([
  [400, "batch_too_large", topics.BatchTooLarge],
  [400, "record_too_large", topics.RecordTooLarge],
  [400, "invalid_request", topics.InvalidRequest],
  [400, "partition_required", topics.PartitionRequired],
  [401, "unauthorized", topics.Unauthorized],
  [403, "forbidden", topics.Forbidden],
  [404, "topic_not_found", topics.TopicNotFound],
  [404, "partition_not_found", topics.PartitionNotFound],
  [404, "record_not_found", topics.RecordNotFound],
  [404, "job_not_found", topics.JobNotFound],
  [404, "router_not_found", topics.RouterNotFound],
  [404, "group_not_found", topics.GroupNotFound],
  [404, "schedule_not_found", topics.ScheduleNotFound],
  [404, "of_a_later_server", topics.NotFound],
  [409, "not_a_queue", topics.Conflict],
  [413, "payload_too_large", topics.PayloadTooLarge],
  [418, "of_a_later_server", topics.InvalidRequest],
  [422, "topic_full", topics.TopicFull],
  [422, "key_required", topics.KeyRequired],
  [500, "internal", topics.ServerFault],
])("%i %s is a class of its own (§0.6)", async (status, code, kind) => {
  const { client } = scripted([refusal(status, code, { topic: "jobs" })]);

  const error = await client
    .topic("jobs")
    .append(1)
    .catch((error) => error);

  expect(error).toBeInstanceOf(kind);
  expect(error).toMatchObject({ code, status, message: code, detail: { topic: "jobs" } });
});

test("what is no answer of this API is a BadAnswer", async () => {
  const page = () => new Response("<html>", { status: 200 });
  const moved = () =>
    new Response("", { status: 302, headers: { location: "http://other.test/" } });

  await expect(scripted([page()]).client.topic("jobs").state()).rejects.toThrow(topics.BadAnswer);
  await expect(scripted([moved()]).client.topic("jobs").state()).rejects.toThrow(topics.BadAnswer);
});

test("a server that is silent is not waited for without end", async () => {
  const client = new Client("http://topics.test", {
    timeout_ms: 5,
    retry: { for_ms: 0 },
    fetch: (_, init) =>
      new Promise((_, reject) =>
        init!.signal!.addEventListener("abort", () => reject(new Error("aborted"))),
      ),
  });

  await expect(client.topic("jobs").state()).rejects.toThrow(/nothing came for 5 ms/);
});

test("a signal ends a call and its retries with its own reason", async () => {
  const controller = new AbortController();
  const { client } = scripted([broken(), broken()], {
    retry: { first_pause_ms: 100_000, for_ms: 1_000_000 },
  });

  const call = client.topic("jobs").state({ signal: controller.signal });
  controller.abort(new RangeError("enough"));

  await expect(call).rejects.toThrow(RangeError);
});

test("a client reads its own writes in a cluster (§8.7)", async () => {
  const at = (text: string) => json(APPENDED, 200, { "x-topics-position": text });
  const { client, sent } = scripted([
    at("1.20"),
    at("1.7"),
    at("later"),
    at("2.3"),
    json(APPENDED),
  ]);

  for (let n = 0; n < 5; n++) await client.topic("jobs").append(n);

  expect(sent.map(({ headers }) => headers["x-topics-position"])).toEqual([
    undefined,
    "1.20",
    "1.20",
    "1.20",
    "2.3",
  ]);
});

test.each(["ftp://topics.test", "http://user:secret@topics.test", "topics.test"])(
  "%s is no server's URL",
  (url) => {
    expect(() => new Client(url)).toThrow(TypeError);
  },
);

test("a key that cannot stand in a header is refused, and not shown", () => {
  expect(() => new Client("http://topics.test", { api_key: "söcret" })).toThrow(/^((?!söcret).)*$/);
});

test("a URL that is none is refused with one that is", () => {
  expect(() => new Client("http://a:4000,http://b:4000")).toThrow(/one URL of http .*127\.0\.0\.1/);
});
