"""A node among its cluster's nodes: whom a request goes to, and the names that lead to a node.

Owns the tag that begins the `wid` of each watch session made here.  A session is in the memory of one
node; any other finds the node by the tag and forwards the stream.
"""

import hashlib
from typing import Final

from topics.protocol.faces.http.cluster import (
    Cluster,
    ClusterLoss,
    ClusterNode,
    ClusterPosition,
    ClusterSnapshot,
    ClusterTrim,
    ClusterTrimmed,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.node.standing import Standing
from topics.server.cluster.node.status import ClusterStatus, SnapshotStatus
from topics.server.cluster.node.trimmer import Trimmed
from topics.server.cluster.peers import not_leader

TAG_CHARS: Final = 8
READY_LAG_MS: Final = 10_000
"""A replica that lags more is not ready: a balancer sends its clients elsewhere."""
_WID: Final = "wid_"


def tag_of(node: str) -> str:
    """By which a `wid` names its node: the same on every node, and no longer than it must be."""
    return hashlib.blake2s(node.encode(), digest_size=TAG_CHARS // 2).hexdigest()


class Neighbours:
    """The cluster, as the exchange of one node uses it.

    Args:
        node: This node's id.
    """

    def __init__(self, standing: Standing, node: str) -> None:
        self.standing = standing
        self.tag = tag_of(node)

    def require_leader_url(self) -> str:
        """Raises Rejection: 503 `not_leader`, where there is none now."""
        url = self.standing.leader_url
        if url is None:
            raise not_leader("no node leads now", None)
        return url

    def url_of_session(self, wid: str) -> str | None:
        """Where the node of a session is reached; None where it is this node, or none that is
        known."""
        tag = wid.removeprefix(_WID)[:TAG_CHARS]
        if not wid.startswith(_WID) or tag == self.tag:
            return None
        nodes = self.standing.status().nodes
        return next((node.url for node in nodes if tag_of(node.node) == tag), None)

    def own(self, wid: str) -> str:
        """A session's name with this node's tag, as another node has made it."""
        return f"{_WID}{self.tag}{wid.removeprefix(_WID)[TAG_CHARS:]}"

    def require_ready(self) -> None:
        """Raises Rejection: 503 `replica_behind`, where reads here show what is long past; 503
        `not_ready`, where this node has not joined the cluster yet."""
        status = self.standing.status()
        if status.history_lost:
            what = "the cluster's log has lost what this node's data rests on"
            detail: dict[str, object] = {"reason": "history_lost"}
            if status.snapshot.taking:
                detail = {**_snapshot_progress(status.snapshot), **detail}
            raise Rejection(ErrorCode.REPLICA_BEHIND, what, detail)
        if status.snapshot.taking:
            what = f"this node waits for {status.waits_for}"
            raise Rejection(ErrorCode.NOT_READY, what, _snapshot_progress(status.snapshot))
        if status.waits_for is not None:
            what = f"this node waits for {status.waits_for}"
            raise Rejection(ErrorCode.NOT_READY, what, {"reason": "cluster"})
        if status.lag_ms > READY_LAG_MS:
            lag = {"lag_units": status.lag_units, "lag_ms": status.lag_ms}
            raise Rejection(ErrorCode.REPLICA_BEHIND, "this replica lags", lag)

    def answer(self) -> Cluster:
        """What `GET /v0/cluster` says."""
        return answer_of(self.standing.status(), self.standing.leader_url)


def _snapshot_progress(snapshot: SnapshotStatus) -> dict[str, object]:
    return {
        "reason": "snapshot",
        "source": snapshot.source,
        "copied_bytes": snapshot.copied_bytes,
        "total_bytes": snapshot.total_bytes,
    }


def answer_of(status: ClusterStatus, leader_url: str | None) -> Cluster:
    loss, trim = status.loss, status.trim
    return Cluster(
        enabled=True,
        cluster=status.cluster,
        shard=status.shard,
        node=status.node,
        leader=status.leader,
        leader_url=leader_url,
        term=status.term,
        index=status.index,
        lag_units=status.lag_units,
        lag_ms=status.lag_ms,
        log_start=status.log_start,
        log_end=status.log_end,
        in_flight=status.in_flight,
        nodes=tuple(
            ClusterNode(
                node=node.node,
                url=node.url,
                role=node.role,
                index=node.index,
                lag_units=node.lag_units,
                lag_ms=node.lag_ms,
                seen_ms_ago=node.seen_ms_ago,
                durable=_offset(node.durable),
            )
            for node in status.nodes
        ),
        loss=None
        if loss is None
        else ClusterLoss(
            at_ms=loss.at_ms, index=loss.index, what=loss.what, set_aside=loss.set_aside
        ),
        snapshot=ClusterSnapshot(
            taking=status.snapshot.taking,
            source=status.snapshot.source,
            copied_bytes=status.snapshot.copied_bytes,
            total_bytes=status.snapshot.total_bytes,
            trouble=status.snapshot.trouble,
            taken=status.snapshot.taken,
            taken_ms=status.snapshot.taken_ms,
            served=status.snapshot.served,
            set_aside=status.snapshot.set_aside,
        ),
        trim=None
        if trim is None
        else ClusterTrim(
            before=trim.before,
            waits_for=trim.waits_for.value,
            node=trim.node,
            looked_ms=trim.looked_ms,
            last_ms=trim.last_ms or None,
        ),
    )


def trimmed_of(found: Trimmed, *, is_dry: bool) -> ClusterTrimmed:
    """What `POST /v0/cluster/trim` says."""
    records = max(0, found.before - found.log_start)
    return ClusterTrimmed(
        trimmed=records > 0 and not is_dry,
        before=found.before,
        records=records,
        log_start=found.log_start,
        log_end=found.log_end,
        waits_for=found.bound.waits_for.value,
        node=found.bound.node,
        positions=tuple(
            ClusterPosition(node=each.node, offset=_offset(each.offset), is_copy=each.is_copy)
            for each in found.positions
        ),
    )


def _offset(known: int) -> int | None:
    return None if known < 0 else known
