"""Groups of consumers over HTTP: routes, bodies, answers (§13)."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topics.protocol.faces.http.checks import TS_MAX
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.faces.http.fields import Natural, NextCursor, TopicName
from topics.protocol.faces.http.query import (
    list_cursor,
    next_cursor,
    page_of_list,
    parse_cursor,
    query_natural,
)
from topics.protocol.faces.http.rendering import Rendering, open_object
from topics.protocol.faces.http.route import BodyRule, Request, Route, route
from topics.protocol.model import outcomes
from topics.protocol.model.commands import CommitOffsets, DeleteGroup, DescribeGroup, ListGroups
from topics.protocol.model.config import PARTITIONS_MAX
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.groups import (
    GroupMember,
    OffsetCommit,
    is_group_name,
    require_group_name,
)
from topics.protocol.model.limits import PAGE_SIZE_MAX
from topics.protocol.model.names import partition_name, partition_of, require_topic_name
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer

COMMIT_OFFSETS_MAX: Final = 1000
"""Offsets of one commit."""


class OffsetBody(msgspec.Struct):
    """How far a group is in a topic, or in one of its partitions."""

    topic: str
    seq: Natural
    partition: Natural | None = None


class CommitBody(msgspec.Struct):
    offsets: list[OffsetBody]


_COMMIT: Final = msgspec.json.Decoder(CommitBody)


def parse_commit(group: str, body: Buffer) -> CommitOffsets:
    asked = decode(_COMMIT, body).offsets
    if not 1 <= len(asked) <= COMMIT_OFFSETS_MAX:
        raise invalid(f"a commit has 1 to {COMMIT_OFFSETS_MAX} offsets", "$.offsets")
    offsets = [_offset(each, f"$.offsets[{i}]") for i, each in enumerate(asked)]
    return CommitOffsets(group, offsets, is_whole=True)


def _offset(asked: OffsetBody, path: str) -> OffsetCommit:
    require_topic_name(asked.topic, path=f"{path}.topic")
    partition = asked.partition or 0
    if partition >= PARTITIONS_MAX:
        raise invalid(f"a topic has at most {PARTITIONS_MAX} partitions", f"{path}.partition")
    if asked.seq > TS_MAX:
        raise invalid("the number exceeds 2^63 - 1", f"{path}.seq")
    return OffsetCommit(partition_name(asked.topic, partition), asked.seq)


GroupName = Annotated[str, Meta(description="The group's name.")]
Kind = Annotated[
    Literal["classic"],
    Meta(description="How its members share partitions: `classic`, they do so themselves."),
]
State = Annotated[
    Literal["empty", "preparing_rebalance", "completing_rebalance", "stable"],
    Meta(description="What it does; `empty`: it has no members."),
]
Generation = Annotated[int, Meta(ge=0, description="Which set of members it has; it only rises.")]
ProtocolType = Annotated[
    str, Meta(description="What its members are: `consumer`; empty: none was there yet.")
]


class GroupSummary(msgspec.Struct, kw_only=True):
    group: GroupName
    kind: Kind
    state: State
    generation: Generation
    protocol_type: ProtocolType
    members: Annotated[Natural, Meta(description="How many.")]


class GroupList(msgspec.Struct, kw_only=True):
    groups: Annotated[list[GroupSummary], Meta(description="By name.")]
    next_cursor: NextCursor = UNSET


class Assigned(msgspec.Struct, kw_only=True):
    """Partitions of one topic that a member reads."""

    topic: TopicName
    partitions: Annotated[list[int], Meta(description="Their numbers.")]


class MemberState(msgspec.Struct, kw_only=True):
    """A member of a group."""

    member_id: Annotated[str, Meta(description="The server gave it at the join.")]
    client_id: Annotated[str, Meta(description="What the client calls itself.")]
    client_host: Annotated[str, Meta(description="The address it came from.")]
    instance_id: Annotated[
        str | UnsetType, Meta(description="The `group.instance.id` of a static member.")
    ] = UNSET
    assignment: Annotated[
        list[Assigned] | UnsetType,
        Meta(description="What it reads; absent where that is not said in Kafka's own form."),
    ] = UNSET


class GroupOffset(msgspec.Struct, kw_only=True):
    """How far a group is in a partition."""

    topic: TopicName
    partition: Annotated[Natural, Meta(description="0 where the topic has one.")]
    seq: Annotated[
        Natural, Meta(description="Records up to here are done with: the next `from_seq`.")
    ]
    ts: Annotated[Natural, Meta(description="When it was committed.")]
    lag: Annotated[
        Natural, Meta(description="Records behind it that are there, up to the head, at most.")
    ]
    lost: Annotated[
        Natural,
        Meta(description="Sequence numbers behind it that were lost before the group came there."),
    ]


class GroupState(msgspec.Struct, kw_only=True):
    group: GroupName
    kind: Kind
    state: State
    generation: Generation
    protocol_type: ProtocolType
    protocol: Annotated[str, Meta(description="How its members assign; empty: none is chosen.")]
    members: Annotated[list[MemberState], Meta(description="All of them.")]
    offsets: Annotated[
        list[GroupOffset], Meta(description="In the order in which the topics were made.")
    ]
    next_cursor: NextCursor = UNSET


class OffsetsCommitted(msgspec.Struct, kw_only=True):
    group: GroupName
    committed: Annotated[int, Meta(ge=1, description="How many offsets.")]


class GroupDeleted(msgspec.Struct, kw_only=True):
    group: GroupName
    deleted: Annotated[Literal[True], Meta(description="It was there; else 404.")]


def _head(summary: outcomes.GroupSummary) -> GroupSummary:
    return GroupSummary(
        group=summary.name,
        kind=summary.kind,  # type: ignore[arg-type]
        state=summary.phase.value,  # type: ignore[arg-type]
        generation=summary.generation,
        protocol_type=summary.protocol_type,
        members=summary.members,
    )


def _groups_listed(outcome: outcomes.GroupsListed) -> bytes:
    groups = [_head(each) for each in outcome.groups]
    return open_object(GroupList(groups=groups, next_cursor=next_cursor(outcome.after)))


def _group_shown(outcome: outcomes.GroupShown) -> bytes:
    after_id, assigned = outcome.after_id, outcome.assigned or [None] * len(outcome.members)
    fields = msgspec.structs.asdict(_head(outcome.summary))
    fields["members"] = [*map(_member, outcome.members, assigned)]
    return open_object(
        GroupState(
            **fields,
            protocol=outcome.protocol,
            offsets=[*map(_kept, outcome.offsets)],
            next_cursor=UNSET if after_id is None else list_cursor(str(after_id)),
        )
    )


def _member(member: GroupMember, assigned: Mapping[str, object] | None) -> MemberState:
    return MemberState(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=UNSET if member.instance_id is None else member.instance_id,
        assignment=UNSET
        if assigned is None
        else [
            Assigned(topic=topic, partitions=partitions)  # type: ignore[arg-type]
            for topic, partitions in assigned.items()
        ],
    )


def _kept(offset: outcomes.KeptOffset) -> GroupOffset:
    topic, partition = partition_of(offset.topic)
    return GroupOffset(
        topic=topic,
        partition=partition,
        seq=offset.seq,
        ts=offset.ts_ms,
        lag=offset.lag,
        lost=offset.lost,
    )


def _offsets_kept(outcome: outcomes.OffsetsKept) -> bytes:
    return open_object(OffsetsCommitted(group=outcome.group, committed=len(outcome.faults)))


def _group_dropped(outcome: outcomes.GroupDropped) -> bytes:
    return open_object(GroupDeleted(group=outcome.group, deleted=True))


def _list_groups(request: Request) -> ListGroups:
    return ListGroups(*page_of_list(request.query))


def _get_group(request: Request) -> DescribeGroup:
    query, name = request.query, request.name
    if not is_group_name(name):
        raise Rejection(
            ErrorCode.GROUP_NOT_FOUND, "no group has such a name", {"group": name[:256]}
        )
    size = query_natural(query, "page_size", PAGE_SIZE_MAX) or PAGE_SIZE_MAX
    after = parse_cursor(query["cursor"]) if "cursor" in query else "0"
    if not (after.isascii() and after.isdigit() and len(after) <= 20):
        raise invalid("the cursor is not one of ours", "?cursor")
    return DescribeGroup(name, int(after), min(size, PAGE_SIZE_MAX), shows_assigned=True)


def _commit_offsets(request: Request) -> CommitOffsets:
    return parse_commit(require_group_name(request.name), request.body)


def _delete_group(request: Request) -> DeleteGroup:
    return DeleteGroup(require_group_name(request.name))


ROUTES: Final[tuple[Route, ...]] = (
    route("GET /v0/groups", "read", _list_groups, makes=ListGroups),
    route("GET /v0/groups/:", "read", _get_group, makes=DescribeGroup),
    route("POST /v0/groups/:/commit", "read", _commit_offsets, BodyRule.JSON, makes=CommitOffsets),
    route("DELETE /v0/groups/:", "delete", _delete_group, makes=DeleteGroup),
)
RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.GroupsListed: Rendering(GroupList, _groups_listed),
    outcomes.GroupShown: Rendering(GroupState, _group_shown),
    outcomes.OffsetsKept: Rendering(OffsetsCommitted, _offsets_kept),
    outcomes.GroupDropped: Rendering(GroupDeleted, _group_dropped),
}
