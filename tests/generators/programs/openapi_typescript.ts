import createClient from "openapi-fetch";
import type { components, paths } from "./client/schema";

type Records = components["schemas"]["AppendBody"]["records"];

/** The answer of a call that must succeed. */
function good<T>(found: { data?: T; error?: unknown }): T {
  if (found.data === undefined) throw new Error(JSON.stringify(found.error));
  return found.data;
}

async function main(): Promise<void> {
  const client = createClient<paths>({ baseUrl: process.argv[2]! });
  const [log, jobs, small] = ["log", "jobs", "small"].map((topic) => ({ path: { topic } })) as [
    { path: { topic: string } },
    { path: { topic: string } },
    { path: { topic: string } },
  ];

  good(await client.PUT("/v0/topics/{topic}", { params: log, body: { durability: "disk" } }));
  const records: Records = [
    { data: { order: 1, lines: [1.5, null] }, tag: "eu.open", node: "shop", meta: { from: ["web", { a: 1 }] } },
    { data: [2.5], tag: "us.open" },
  ];
  const appended = good(
    await client.POST("/v0/topics/{topic}", {
      params: { ...log, header: { "Idempotency-Key": "once" }, query: { return_seqs: true } },
      body: { records },
    }),
  );
  const page = good(await client.POST("/v0/topics/{topic}/diff", { params: log, body: { include_tags: true } }));
  const matched = good(
    await client.POST("/v0/topics/{topic}/diff", { params: log, body: { match: "eu.*", node: ["other"] } }),
  );
  const stable = good(
    await client.GET("/v0/topics/{topic}/records", { params: { ...log, query: { from_seq: 1 } } }),
  );
  const given = good(
    await client.POST("/v0/topics/{topic}/diff", { params: { path: { topic: "given" } } }),
  );
  const deleted = good(
    await client.POST("/v0/topics/{topic}/delete", { params: log, body: { match: ["tag", "Eq", "us.open"] } }),
  );
  const purged = good(await client.POST("/v0/topics/{topic}/purge", { params: log }));

  good(await client.PUT("/v0/topics/{topic}", { params: jobs, body: { type: "queue" } }));
  good(await client.POST("/v0/topics/{topic}", { params: jobs, body: { records: [{ data: { mail: 1 } }] } }));
  const claimed = good(await client.POST("/v0/topics/{topic}/claim", { params: jobs, body: { node: "w" } }));
  const job = claimed.claimed[0]!;
  const held = { node: "w", seqs: [job.$seq], lease_ids: [job.lease_id] };
  const acked = good(await client.POST("/v0/topics/{topic}/ack", { params: jobs, body: held }));

  const three: Records = [1, 2, 3].map((data) => ({ data }));
  good(
    await client.POST("/v0/topics/{topic}", { params: small, body: { records: three, config: { cap_records: 1 } } }),
  );
  const tombstone = good(await client.POST("/v0/topics/{topic}/diff", { params: small })).tombstone!;

  const router = good(
    await client.PUT("/v0/routers/{router}", {
      params: { path: { router: "copies" } },
      body: { source: "log", dest: "copy", filter: "eu.*" },
    }),
  );
  const metrics = good(await client.GET("/v0/metrics", { parseAs: "text" }));
  const absent = await client.GET("/v0/topics/{topic}", { params: { path: { topic: "absent" } } });

  const first = page.records[0];
  console.log(
    JSON.stringify({
      seqs: appended.seqs,
      record: { seq: first!.$seq, tag: first!.$tag, node: first!.$node, meta: first!.meta, data: first!.data },
      is_recent: first!.$ts > 1.6e12,
      null_data: given.records[0]!.data,
      loss: page.tombstone,
      matched: matched.records.map((record) => record.$seq),
      stable: stable.records.map((record) => record.$seq),
      deleted: deleted.deleted,
      purged: [purged.success, purged.purged],
      job: { seq: job.$seq, data: job.data, deliveries: job.deliveries },
      acked: acked.acked,
      tombstone: [tombstone.gap_from, tombstone.gap_to, tombstone.reason],
      filter: router.filter,
      metrics: JSON.stringify(metrics).includes("topics_topics"),
      error: [absent.response.status, absent.error?.error.code],
    }),
  );
}

void main();
