// The nodes of a cluster.  Its place in the navigation is shown only where the server is in one; that is
// asked once, since it does not change while a server runs.

import { getJson, why } from "./api.js";
import { $, digits, make, set, show } from "./dom.js";

let asked = false;

/** Whether the server is in a cluster, asked at the first visit. */
export async function findCluster() {
  if (asked) return;
  asked = true;
  try {
    show($("go-cluster"), (await getJson("/v0/cluster")).enabled);
  } catch {
    asked = false; // not ready yet, or without a key: in the next round
  }
}

export const forgetCluster = () => { asked = false; };

export async function refreshCluster(isCurrent) {
  try {
    const found = await getJson("/v0/cluster");
    if (!isCurrent()) return;
    show($("cluster-trouble"), false);
    draw(found);
  } catch (error) {
    if (!isCurrent()) return;
    set($("cluster-trouble"), why(error));
    show($("cluster-trouble"), true);
  }
}

function draw(found) {
  if (!found.enabled) {
    set($("cluster-about"), "this server is in no cluster");
    set($("cluster-log"), "");
    $("node-list").replaceChildren();
    return;
  }
  set($("cluster-about"), `${found.cluster} · shard ${found.shard} · term ${digits(found.term)} · as ${found.node} knows it`);
  show($("cluster-leaderless"), found.leader === null);
  show($("cluster-loss"), found.loss !== null);
  if (found.loss) {
    const mended = found.loss.set_aside ? ` A snapshot took its place; what it had is in ${found.loss.set_aside}.` : "";
    set($("cluster-loss"), `The log has lost what this node rests on, behind unit ${digits(found.loss.index)}: ${found.loss.what}.${mended}`);
  }
  set($("cluster-log"), log(found));
  if (found.snapshot) drawSnapshot(found.snapshot); // an older node says nothing of it
  $("node-list").replaceChildren(...found.nodes.map(row));
}

/** What this node takes of another one, and how often it did and others of it. */
function drawSnapshot(snapshot) {
  const megabytes = (bytes) => digits(Math.round(bytes / 1e6));
  const parts = [];
  if (snapshot.taking) {
    parts.push(snapshot.source === null
      ? `this node waits for a snapshot of another one${snapshot.trouble === null ? "" : `: ${snapshot.trouble}`}`
      : `this node takes a snapshot of ${snapshot.source}: ${megabytes(snapshot.copied_bytes)} of ${megabytes(snapshot.total_bytes)} MB`);
  }
  if (snapshot.taken) parts.push(`took ${digits(snapshot.taken)}, the last in ${digits(snapshot.taken_ms)} ms`);
  if (snapshot.served) parts.push(`gave ${digits(snapshot.served)}`);
  if (snapshot.set_aside !== null) parts.push(`what it had before is in ${snapshot.set_aside}`);
  show($("cluster-snapshot"), parts.length > 0);
  set($("cluster-snapshot"), `Snapshots: ${parts.join("; ")}`);
}

const WAITS = {
  retention: () => "the rest is too young",
  copies: () => "fewer than two nodes have it on their disks",
  node: (trim) => `node ${trim.node} needs the rest`,
};

/** Where the log begins and ends, when it was trimmed last, and what holds the rest. */
function log(found) {
  if (found.log_start === null || found.log_end === null) return "";
  const bounds = `Log ${digits(found.log_start)} to ${digits(found.log_end)}`;
  const { trim } = found;
  if (!trim) return bounds;
  const last = trim.last_ms === null ? "never" : new Date(trim.last_ms).toISOString();
  return `${bounds} · trimmed last: ${last} · ${WAITS[trim.waits_for](trim)}`;
}

function row(node) {
  const number = (value) => make("td", "number", digits(value));
  return make(
    "tr", "",
    make("td", "", node.node), make("td", node.role === "away" || node.role === "lost" ? "bad" : "", node.role), make("td", "", node.url),
    number(node.index), make("td", "number", node.durable === null ? "–" : digits(node.durable)), number(node.lag_units), number(node.lag_ms), number(node.seen_ms_ago),
  );
}
