// What may be said of a record that is not there (§3.3, §5).
//
// Loss is told by tombstones, with a reason.  A delete is silent: of a seq that no record has and no
// tombstone names, one can say that it was deleted, or, in a queue, that its job was done.

import { count, digits, toSecond } from "./dom.js";

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
