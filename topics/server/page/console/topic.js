// One topic's page: its counters, how far it is from losing something, and its parts as tabs.

import { forgetActivity, noteActivity } from "./activity.js";
import { ask, why } from "./api.js";
import { $, clock, count, digits, make, set, short, show, size, span, toSecond } from "./dom.js";
import { forgetJobs, leaveJobs, noteQueue, openJobs, refreshJobs } from "./jobs.js";
import { fields, parse } from "./json.js";
import { openPublish } from "./publish.js";
import { choosePartition, dayText, lossText, read } from "./reading.js";
import { forgetRecords, noteHead, openRecords } from "./records.js";
import { openRedrive } from "./redrive.js";
import { openRemoval } from "./removal.js";
import { forgetSettings, openSettings } from "./settings.js";
import { forgetTail, leaveTail, openTail } from "./tail.js";

export const TABS = ["records", "live", "jobs", "activity", "publish", "settings", "manage"];
const OLDEST_AGAIN_MS = 10000;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$/; // (§1.1)

let topic = "", tab = "", wanted, state = null, oldest = {}, rates = [], partition = 0;

/** Show a topic's page. @param seq of the record that a link names */
export function openTopic(name, part = "records", seq) {
  if (name !== topic) {
    forgetTail();
    forgetRecords();
    forgetJobs();
    forgetSettings();
    forgetActivity(name);
    state = null;
    oldest = {};
    rates = [];
    partition = 0;
    choosePartition(null);
    show($("partition-of"), false);
    $("facts").replaceChildren();
    set($("title"), name);
    set($("kind"), "");
    show($("topic-trouble"), false);
  }
  topic = name;
  tab = TABS.includes(part) ? part : "records";
  wanted = seq;
  for (const each of TABS) {
    show($("tab-" + each), false); // until it is known that there is such a topic
    const anchor = $(each === "jobs" ? "to-jobs-tab" : "to-" + each);
    anchor.href = `#/topics/${name}` + (each === "records" ? "" : "/" + each);
    if (each === tab) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  if (tab !== "live") leaveTail();
  if (tab !== "jobs") leaveJobs();
  if (state) openTab();
}

export function leaveTopic() { leaveTail(); leaveJobs(); }

export function forgetTopic() { forgetRecords(); forgetJobs(); forgetSettings(); forgetActivity(topic); state = null; }

/** Of a queue: its counters, and where its dead letters go. */
const jobsOf = () => ({ queue: state.queue, letters: JSON.parse(state.config.dead_letter ?? "null") });

function openTab() {
  if (tab === "jobs" && !state.isQueue) tab = "records"; // a log has none
  show($("to-jobs-tab"), state.isQueue);
  for (const each of TABS) show($("tab-" + each), each === tab);
  const known = { head: state.head, earliest: state.earliest, isQueue: state.isQueue, partitions: state.partitions };
  if (tab === "records") openRecords(topic, known, wanted);
  if (tab === "live") openTail(topic, known);
  if (tab === "jobs" && state.isQueue) openJobs(topic, jobsOf(), wanted);
  if (tab === "publish") openPublish(topic, state.isQueue);
  if (tab === "settings") openSettings(topic);
  if (tab === "manage") {
    openRemoval(topic, () => refreshTopic());
    openRedrive(topic, oldest.record);
  }
}

export async function refreshTopic(isCurrent = () => true) {
  const name = topic;
  try {
    if (!NAME.test(name)) throw new Error("No topic can have such a name.");
    const found = fields(parse(await (await ask(`/v0/topics/${name}?touch=false`, { signal: AbortSignal.timeout(10000) })).text()));
    if (!isCurrent() || name !== topic) return;
    const isFirst = !state, counters = found.queue && fields(found.queue);
    const partitions = found.partitions ? found.partitions.parts.map(([, each]) => fields(each)) : [];
    if (partition >= partitions.length) partition = 0;
    choosePartition(partitions.length ? partition : null);
    const { head_seq, earliest_seq } = partitions[partition] ?? found;
    state = {
      partitions, head: Number(head_seq), earliest: Number(earliest_seq), records: Number(found.count), bytes: Number(found.bytes),
      disk: Number(found.disk_bytes), segments: Number(found.segments),
      lost: found.lost_24h.parts.map(([, each]) => fields(each)), isQueue: found.type === '"queue"', config: fields(found.config), queue: counters,
      written: found.last_write_ts, read: found.last_read_ts, priority: Number(found.effective_priority),
    };
    rates = [...rates, { at: performance.now(), head: state.head }].slice(-16);
    show($("topic-trouble"), false);
    showParts(true);
    if (isFirst) openTab();
    noteHead(name, state.head);
    await lookAtOldest(name);
    if (!isCurrent() || name !== topic) return;
    fillFacts();
    if (tab === "activity") await noteActivity(state, isCurrent);
    if (!isCurrent() || name !== topic || !state) return;
    if (tab === "manage") openRedrive(topic, oldest.record);
    if (tab === "jobs" && state.isQueue) {
      noteQueue(jobsOf());
      if (!isFirst) await refreshJobs();
    }
  } catch (error) {
    if (!isCurrent() || name !== topic) return;
    set($("topic-trouble"), why(error));
    show($("topic-trouble"), true);
    if (!state) showParts(false);
  }
}

/** Counters and tabs: of a topic that is not known to exist they would be empty and lead nowhere. */
function showParts(isShown) {
  for (const each of ["kind", "facts", "tabs"]) show($(each), isShown);
  if (!isShown) for (const each of TABS) show($("tab-" + each), false);
}

/** The oldest record, and the loss before it: from where a topic begins, read again when that moved. */
async function lookAtOldest(name) {
  const { earliest, records } = state, now = performance.now();
  if (oldest.earliest === earliest && oldest.isEmpty === !records) return;
  if (oldest.at && now - oldest.at < OLDEST_AGAIN_MS && records && oldest.record) return;
  const page = await read(name, { from_seq: 0, limit: 1, include_tags: true });
  if (name !== topic) return;
  oldest = { at: now, earliest, isEmpty: !records, record: page.items.find((item) => item.seq), loss: page.items.find((item) => item.reason) };
}

/** The partitions to choose from, and what is in the one on show. */
function fillPartitions() {
  const { partitions } = state, box = $("partition");
  show($("partition-of"), partitions.length > 0);
  if (!partitions.length) return;
  while (box.children.length > partitions.length) box.lastChild.remove();
  for (let n = box.children.length; n < partitions.length; n++) box.append(make("option", "", digits(n)));
  box.selectedIndex = partition;
  const { count: records, bytes, earliest_seq, head_seq } = partitions[partition];
  set($("partition-facts"), `of ${digits(partitions.length)}: ${count(Number(records), "record")}, ${size(Number(bytes))}, `
    + `earliest ${digits(earliest_seq)}, head ${digits(head_seq)}`);
}

$("partition").onchange = (event) => {
  partition = event.target.selectedIndex;
  oldest = {};
  rates = [];
  forgetRecords();
  state = null; // so that what is on show is opened anew
  refreshTopic();
};

function rate() {
  const [first, last] = [rates[0], rates.at(-1)];
  return last.at > first.at ? Math.max((1000 * (last.head - first.head)) / (last.at - first.at), 0) : 0;
}

/** How far a topic is from losing a record, or from refusing one. */
function distance() {
  const { config, records, bytes } = state, found = [], perS = rate();
  const cap = (name, used, unit) => {
    const most = Number(config[name]);
    if (!most) return;
    const left = Math.max(most - used, 0), end = config.discard === '"reject"' ? "writes are refused" : "the oldest go";
    const when = unit === "record" && perS > 0 && left ? `, about ${span((1000 * left) / perS)} at this rate` : "";
    found.push(left ? `${unit === "record" ? count(left, unit) : size(left)} until ${end}${when}` : `at its cap: ${end} with each write`);
  };
  cap("cap_records", records, "record");
  cap("cap_bytes", bytes, "byte");
  const ttl = Number(config.ttl_ms);
  if (ttl && oldest.record && records) {
    const left = oldest.record.ts + ttl - Date.now();
    found.push(left > 0 ? `the oldest expires in ${span(left)}` : "the oldest expires now");
  } else if (ttl) found.push(`records expire after ${span(ttl)}`);
  return found.join("; ") || "no cap and no ttl: only deletes remove records";
}

const when = (text) => (text === "null" ? "not since the start" : clock(Number(text)));

function fillFacts() {
  const { head, earliest, records, bytes, disk, segments, lost, queue, isQueue, config } = state;
  const jobs = queue && [`${digits(queue.ready)} ready`, `${digits(queue.in_flight)} in flight`,
    ...(queue.delayed ? [`${digits(queue.delayed)} delayed`] : []), ...(queue.blocked ? [`${digits(queue.blocked)} blocked`] : []),
    `${digits(queue.dead_lettered)} dead-lettered`, ...(queue.expired ? [`${digits(queue.expired)} expired`] : [])].join(" · ");
  const { loss } = oldest;
  const perS = rate();
  fillPartitions();
  set($("kind"), `${isQueue ? "queue" : "log"}, ${JSON.parse(config.durability)}`);
  const facts = [
    ["Head", digits(head)],
    ["Earliest", digits(earliest)],
    ["Records", digits(records)],
    ["Bytes", size(bytes)],
    ["On disk", size(disk)],
    ["Segments", digits(segments)],
    ["New per second", perS ? short(perS) : "0"],
    ["Oldest record", oldest.record && records ? toSecond(oldest.record.ts) : "none"],
    ["Last write", when(state.written).replace(/\.\d+$/, "")],
    ["Jobs", jobs ?? ""],
    ["Distance to loss", distance()],
    ["Lost so far", loss ? lossText(loss.from, loss.to, loss.reason) : "nothing that a reader from the start would be told of"],
    ["Lost in the last day", dayText(lost)],
  ];
  const list = $("facts");
  facts.forEach(([label, text], i) => {
    let fact = list.children[i];
    if (!fact) {
      fact = make("div", i > 8 ? "wide" : "", make("dt", "", label), make("dd"));
      list.append(fact);
    }
    set(fact.lastChild, text);
    show(fact, text !== "");
    fact.classList.toggle("warn", (label === "Lost so far" && Boolean(loss)) || (label === "Lost in the last day" && lost.length > 0));
  });
}
