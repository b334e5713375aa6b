import { client } from "./client/client.gen";
import * as api from "./client";

async function main(): Promise<void> {
  client.setConfig({ baseUrl: process.argv[2], throwOnError: true });
  const [log, jobs, small] = [{ topic: "log" }, { topic: "jobs" }, { topic: "small" }];
  const throwOnError = true;

  await api.putTopic({ path: log, body: { durability: "disk" }, throwOnError });
  const appended = await api.appendRecords({
    path: log,
    headers: { "Idempotency-Key": "once" },
    body: {
      records: [
        { data: { order: 1, lines: [1.5, null] }, tag: "eu.open", node: "shop", meta: { from: ["web", { a: 1 }] } },
        { data: [2.5], tag: "us.open" },
      ],
    },
    throwOnError,
  });
  const page = (await api.readRecords({ path: log, body: { include_tags: true }, throwOnError })).data;
  const matched = await api.readRecords({ path: log, body: { match: "eu.*", node: ["other"] }, throwOnError });
  const stable = await api.readRecordsPage({ path: log, query: { from_seq: 1 }, throwOnError });
  const given = (await api.readRecords({ path: { topic: "given" }, throwOnError })).data;
  const deleted = await api.deleteRecords({ path: log, body: { match: ["tag", "Eq", "us.open"] }, throwOnError });
  const purged = (await api.purgeRecords({ path: log, throwOnError })).data;

  await api.putTopic({ path: jobs, body: { type: "queue" }, throwOnError });
  await api.appendRecords({ path: jobs, body: { records: [{ data: { mail: 1 } }] }, throwOnError });
  const job = (await api.claimJobs({ path: jobs, body: { node: "w" }, throwOnError })).data.claimed[0]!;
  const held = { node: "w", seqs: [job.$seq], lease_ids: [job.lease_id] };
  const acked = await api.ackJobs({ path: jobs, body: held, throwOnError });

  const three = [1, 2, 3].map((data) => ({ data }));
  await api.appendRecords({ path: small, body: { records: three, config: { cap_records: 1 } }, throwOnError });
  const tombstone = (await api.readRecords({ path: small, throwOnError })).data.tombstone!;

  const copies = { source: "log", dest: "copy", filter: "eu.*" };
  const router = await api.putRouter({ path: { router: "copies" }, body: copies, throwOnError });
  const metrics = await api.getMetrics({ throwOnError });
  const absent = await api.getTopic({ path: { topic: "absent" }, throwOnError: false });

  const first = page.records[0];
  console.log(
    JSON.stringify({
      seqs: appended.data.seqs,
      record: { seq: first!.$seq, tag: first!.$tag, node: first!.$node, meta: first!.meta, data: first!.data },
      is_recent: first!.$ts > 1.6e12,
      null_data: given.records[0]!.data,
      loss: page.tombstone,
      matched: matched.data.records.map((record) => record.$seq),
      stable: stable.data.records.map((record) => record.$seq),
      deleted: deleted.data.deleted,
      purged: [purged.success, purged.purged],
      job: { seq: job.$seq, data: job.data, deliveries: job.deliveries },
      acked: acked.data.acked,
      tombstone: [tombstone.gap_from, tombstone.gap_to, tombstone.reason],
      filter: router.data.filter,
      metrics: JSON.stringify(metrics.data).includes("topics_topics"),
      error: [absent.response?.status, absent.error?.error.code],
    }),
  );
}

void main();
