"""What metrics tell of a node in a cluster (§8.3).

Owns the names, and the one place where they are spelled.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from topics.server.cluster.neighbours import Neighbours
from topics.server.cluster.peers import Peers
from topics.server.observing.metrics import Family, Kind, Sample

ROLES: Final = ("leader", "follower", "away", "lost")

HELP: Final[tuple[tuple[str, Kind, str], ...]] = (
    ("leads", "gauge", "1 while this node leads."),
    ("has_leader", "gauge", "1 while a leader is known here."),
    ("term", "gauge", "Term of the leader; rises with each."),
    ("applied_index", "gauge", "Last unit of the log that was applied here."),
    ("lag_units", "gauge", "Units of the log that were not applied here."),
    ("lag_seconds", "gauge", "Age of the oldest unit that was not applied here."),
    ("in_flight_units", "gauge", "Units sent from here and not accepted yet."),
    ("history_lost", "gauge", "1 where the log has lost what this node's data rests on."),
    ("history_losses_total", "counter", "How often this node found that the log had lost that."),
    ("taking_snapshot", "gauge", "1 while this node takes another node's snapshot."),
    ("snapshots_taken_total", "counter", "Snapshots that took the place of this node's data."),
    ("snapshots_served_total", "counter", "Snapshots and backups taken of this node to their end."),
    ("snapshot_seconds", "gauge", "How long the last snapshot took that this node took."),
    ("nodes", "gauge", "Nodes, by their role."),
    ("log_start", "gauge", "First offset that the log still has."),
    ("log_end", "gauge", "Offset behind the log's last record."),
    ("durable_offset", "gauge", "Offset of the last unit on each node's disk, by node; -1: none."),
    ("trimmed_timestamp_seconds", "gauge", "When the log was trimmed last; 0: never."),
    ("trim_waits", "gauge", "1 for what a trim waits for, by reason and node."),
    ("forwarded_total", "counter", "Commands and streams that another node was asked for."),
    ("forward_failed_total", "counter", "Of them, those that got no answer."),
    ("forward_unknown_total", "counter", "Of those, the ones that may have taken effect."),
    ("links", "gauge", "Links to other nodes that are open."),
)


def families(neighbours: Neighbours, peers: Peers) -> Iterator[Family]:
    """All of them, as of now."""
    standing, counts = neighbours.standing, peers.counts
    status = standing.status()
    trim = status.trim
    roles = Counter(node.role for node in status.nodes)
    samples = {
        "leads": [Sample(float(standing.leads), {})],
        "has_leader": [Sample(float(standing.leader_url is not None), {})],
        "term": [Sample(float(standing.term), {})],
        "applied_index": [Sample(float(standing.index), {})],
        "lag_units": [Sample(float(status.lag_units), {})],
        "lag_seconds": [Sample(status.lag_ms / 1000, {})],
        "in_flight_units": [Sample(float(status.in_flight), {})],
        "history_lost": [Sample(float(status.history_lost), {})],
        "history_losses_total": [Sample(float(status.losses), {})],
        "taking_snapshot": [Sample(float(status.snapshot.taking), {})],
        "snapshots_taken_total": [Sample(float(status.snapshot.taken), {})],
        "snapshots_served_total": [Sample(float(status.snapshot.served), {})],
        "snapshot_seconds": [Sample(status.snapshot.taken_ms / 1000, {})],
        "nodes": [Sample(float(roles[role]), {"role": role}) for role in ROLES],
        "log_start": [Sample(float(status.log_start or 0), {})],
        "log_end": [Sample(float(status.log_end or 0), {})],
        "durable_offset": [
            Sample(float(node.durable), {"node": node.node}) for node in status.nodes
        ],
        "trimmed_timestamp_seconds": [Sample(0 if trim is None else trim.last_ms / 1000, {})],
        "trim_waits": []
        if trim is None
        else [Sample(1.0, {"reason": trim.waits_for.value, "node": trim.node or ""})],
        "forwarded_total": [Sample(float(counts.forwarded), {})],
        "forward_failed_total": [Sample(float(counts.failed), {})],
        "forward_unknown_total": [Sample(float(counts.unknown), {})],
        "links": [Sample(float(peers.open_count), {})],
    }
    for name, kind, text in HELP:
        yield Family(f"topics_cluster_{name}", kind, text, samples[name])
