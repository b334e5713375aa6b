import axios, { isAxiosError } from "axios";
import * as api from "./client/client";

async function main(): Promise<void> {
  axios.defaults.baseURL = process.argv[2];

  await api.putTopic("log", { durability: "disk" });
  const appended = await api.appendRecords(
    "log",
    {
      records: [
        { data: { order: 1, lines: [1.5, null] }, tag: "eu.open", node: "shop", meta: { from: ["web", { a: 1 }] } },
        { data: [2.5], tag: "us.open" },
      ],
    },
    { return_seqs: true },
    { headers: { "Idempotency-Key": "once" } },
  );
  const page = await api.readRecords("log", { include_tags: true, include_meta: true });
  const matched = await api.readRecords("log", { match: "eu.*", node: ["other"] });
  const stable = await api.readRecordsPage("log", { from_seq: 1 });
  const given = (await api.readRecords("given")).data;
  const deleted = await api.deleteRecords("log", { match: ["tag", "Eq", "us.open"] });
  const purged = await api.purgeRecords("log");

  await api.putTopic("jobs", { type: "queue" });
  await api.appendRecords("jobs", { records: [{ data: { mail: 1 } }] });
  const job = (await api.claimJobs("jobs", { node: "w" })).data.claimed[0]!;
  const acked = await api.ackJobs("jobs", { node: "w", seqs: [job.$seq], lease_ids: [job.lease_id] });

  await api.appendRecords("small", { records: [1, 2, 3].map((data) => ({ data })), config: { cap_records: 1 } });
  const tombstone = (await api.readRecords("small")).data.tombstone!;

  const router = await api.putRouter("copies", { source: "log", dest: "copy", filter: "eu.*" });
  const metrics = await api.getMetrics();
  const error = await api.getTopic("absent").then(
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
