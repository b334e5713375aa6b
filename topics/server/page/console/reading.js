// Pages of a topic in both directions, over reads that only go forward (§3).
//
// A page is a list of items in order: `{seq, …}` a record; `{from, to, reason}` loss, as a tombstone tells
// it; `{from, to}` without a reason: seqs that no record has and no tombstone names.

import { sendText } from "./api.js";
import { count, digits, toSecond } from "./dom.js";
import { fields, parse, textOf } from "./json.js";

export const PAGE = 50;
const REQUESTS_MAX = 20, WINDOW_MAX = 1000000;

let chosen = null; // of a topic with several partitions, the one on show

export function choosePartition(number) { chosen = number; }

/** The field by which a request names the partition on show; none where the topic has one. */
export const ofPartition = () => (chosen === null ? {} : { partition: chosen });

/** One read.  @returns {items, next, head, earliest, isEnd, epoch} */
export async function read(topic, body) {
  const answer = fields(parse(await sendText("POST", `/v0/topics/${encodeURIComponent(topic)}/diff`, { ...body, ...ofPartition() })));
  const items = answer.records.parts.map(([, record]) => toRecord(record));
  if (answer.tombstone !== "null") {
    const stone = fields(answer.tombstone), [from, to] = [Number(stone.gap_from), Number(stone.gap_to)];
    if (to >= from) items.push({ from, to, reason: JSON.parse(stone.reason) });
  }
  items.sort((a, b) => (a.seq ?? a.from) - (b.seq ?? b.from));
  return {
    items, next: Number(answer.next_from_seq), head: Number(answer.head_seq), earliest: Number(answer.earliest_seq),
    isEnd: answer.caught_up === "true", epoch: JSON.parse(answer.epoch),
  };
}

function toRecord(record) {
  const { $seq, $ts, $tag, $node, data, meta } = fields(record);
  return {
    seq: Number($seq), ts: Number($ts), tag: $tag === undefined ? null : JSON.parse($tag), node: $node === undefined ? null : JSON.parse($node),
    data, meta, text: textOf(record),
  };
}

/** The filter as fields of a read, and what is left to look at here: the server leaves nodes out, and
 * does not choose them. */
function split({ tag, node }) {
  const body = { include_tags: true };
  if (tag) body.match = tag;
  if (node.startsWith("!") && node.length > 1) body.node = node.slice(1);
  const isKept = node && !node.startsWith("!") ? (item) => item.seq === undefined || item.node === node : () => true;
  return { body, isKept, isFiltered: Boolean(tag || node) };
}

/** The records after a position, or from a time on.  @returns {items, first, last, head, earliest, isEnd, isCut} */
export async function newer(topic, from, filter, limit = PAGE) {
  const { body, isKept, isFiltered } = split(filter), items = [];
  let at = from, page, first;
  for (let n = 0; n < REQUESTS_MAX; n++) {
    page = await read(topic, { ...body, ...at, limit: isFiltered && filter.node ? 500 : limit });
    first ??= at.from_seq ?? (page.items.find((item) => item.seq)?.seq ?? page.next + 1) - 1;
    items.push(...page.items.filter(isKept));
    at = { from_seq: page.next };
    if (page.isEnd || items.filter((item) => item.seq).length >= limit) break;
  }
  const cut = items.findIndex((item, i) => items.slice(0, i).filter((each) => each.seq).length >= limit);
  const kept = cut < 0 ? items : items.slice(0, cut);
  const last = cut < 0 ? at.from_seq : kept.at(-1).seq ?? kept.at(-1).to;
  return {
    items: isFiltered ? kept : withGaps(kept, first + 1, last), first, last, head: page.head, earliest: page.earliest,
    isEnd: last >= page.head, isCut: cut < 0 && !page.isEnd,
  };
}

/** The records before a seq: windows that grow, from there down. */
export async function older(topic, before, filter, limit = PAGE) {
  const { body, isKept, isFiltered } = split(filter);
  let items = [], high = before - 1, window = limit, left = REQUESTS_MAX, page, earliest = 1;
  while (high > 0 && left > 0 && items.filter((item) => item.seq).length < limit) {
    const low = Math.max(high - window, 0), found = [];
    let at = low;
    do {
      page = await read(topic, { ...body, from_seq: at, limit: 1000 });
      found.push(...page.items.filter((item) => (item.seq ?? item.from) <= high && isKept(item)));
      at = page.next;
      left--;
    } while (at < high && !page.isEnd && left > 0);
    earliest = page.earliest;
    // A window that was not read to its end is left for the next page, which begins with a small one.
    if (at < high && !page.isEnd) break;
    items = [...found, ...items];
    high = low < earliest ? 0 : low;
    window = Math.min(window * (items.length ? 2 : 8), WINDOW_MAX);
  }
  const records = items.filter((item) => item.seq), isCut = records.length < limit && high > 0;
  const first = records.length > limit ? records.at(-limit).seq - 1 : high;
  const kept = items.filter((item) => (item.seq ?? item.to) > first);
  const last = Math.min(before - 1, page?.head ?? 0);
  return {
    items: isFiltered ? kept : withGaps(kept, first + 1, last), first, last,
    head: page?.head ?? 0, earliest, isStart: first < earliest, isCut,
  };
}

/** Seqs between the items, of which nothing is told. */
function withGaps(items, first, last) {
  const found = [];
  let next = first;
  for (const item of items) {
    const from = item.seq ?? item.from;
    if (from > next) found.push({ from: next, to: from - 1 });
    found.push(item);
    next = Math.max(next, (item.seq ?? item.to) + 1);
  }
  if (last >= next) found.push({ from: next, to: last });
  return found;
}

// ---- what may be said of a record that is not there (§3.3, §5)
//
// Loss is told by tombstones, with a reason.  A delete is silent: of a seq that no record has and no
// tombstone names, one can say that it was deleted, or, in a queue, that its job was done.

export const REASONS = {
  cap: "the topic reached its cap", ttl: "expired", mixed: "by cap and expiry", crash: "in a crash",
  source_trim: "gone before they were routed", from_seq_too_old: "no longer kept",
};

const range = (from, to) => (from === to ? `record ${digits(to)}` : `records ${digits(from)} to ${digits(to)}`);

export const lossText = (from, to, reason) => `Lost ${range(from, to)}: ${REASONS[reason] ?? ""} (${reason}).`;

/** What a topic lost in the last day, by reason; of a crash and of a router, sequence numbers are known. */
export function dayText(lost) {
  const parts = lost.map((each) => {
    const reason = JSON.parse(each.reason), unit = reason === "crash" || reason === "source_trim" ? "number" : "record";
    return `${count(Number(each.records), unit)} by ${reason}, last at ${toSecond(Number(each.last_ts))}`;
  });
  return parts.join("; ") || "nothing";
}

export function deletedText(from, to, isQueue) {
  const what = range(from, to);
  return `${what[0].toUpperCase()}${what.slice(1)} ${from === to ? "was" : "were"} deleted${isQueue ? ", or the job is done" : ""}.`;
}
