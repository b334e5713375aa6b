// What may be said of a record that is not there (§3.3, §5).
//
// Loss is told by tombstones, with a reason.  A delete is silent: of a seq that no record has and no
// tombstone names, one can say that it was deleted, or, in a queue, that its job was done.

import { digits } from "./dom.js";

export const REASONS = {
  cap: "the topic reached its cap", ttl: "expired", mixed: "by cap and expiry", crash: "in a crash",
  source_trim: "gone before they were routed", from_seq_too_old: "no longer kept",
};

const range = (from, to) => (from === to ? `record ${digits(to)}` : `records ${digits(from)} to ${digits(to)}`);

export const lossText = (from, to, reason) => `Lost ${range(from, to)}: ${REASONS[reason] ?? ""} (${reason}).`;

export function deletedText(from, to, isQueue) {
  const what = range(from, to);
  return `${what[0].toUpperCase()}${what.slice(1)} ${from === to ? "was" : "were"} deleted${isQueue ? ", or the job is done" : ""}.`;
}
