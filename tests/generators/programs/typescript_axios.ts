import { isAxiosError } from "axios";
import { Configuration, QueuesApi, RecordsApi, RoutersApi, ServerApi, TopicsApi } from "./client";

async function main(): Promise<void> {
  const at = new Configuration({ basePath: process.argv[2] });
  const [topics, records, queues] = [new TopicsApi(at), new RecordsApi(at), new QueuesApi(at)];

  await topics.putTopic("log", { durability: "disk" });
  const appended = await records.appendRecords(
    "log",
    {
      records: [
        { data: { order: 1, lines: [1.5, null] }, tag: "eu.open", node: "shop", meta: { from: ["web", { a: 1 }] } },
        { data: [2.5], tag: "us.open" },
      ],
    },
    true,
    "once",
  );
  const page = await records.readRecords("log", { include_tags: true, include_meta: true });
  const matched = await records.readRecords("log", { match: "eu.*", node: ["other"] });
  const stable = await records.readRecordsPage("log", 1);
  const given = (await records.readRecords("given")).data;
  const deleted = await records.deleteRecords("log", { match: ["tag", "Eq", "us.open"] });
  const purged = await records.purgeRecords("log");

  await topics.putTopic("jobs", { type: "queue" });
  await records.appendRecords("jobs", { records: [{ data: { mail: 1 } }] });
  const job = (await queues.claimJobs("jobs", { node: "w" })).data.claimed[0]!;
  const acked = await queues.ackJobs("jobs", { node: "w", seqs: [job.$seq], lease_ids: [job.lease_id] });

  await records.appendRecords("small", { records: [1, 2, 3].map((data) => ({ data })), config: { cap_records: 1 } });
  const tombstone = (await records.readRecords("small")).data.tombstone!;

  const router = await new RoutersApi(at).putRouter("copies", { source: "log", dest: "copy", filter: "eu.*" });
  const metrics = await new ServerApi(at).getMetrics();
  const error = await topics.getTopic("absent").then(
    () => null,
    (refusal: unknown) => (isAxiosError(refusal) ? [refusal.response!.status, refusal.response!.data.error.code] : null),
  );

  const first = page.data.records[0];
  console.log(
    JSON.stringify({
      seqs: appended.data.seqs,
      record: { seq: first!.$seq, tag: first!.$tag, node: first!.$node, meta: first!.meta, data: first!.data },
      is_recent: first!.$ts > 1.6e12,
      null_data: given.records[0]!.data,
      loss: page.data.tombstone,
      matched: matched.data.records.map((record) => record.$seq),
      stable: stable.data.records.map((record) => record.$seq),
      deleted: deleted.data.deleted,
      purged: [purged.data.success, purged.data.purged],
      job: { seq: job.$seq, data: job.data, deliveries: job.deliveries },
      acked: acked.data.acked,
      tombstone: [tombstone.gap_from, tombstone.gap_to, tombstone.reason],
      filter: router.data.filter,
      metrics: JSON.stringify(metrics.data).includes("topics_topics"),
      error,
    }),
  );
}

void main();
