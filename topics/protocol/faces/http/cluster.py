"""The cluster that a server is in, and the trim of its log."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topics.protocol.faces.http.checks import u64
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.faces.http.fields import Natural
from topics.protocol.faces.http.route import ANY_BODY, Probe, Route, route
from topics.protocol.model.records import Buffer


class TrimBody(msgspec.Struct, forbid_unknown_fields=True):
    before: Natural | None = None
    now: bool | None = None
    alone: bool | None = None
    dry_run: bool | None = None


_TRIM: Final = msgspec.json.Decoder(TrimBody)


def parse_trim(body: Buffer) -> TrimBody:
    """How far to trim; an empty body says nothing.

    Raises:
        Rejection: 400.
    """
    asked = decode(_TRIM, body or b"{}")
    if asked.before is not None:
        u64(asked.before, "$.before")
        if asked.now:
            raise invalid("before and now exclude each other", "$.now")
    return asked


class ClusterNode(msgspec.Struct, kw_only=True):
    """One node, as the node that answers knows it (§8.7)."""

    node: Annotated[str, Meta(description="Its id, which it keeps with its data directory.")]
    url: Annotated[str, Meta(description="Where the other nodes reach it.")]
    role: Annotated[
        Literal["leader", "follower", "away", "lost"],
        Meta(
            description="`away`: not heard of for longer than a session; `lost`: the log has lost "
            "what its data rests on."
        ),
    ]
    index: Annotated[Natural, Meta(description="The last unit that it had applied.")]
    lag_units: Annotated[Natural, Meta(description="Units that it had not applied.")]
    lag_ms: Annotated[Natural, Meta(description="Age of the oldest of them; 0: none.")]
    seen_ms_ago: Annotated[Natural, Meta(description="Age of these figures.")]
    durable: Annotated[
        Natural | None,
        Meta(description="Offset of the last unit that it has on its disk; null: none."),
    ]


class ClusterLoss(msgspec.Struct, kw_only=True):
    """What the cluster's log lost (§8.7)."""

    at_ms: Annotated[Natural, Meta(description="When it was noticed.")]
    index: Annotated[Natural, Meta(description="The last unit that the node had applied.")]
    what: Annotated[str, Meta(description="What was not found in the log.")]
    set_aside: Annotated[
        str | None,
        Meta(description="Where the data are since a snapshot took their place; null: not yet."),
    ]


class ClusterSnapshot(msgspec.Struct, kw_only=True):
    """Snapshots of other nodes that this one took, and those that others took of it (§8.7)."""

    taking: Annotated[bool, Meta(description="Whether one is being taken, or waited for.")]
    source: Annotated[
        str | None, Meta(description="The node that gives it, or gave the last; null: none.")
    ]
    copied_bytes: Annotated[Natural, Meta(description="Of its store.")]
    total_bytes: Annotated[Natural, Meta(description="Of its store when it was asked; 0: unknown.")]
    trouble: Annotated[str | None, Meta(description="Why the last attempt failed.")]
    taken: Annotated[Natural, Meta(description="How many this node took since its start.")]
    taken_ms: Annotated[Natural, Meta(description="How long the last of these took.")]
    served: Annotated[Natural, Meta(description="How many others took of it since its start.")]
    set_aside: Annotated[
        str | None, Meta(description="Where what it had before the last was set aside.")
    ]


TrimWait = Annotated[
    Literal["retention", "node", "copies"],
    Meta(
        description="Why no more may go: it is too young; a node needs it; fewer than two nodes "
        "have it."
    ),
]


class ClusterTrim(msgspec.Struct, kw_only=True):
    """How far the trimming of the log is, as a leader found it when it looked last (§8.7)."""

    before: Annotated[Natural, Meta(description="Records before this offset are gone, or soon.")]
    waits_for: TrimWait
    node: Annotated[str | None, Meta(description="The node that needs the rest, where it is one.")]
    looked_ms: Annotated[Natural, Meta(description="When it looked.")]
    last_ms: Annotated[
        Natural | None, Meta(description="When the log was trimmed last; null: not yet.")
    ]


class ClusterPosition(msgspec.Struct, kw_only=True):
    """What one node needs of the log (§8.8)."""

    node: Annotated[str, Meta(description="Its id.")]
    offset: Annotated[
        Natural | None, Meta(description="It needs the log from here on; null: all of it.")
    ]
    is_copy: Annotated[bool, Meta(description="Whether it has what was before on its disk.")]


class ClusterTrimmed(msgspec.Struct, kw_only=True):
    """What was trimmed by hand, or would be (§8.8)."""

    trimmed: Annotated[bool, Meta(description="Whether records went.")]
    before: Annotated[Natural, Meta(description="The records before this offset.")]
    records: Annotated[Natural, Meta(description="Offsets from the log's start to there.")]
    log_start: Annotated[Natural, Meta(description="First offset of the log, before it.")]
    log_end: Annotated[Natural, Meta(description="Offset behind the log's last record.")]
    waits_for: TrimWait
    node: Annotated[str | None, Meta(description="The node that needs the rest, where it is one.")]
    positions: Annotated[tuple[ClusterPosition, ...], Meta(description="What each node needs.")]


class Cluster(msgspec.Struct, kw_only=True):
    """The cluster that the server is in (§8.7)."""

    enabled: Annotated[
        bool, Meta(description="Whether it is in one; if not, there is no other field.")
    ]
    cluster: Annotated[str | UnsetType, Meta(description="Its name.")] = UNSET
    shard: Annotated[Natural | UnsetType, Meta(description="The shard's number.")] = UNSET
    node: Annotated[str | UnsetType, Meta(description="The node that answers.")] = UNSET
    leader: Annotated[
        str | UnsetType | None, Meta(description="The node that leads; null: none is known.")
    ] = UNSET
    leader_url: Annotated[
        str | UnsetType | None, Meta(description="Where the other nodes reach it.")
    ] = UNSET
    term: Annotated[Natural | UnsetType, Meta(description="Rises with each leader.")] = UNSET
    index: Annotated[
        Natural | UnsetType, Meta(description="The last unit that was applied here.")
    ] = UNSET
    lag_units: Annotated[
        Natural | UnsetType, Meta(description="Units that were not applied here.")
    ] = UNSET
    lag_ms: Annotated[
        Natural | UnsetType, Meta(description="Age of the oldest of them; 0: none.")
    ] = UNSET
    log_start: Annotated[
        Natural | UnsetType | None, Meta(description="First offset of the cluster's log.")
    ] = UNSET
    log_end: Annotated[
        Natural | UnsetType | None, Meta(description="Offset behind its last record.")
    ] = UNSET
    in_flight: Annotated[
        Natural | UnsetType, Meta(description="Units sent from here and not accepted yet.")
    ] = UNSET
    nodes: Annotated[
        tuple[ClusterNode, ...] | UnsetType, Meta(description="All that are known, by id.")
    ] = UNSET
    loss: Annotated[
        ClusterLoss | UnsetType | None, Meta(description="Null where nothing was lost.")
    ] = UNSET
    snapshot: Annotated[
        ClusterSnapshot | UnsetType, Meta(description="Snapshots taken and given.")
    ] = UNSET
    trim: Annotated[
        ClusterTrim | UnsetType | None, Meta(description="Null before a leader has looked.")
    ] = UNSET


ROUTES: Final[tuple[Route, ...]] = (
    route("GET /v0/cluster", "read", Probe.CLUSTER),
    route("POST /v0/cluster/trim", "admin", Probe.TRIM, ANY_BODY),
)
