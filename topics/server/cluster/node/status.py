"""What a node says of its cluster: values, which `GET /v0/cluster`, metrics and the console show.

The host makes them of what it has read and of the other nodes' heartbeats.  Nothing is decided by
them: figures of other nodes are as old as the heartbeat that carried them (`seen_ms_ago`).
"""

from typing import Literal

import msgspec

from topics.protocol.cluster.rule.trimming import Wait


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One node.

    Attributes:
        node: Its id, which it keeps with its data directory.
        url: Where the other nodes reach it.
        role: What it did when it was last heard of; `away`: it was not heard of for longer than
            `TOPICS_CLUSTER_SESSION_MS`; `lost`: the log has lost what its data rests on, and it
            shows nothing until it has another node's snapshot.
        index: Of the last unit that it had applied.
        lag_units: Units that the log had accepted and it had not applied.
        lag_ms: Age of the oldest of those units; 0 where it has all.
        seen_ms_ago: Age of the heartbeat that says so, ms; 0 of the node that answers.
        durable: Offset of the last unit that it has on its disk, synced; -1: none.
        kafka: Where Kafka's clients reach it, as `host:port`; "": it serves none, or is of a version that says nothing.
    """

    node: str
    url: str
    role: Literal["leader", "follower", "away", "lost"]
    index: int
    lag_units: int
    lag_ms: int
    seen_ms_ago: int = 0
    durable: int = -1
    kafka: str = ""


class TrimStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the trimming of the log is, as a leader found it when it looked last.

    Attributes:
        looked_ms: When that was, milliseconds since the epoch.
        before: The records before this offset may go, and are gone by now or soon; 0: none.
        waits_for: Why no more may.
        node: The node that needs the rest, where it is one.
        last_ms: When the log was trimmed last; 0: not that any node knows of.
    """

    looked_ms: int
    before: int
    waits_for: Wait
    node: str | None = None
    last_ms: int = 0


class HistoryLoss(msgspec.Struct, frozen=True, kw_only=True):
    """The log lost records that a node had applied.

    Attributes:
        at_ms: When the node noticed, milliseconds since the epoch.
        index: Of the last unit that the node had applied.
        what: For an operator: what was looked for in the log and not found.
        set_aside: Where the data are that the log does not have, once another node's have taken their
            place; None: this node shows nothing new yet.
    """

    at_ms: int
    index: int
    what: str
    set_aside: str | None = None


class SnapshotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshots of other nodes that this one takes, and those that others take of it; since its start.

    Attributes:
        taking: Whether one is being taken, or waited for.
        source: Of which node; None: of none yet.
        copied_bytes: Of it.
        total_bytes: Of that node's store, when it was asked; 0: not known.
        trouble: Why the attempt before this one failed.
        taken: How many took the place of this node's store.
        taken_ms: How long the last of these took.
        served: How many other nodes, or backups, took of this one to the end.
        set_aside: Where this node's store was put last; None: nowhere.
    """

    taking: bool = False
    source: str | None = None
    copied_bytes: int = 0
    total_bytes: int = 0
    trouble: str | None = None
    taken: int = 0
    taken_ms: int = 0
    served: int = 0
    set_aside: str | None = None

    @property
    def what(self) -> str:
        """What this node waits for: a part of a sentence."""
        if self.source is None:
            why = "" if self.trouble is None else f" ({self.trouble})"
            return f"a snapshot of another node{why}"
        mega = f"{self.copied_bytes / 1e6:,.0f} of {self.total_bytes / 1e6:,.0f} MB"
        return f"a snapshot of node {self.source}: {mega}"


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as one of its nodes knows it.

    Attributes:
        cluster: `TOPICS_CLUSTER_NAME`.
        shard: Number of the shard.
        node: The id of the node that answers; it is among `nodes`.
        leader: The id of the leader; None where none is known.
        term: Of the last `TermBegan` that was accepted here; 0 before the first.
        index: Of the last unit that was applied here.
        lag_units: Units that the log has, as far as is known here, and that are not applied here.
        lag_ms: Age of the oldest of those; 0 where there is none.
        log_start: First offset that the log still has; None where it was not asked for yet.
        log_end: Offset behind the log's last record; None as above.
        in_flight: Units that this node has sent and that are not accepted yet; 0 of a follower.
        nodes: Every node that was heard of within `TOPICS_CLUSTER_RETAIN_MS`, ordered by id.
        loss: What this node found lost; None where nothing is.
        losses: How often it found that, since its start.
        snapshot: Those that it takes and gives.
        waits_for: Why this node does not serve yet, or should get no clients: a part of a sentence.
        trim: How far the trimming of the log is; None before a leader has looked.
    """

    cluster: str
    shard: int
    node: str
    leader: str | None
    term: int
    index: int
    lag_units: int = 0
    lag_ms: int = 0
    log_start: int | None = None
    log_end: int | None = None
    in_flight: int = 0
    nodes: tuple[NodeStatus, ...] = ()
    loss: HistoryLoss | None = None
    losses: int = 0
    snapshot: SnapshotStatus = SnapshotStatus()
    waits_for: str | None = None
    trim: TrimStatus | None = None

    @property
    def history_lost(self) -> bool:
        """Whether what this node shows rests on what the log has lost."""
        return self.loss is not None and self.loss.set_aside is None
