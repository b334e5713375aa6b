// BullMQ: `node on_bullmq.cjs work`, or `node on_bullmq.cjs JOBS PAUSE_MS`.
const fs = require("node:fs");
const { Queue, Worker } = require("bullmq");

const { hostname, port } = new URL(process.env.BENCH_BROKER);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const nowNs = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));

function work() {
  const file = fs.openSync(process.env.BENCH_STARTS, "a");
  const pair = Buffer.alloc(16);
  const note = async (job) => {
    pair.writeBigUInt64LE(BigInt(job.data.enqueued), 0);
    pair.writeBigUInt64LE(nowNs(), 8);
    fs.writeSync(file, pair);
  };
  new Worker("bench", note, { connection, concurrency: 8 });
}

async function produce(jobs, pauseMs) {
  const queue = new Queue("bench", { connection });
  for (let n = 0; n < jobs; n++) {
    await queue.add("start", { enqueued: String(nowNs()) }, { removeOnComplete: true });
    if (pauseMs) await new Promise((done) => setTimeout(done, pauseMs));
  }
  await queue.close();
}

if (process.argv[2] === "work") work();
else produce(Number(process.argv[2]), Number(process.argv[3]));
