// Dead letters back to their queue, oldest first, each once.
//
// As `topics redrive` does it, with the same idempotency keys: append to the queue, then delete here.  What
// an interrupted run had appended is recognised by its key.

import { getJson, sendJson, sendText, why } from "./api.js";
import { $, count, digits, set, show } from "./dom.js";
import { fields, parse } from "./json.js";
import { read } from "./reading.js";

const MARK = "$dead_letter_", BATCH = 100, LEASE_MS = 60000;

let topic = "", isRunning = false, isStopped = false;

/** Offer it where the oldest record is a dead letter. @param oldest a record, or undefined */
export function openRedrive(name, oldest) {
  const from = oldest?.meta && fields(oldest.meta)[MARK + "from"];
  if (topic !== name) {
    topic = name;
    isStopped = true;
    set($("redrive-done"), "");
    set($("redrive-trouble"), "");
    $("redrive-to").value = "";
  }
  if (from && !$("redrive-to").value) $("redrive-to").value = JSON.parse(from);
  show($("redrive"), Boolean(from) || isRunning || $("redrive-done").textContent !== "");
}

/** The record as it was: data, tag, node, and meta without the marks. */
function body({ data, tag, node, meta }, key) {
  const parts = [`"data":${typeof data === "string" ? data : data.text}`];
  if (tag !== null) parts.push(`"tag":${JSON.stringify(tag)}`);
  if (node !== null) parts.push(`"node":${JSON.stringify(node)}`);
  const kept = meta ? meta.parts.filter(([name]) => !JSON.parse(name).startsWith(MARK)) : [];
  if (kept.length) parts.push(`"meta":{${kept.map(([name, value]) => `${name}:${value.text ?? value}`).join(",")}}`);
  return `{"records":[{${parts.join(",")}}],"create":false,"idempotency_key":${JSON.stringify(key)}}`;
}

async function run(from, to) {
  const [state, queue] = await Promise.all([getJson(`/v0/topics/${from}?touch=false`), getJson(`/v0/topics/${to}?touch=false`)]);
  if (queue.type !== "queue") throw new Error(`${to} is no queue.`);
  const append = (letter) => sendText("POST", `/v0/topics/${to}`, body(letter, `redrive:${state.epoch}:${letter.seq}`));
  const step = state.type === "queue" ? fromQueue : fromLog;
  let moved = 0;
  for (;;) {
    const n = await step(from, append, state);
    moved += n;
    set($("redrive-done"), `${count(moved, "letter")} moved to ${to}.`);
    if (!n || isStopped) return;
  }
}

async function fromLog(from, append, state) {
  const page = await read(from, { from_seq: 0, limit: BATCH, include_tags: true, epoch: state.epoch });
  if (page.epoch !== state.epoch) throw new Error(`${from} was deleted and made again meanwhile.`);
  const letters = page.items.filter((item) => item.seq && item.seq <= state.head_seq);
  let last = 0;
  try {
    for (const letter of letters) { await append(letter); last = letter.seq; }
  } finally {
    if (last) await sendJson("POST", `/v0/topics/${from}/delete`, { before_seq: last + 1 });
  }
  return letters.length;
}

async function fromQueue(from, append, state) {
  const node = "console-redrive";
  const answer = fields(parse(await sendText("POST", `/v0/topics/${from}/claim`, { node, max: BATCH, lease_ms: LEASE_MS })));
  const jobs = answer.claimed.parts.map(([, job]) => fields(job)).map((job) => ({
    seq: Number(job.$seq), lease: JSON.parse(job.lease_id), data: job.data, meta: job.meta,
    tag: job.$tag === undefined ? null : JSON.parse(job.$tag), node: job.$node === undefined ? null : JSON.parse(job.$node),
  }));
  const mine = jobs.filter((job) => job.seq <= state.head_seq), done = [];
  try {
    for (const job of mine) { await append(job); done.push(job); }
  } finally {
    const told = (some) => ({ node, seqs: some.map(({ seq }) => seq), lease_ids: some.map(({ lease }) => lease) });
    const rest = jobs.filter((job) => !done.includes(job));
    if (done.length) await sendJson("POST", `/v0/topics/${from}/ack`, told(done));
    if (rest.length) await sendJson("POST", `/v0/topics/${from}/nack`, told(rest));
  }
  return mine.length;
}

$("redrive").onsubmit = async (event) => {
  event.preventDefault();
  if (isRunning) { isStopped = true; return; }
  const from = topic, to = $("redrive-to").value.trim();
  set($("redrive-trouble"), "");
  set($("redrive-done"), "");
  isStopped = false;
  if (!$("redrive-sure").checked) {
    const state = await getJson(`/v0/topics/${from}?touch=false`).catch((error) => { set($("redrive-trouble"), why(error)); });
    if (state) set($("redrive-done"), `${digits(state.count)} would be moved to ${to}. Tick the box to move them.`);
    return;
  }
  isRunning = true;
  set($("redrive-go"), "Stop");
  try {
    await run(from, to);
  } catch (error) {
    set($("redrive-trouble"), why(error));
  } finally {
    isRunning = false;
    $("redrive-sure").checked = false;
    set($("redrive-go"), "Redrive");
  }
};
