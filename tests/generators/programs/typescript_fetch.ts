import { Configuration, QueuesApi, RecordsApi, ResponseError, RoutersApi, ServerApi, TopicsApi } from "./client";

async function main(): Promise<void> {
  const at = new Configuration({ basePath: process.argv[2] });
  const [topics, records, queues] = [new TopicsApi(at), new RecordsApi(at), new QueuesApi(at)];

  await topics.putTopic({ topic: "log", configBody: { durability: "disk" } });
  const appended = await records.appendRecords({
    topic: "log",
    idempotencyKey: "once",
    appendBody: {
      records: [
        { data: { order: 1, lines: [1.5, null] }, tag: "eu.open", node: "shop", meta: { from: ["web", { a: 1 }] } },
        { data: [2.5], tag: "us.open" },
      ],
    },
  });
  const page = await records.readRecords({ topic: "log", diffBody: { includeTags: true, includeMeta: true } });
  const matched = await records.readRecords({ topic: "log", diffBody: { match: "eu.*", node: ["other"] } });
  const stable = await records.readRecordsPage({ topic: "log", fromSeq: 1 });
  const given = await records.readRecords({ topic: "given" });
  const deleted = await records.deleteRecords({ topic: "log", deleteBody: { match: ["tag", "Eq", "us.open"] } });
  const purged = await records.purgeRecords({ topic: "log" });

  await topics.putTopic({ topic: "jobs", configBody: { type: "queue" } });
  await records.appendRecords({ topic: "jobs", appendBody: { records: [{ data: { mail: 1 } }] } });
  const claimed = await queues.claimJobs({ topic: "jobs", claimBody: { node: "w" } });
  const job = claimed.claimed[0]!;
  const acked = await queues.ackJobs({
    topic: "jobs",
    ackBody: { node: "w", seqs: [job.$seq], leaseIds: [job.leaseId] },
  });

  await records.appendRecords({
    topic: "small",
    appendBody: { records: [1, 2, 3].map((data) => ({ data })), config: { capRecords: 1 } },
  });
  const small = await records.readRecords({ topic: "small" });

  const router = await new RoutersApi(at).putRouter({
    router: "copies",
    routerBody: { source: "log", dest: "copy", filter: "eu.*" },
  });
  const metrics = await new ServerApi(at).getMetrics();
  const error = await topics.getTopic({ topic: "absent" }).then(
    () => null,
    async (refusal: ResponseError) => ({ status: refusal.response.status, ...(await refusal.response.json()).error }),
  );

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
      tombstone: [small.tombstone!.gapFrom, small.tombstone!.gapTo, small.tombstone!.reason],
      filter: router.filter,
      metrics: JSON.stringify(metrics).includes("topics_topics"),
      error: [error!.status, error!.code],
    }),
  );
}

void main();
