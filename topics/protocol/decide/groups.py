"""Groups of consumers: their members, their offsets, lists of them, and their end.

Who is a member is the coordinator's to say (`topics.protocol.groups`); here, its events are written and its answers wake
those who wait.  Answers of members and offsets wait for the sync of the log.  What is shown of a group waits for a sync, as what is told to its members does: a power loss may take back no commit that
somebody saw.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.pages import page_of
from topics.protocol.groups.assignment import partitions_of
from topics.protocol.groups.coordinator import Answer, Coordinator
from topics.protocol.groups.subscription import CONSUMER, topics_of
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import GroupChanged, GroupDeleted, OffsetsCommitted
from topics.protocol.model.groups import (
    COMMIT_METADATA_BYTES_MAX,
    MEMBER_BYTES,
    NO_GENERATION,
    NO_MEMBER,
    CommittedOffset,
    GroupFault,
    GroupMember,
    GroupPhase,
    GroupRefusal,
    OffsetCommit,
    require_group_name,
)
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import public_name, quote
from topics.protocol.model.outcomes import (
    NOW,
    SYNCED,
    Gate,
    GroupDropped,
    GroupLeft,
    GroupShown,
    GroupsListed,
    GroupSummary,
    HeartbeatTaken,
    KeptOffset,
    OffsetsFound,
    OffsetsKept,
    Outcome,
    Parked,
    Wake,
)
from topics.protocol.state.groups import OFFSET_BYTES, Group

GROUPS_MAX: Final = 10_000
GROUPS_BYTES_MAX: Final = 256 << 20
"""Of all groups, with their members and offsets."""
STEP_GROUPS: Final = 64
"""Groups that one step looks at."""
RETRY_MS: Final = 100
"""Where the log has no room for what time brings, it is tried again after this."""
OFFSETS_MAX: Final = 100_000
"""Of one group."""
ASSIGNED_BYTES_MAX: Final = 1 << 20
"""Of the assignments that one answer shows; what is beyond is not read."""


class GroupCommands:
    """Groups of one engine."""

    def __init__(self, limits: Limits, unit: UnitOfWork) -> None:
        self._unit = unit
        self._state = unit.state
        self._groups = unit.state.groups
        self._coordinator = Coordinator(
            self._groups, self._emit, self._answer, limits.kafka_rebalance_delay_ms
        )
        self._retry_ms: int | None = None
        """When to look whether the log has room again; None: it had."""
        self._asking: object = None
        """The token of the request that is decided now, and its answer, where that came at once."""
        self._answered: Answer | None = None
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            CommitOffsets: self._commit,
            FetchOffsets: self._fetch,
            DeleteOffsets: self._delete_offsets,
            ListGroups: self._list,
            DescribeGroup: self._describe,
            DeleteGroup: self._delete,
            Heartbeat: self._heartbeat,
            LeaveGroup: self._leave,
        }

    # ------------------------------------------------------------------ members

    def join(self, command: JoinGroup, token: object, moment: Moment) -> Outcome | Parked:
        """Become a member; the answer comes once all have joined.  Raises Rejection."""
        name = require_group_name(command.group)
        if name not in self._coordinator.live and self._groups.find(name, moment.now_ms) is None:
            self._require_room(moment.now_ms, is_new=True)
        else:
            self._require_room(moment.now_ms, is_new=False)
        self._require_writable(name, moment, sum(len(each[1]) for each in command.protocols))
        return self._asked(token, lambda: self._coordinator.join(command, token, moment.now_ms))

    def sync(self, command: SyncGroup, token: object, moment: Moment) -> Outcome | Parked:
        """What a member was assigned; the answer comes once the leader has said it.  Raises Rejection."""
        name = require_group_name(command.group)
        self._require_writable(name, moment, sum(len(each[1]) for each in command.assignments))
        return self._asked(token, lambda: self._coordinator.sync(command, token, moment.now_ms))

    def _asked(self, token: object, ask: Callable[[], Outcome | None]) -> Outcome | Parked:
        self._asking, self._answered = token, None
        try:
            found = ask() or self._answered
        finally:
            self._asking = None
        assert not isinstance(found, Rejection)  # who asks is in the group, or was refused before
        return Parked(None) if found is None else found

    def _answer(self, token: object, answer: Answer) -> None:
        if token is self._asking:
            self._answered = answer
        else:
            self._unit.wakes.append(Wake(token, answer))

    def _emit(self, event: GroupChanged) -> None:
        size = sum(each.size_bytes for each in event.members)
        size += sum(MEMBER_BYTES + len(each[1]) for each in event.assignments)
        size += sum(map(len, event.left))
        self._unit.emit(event, log_bytes=FRAME_BYTES + size)

    def _require_writable(self, name: str, moment: Moment, size_bytes: int = 0) -> None:
        """Raises Rejection: the log has no room for what may become of a group now."""
        live = self._coordinator.live.get(name)
        if live is not None:
            size_bytes += live.size_bytes
        self._unit.require_writable(moment, 2 * FRAME_BYTES + 2 * size_bytes)

    def _heartbeat(self, command: Heartbeat, moment: Moment) -> HeartbeatTaken:
        name = require_group_name(command.group)
        self._coordinator.heartbeat(name, command.member, moment.now_ms)
        return HeartbeatTaken()

    def _leave(self, command: LeaveGroup, moment: Moment) -> GroupLeft:
        name = require_group_name(command.group)
        self._require_writable(name, moment)
        faults = self._coordinator.leave(name, command.members, moment.now_ms)
        return GroupLeft(faults, gate=SYNCED, is_logged=True)

    # ------------------------------------------------------------------ who waits

    def forget(self, token: object) -> None:
        """Who waited is gone."""
        self._coordinator.forget(token, self._state.now_ms)

    def release_all(self, why: Rejection) -> None:
        """Answer every request that waits."""
        self._coordinator.release_all(why)

    # ------------------------------------------------------------------ time

    def begin(self, now_ms: int) -> None:
        """From now on this engine decides: sessions begin, and counters."""
        self._groups.commits = self._groups.rebalances = 0
        self._coordinator.begin(now_ms)

    def alarm_ms(self) -> int | None:
        """When `step` is wanted though nothing happens until then."""
        due_ms = None if self._unit.read_only else self._coordinator.due.next_ms()
        if due_ms is None or self._retry_ms is None:
            return due_ms
        return max(due_ms, self._retry_ms)

    def is_due(self, now_ms: int) -> bool:
        alarm_ms = self.alarm_ms()
        return alarm_ms is not None and alarm_ms <= now_ms

    def step(self, moment: Moment) -> None:
        """Do some of what is due; once the log has room for it."""
        now_ms, due = moment.now_ms, self._coordinator.due
        if not self.is_due(now_ms):
            return
        self._retry_ms = None
        for _ in range(STEP_GROUPS):
            name = due.take(now_ms)
            if name is None:
                return
            group = self._groups.by_name.get(name)
            if name not in self._coordinator.live and group and group.is_expired(now_ms):
                self._state.expire_group(name)
                continue
            try:
                self._require_writable(name, moment)
            except Rejection:
                due.set(name, now_ms)
                self._retry_ms = now_ms + RETRY_MS
                return
            self._coordinator.look(name, now_ms)

    def on_dropped(self) -> None:
        """A topic was deleted: groups that have no offset any more are gone sooner."""
        lighter, self._groups.lighter = self._groups.lighter, {}
        for name in lighter:
            self._coordinator.time(self._groups.by_name[name])

    # ------------------------------------------------------------------ offsets

    def _commit(self, command: CommitOffsets, moment: Moment) -> OffsetsKept:
        """Keep offsets, each by itself: what is wrong with one keeps no other from being kept."""
        name, now_ms = require_group_name(command.group), moment.now_ms
        self._require_commit(command, now_ms)
        group = self._groups.find(name, now_ms)
        faults = list(self._faults(group, command.offsets))
        if command.is_whole:
            for each, fault in zip(command.offsets, faults, strict=True):
                if fault is not None:
                    self._unit.topic(each.topic, now_ms)
                    raise GroupRefusal(
                        fault, f"the offset of {quote(each.topic)} is refused: {fault.value}"
                    )
        kept = [
            CommittedOffset(
                self._state.topics[each.topic].topic_id,
                each.seq,
                each.leader_epoch,
                each.metadata,
                now_ms,
            )
            for each, fault in zip(command.offsets, faults, strict=True)
            if fault is None
        ]
        if kept:
            self._require_room(now_ms, is_new=group is None)
            log_bytes = FRAME_BYTES + sum(OFFSET_BYTES + len(each.metadata) for each in kept)
            self._unit.require_writable(moment, log_bytes)
            self._unit.emit(OffsetsCommitted(now_ms, name, kept), log_bytes=log_bytes)
            self._coordinator.time(self._groups.by_name[name])
        return OffsetsKept(name, faults, gate=SYNCED, is_logged=True, is_fsync=True)

    def _require_commit(self, command: CommitOffsets, now_ms: int) -> None:
        """Raises GroupRefusal where who commits may not."""
        name, live = command.group, self._coordinator.live.get(command.group)
        if live is not None and live.members:
            if command.member == NO_MEMBER:
                raise not_empty(name, len(live.members), GroupFault.UNKNOWN_MEMBER)
            self._coordinator.require_commit(name, command.member, now_ms)
        elif command.member.generation > NO_GENERATION:
            is_known = self._groups.find(name, now_ms) is not None
            fault = GroupFault.UNKNOWN_MEMBER if is_known else GroupFault.NO_GROUP
            raise GroupRefusal(fault, f"group {quote(name)} has no such member")

    def _require_room(self, now_ms: int, *, is_new: bool) -> None:
        """Raises GroupRefusal: there are too many groups, or too much of them."""
        live, by_name = self._coordinator.live, self._groups.by_name
        size_bytes = self._groups.size_bytes + self._coordinator.weight.size_bytes
        if size_bytes >= GROUPS_BYTES_MAX:
            raise too_many("max_group_bytes", GROUPS_BYTES_MAX)
        if not is_new or len(by_name) + len(live) < GROUPS_MAX:
            return
        for name in [name for name, group in by_name.items() if group.is_expired(now_ms)]:
            self._state.expire_group(name)
        if len(by_name) + sum(name not in by_name for name in live) >= GROUPS_MAX:
            raise too_many("max_groups", GROUPS_MAX)

    def _faults(
        self, group: Group | None, offsets: Iterable[OffsetCommit]
    ) -> Iterable[GroupFault | None]:
        topics = self._state.topics
        known = {} if group is None else group.offsets
        count = len(known)
        for each in offsets:
            topic = topics.get(each.topic)
            if topic is None:
                yield GroupFault.NO_TOPIC
            elif each.seq < 0:
                yield GroupFault.INVALID_FIELD
            elif len(each.metadata.encode()) > COMMIT_METADATA_BYTES_MAX:
                yield GroupFault.METADATA_TOO_LARGE
            elif topic.topic_id not in known and count >= OFFSETS_MAX:
                yield GroupFault.TOO_MANY_OFFSETS
            else:
                count += topic.topic_id not in known
                yield None

    def _fetch(self, command: FetchOffsets, moment: Moment) -> OffsetsFound:
        """Offsets of a group; none of one that is not there.  The sync is also what tells a cluster's leader that it
        still leads: an old offset would send a reader back."""
        group = self._groups.find(require_group_name(command.group), moment.now_ms)
        if group is None:
            return OffsetsFound((), lacks=True, gate=SYNCED)
        if command.topics is None:
            found, after_id = self._page(
                group, command.after_id, command.page_size, command.caller, moment.now_ms
            )
            return OffsetsFound(found, after_id, gate=SYNCED)
        topics = self._state.topics
        ids = [topics[name].topic_id for name in command.topics if name in topics]
        found = self._shown(group, ids, moment.now_ms)
        return OffsetsFound(found, lacks=len(found) < len(command.topics), gate=SYNCED)

    def _page(
        self, group: Group, after_id: int, size: int, caller: Caller, now_ms: int
    ) -> tuple[list[KeptOffset], int | None]:
        """Offsets of the next topics behind one, by their ids, of which the caller may see the names."""
        if not size:
            return [], None
        ids = sorted(group.offsets)
        first = bisect_right(ids, after_id)
        page = ids[first : first + size]
        names = self._state.by_id
        seen = [each for each in page if caller.covers(names[each].name)]
        return self._shown(group, seen, now_ms), page[-1] if first + size < len(ids) else None

    def _shown(self, group: Group, ids: Iterable[int], now_ms: int) -> list[KeptOffset]:
        found = []
        for topic_id in ids:
            offset = group.offset_of(topic_id)
            if offset is None:
                continue
            topic = self._state.by_id[topic_id]
            self._unit.expire(topic, now_ms)
            found.append(
                KeptOffset(
                    topic.engine_name,
                    offset.seq,
                    offset.leader_epoch,
                    offset.metadata,
                    offset.ts_ms,
                    topic.live_behind(offset.seq),
                    topic.lost_behind(offset.seq),
                )
            )
        return found

    def _delete_offsets(self, command: DeleteOffsets, moment: Moment) -> OffsetsKept:
        """Forget offsets, but of topics that a member reads."""
        group = self._required(command.group, moment.now_ms)
        topics = self._state.topics
        subscribed = self._subscribed(group.name)
        faults, ids = list[GroupFault | None](), list[int]()
        for name in command.topics:
            topic = topics.get(name)
            if topic is None:
                faults.append(GroupFault.NO_TOPIC)
            elif public_name(name) in subscribed:
                faults.append(GroupFault.SUBSCRIBED)
            else:
                faults.append(None)
                if topic.topic_id in group.offsets:
                    ids.append(topic.topic_id)
        if ids:
            self._unit.require_writable(moment, FRAME_BYTES + 16 * len(ids), reserve=True)
            self._unit.emit(OffsetsCommitted(moment.now_ms, group.name, (), ids))
        return OffsetsKept(group.name, faults, gate=SYNCED, is_logged=True, is_fsync=True)

    def _subscribed(self, name: str) -> frozenset[str]:
        """The topics that members of a group read.  Raises GroupRefusal: it does not say."""
        live = self._coordinator.live.get(name)
        if live is None or not live.members:
            return frozenset()
        if live.protocol_type != CONSUMER:
            raise not_empty(name, len(live.members), GroupFault.NOT_EMPTY)
        found: frozenset[str] = frozenset()
        for member in live.members.values():
            for _, metadata in member.profile.protocols:
                found |= topics_of(metadata)
        return found

    # ------------------------------------------------------------------ groups

    def _required(self, name: str, now_ms: int) -> Group:
        """A group that is there.  Raises GroupRefusal: 404."""
        group = self._groups.find(require_group_name(name), now_ms)
        if group is None:
            raise no_group(name)
        return group

    def _list(self, command: ListGroups, moment: Moment) -> GroupsListed:
        """By name, of the groups that the caller may see."""
        size, now_ms = command.page_size, moment.now_ms
        names = page_of(
            self._names(),
            command.caller,
            command.prefix,
            command.after,
            size + 1,
            lambda name: self._is_listed(name, command.phases, now_ms),
        )
        shown = [self._summary(name) for name in names[:size]]
        return GroupsListed(shown, names[size - 1] if len(names) > size else None)

    def _names(self) -> Sequence[str]:
        """Of all groups, also of those that come, ascending."""
        live, known = self._coordinator.live, self._groups.by_name
        new = [name for name in live if name not in known]
        return sorted([*self._groups.names, *new]) if new else self._groups.names

    def _is_listed(self, name: str, phases: Sequence[str], now_ms: int) -> bool:
        if name not in self._coordinator.live and self._groups.find(name, now_ms) is None:
            return False
        return not phases or self._phase(name).value in phases

    def _phase(self, name: str) -> GroupPhase:
        live = self._coordinator.live.get(name)
        return self._groups.by_name[name].phase if live is None else live.phase

    def _summary(self, name: str) -> GroupSummary:
        live, kept = self._coordinator.live.get(name), self._groups.by_name.get(name)
        generation, protocol_type = 0, ""
        if kept is not None:
            generation, protocol_type = kept.generation, kept.protocol_type
        if live is None:
            assert kept is not None
            count = len(kept.members)
            return GroupSummary(name, kept.phase, generation, protocol_type, count)
        protocol_type = live.protocol_type or protocol_type
        return GroupSummary(name, live.phase, generation, protocol_type, len(live.members))

    def _members(self, name: str) -> list[GroupMember]:
        """Each with its assignment, where it has one."""
        live, kept = self._coordinator.live.get(name), self._groups.by_name.get(name)
        known = {} if kept is None else kept.members
        if live is None:
            return list(known.values())
        return [known.get(each.member_id, each.profile) for each in live.members.values()]

    def _describe(self, command: DescribeGroup, moment: Moment) -> GroupShown:
        name, now_ms = require_group_name(command.group), moment.now_ms
        live, group = self._coordinator.live.get(name), self._groups.find(name, now_ms)
        if group is None and live is None:
            raise no_group(name)
        offsets, after_id = list[KeptOffset](), None
        if group is not None:
            offsets, after_id = self._page(
                group, command.after_id, command.page_size, command.caller, now_ms
            )
        is_stable = group is not None and self._phase(name) is GroupPhase.STABLE
        summary, members = self._summary(name), self._members(name)
        return GroupShown(
            summary,
            group.protocol if group is not None and is_stable else "",
            members,
            offsets,
            after_id,
            self._assigned(summary, members, command),
            gate=self._shown_gate(),
        )

    def _assigned(
        self, summary: GroupSummary, members: Sequence[GroupMember], command: DescribeGroup
    ) -> list[Mapping[str, Sequence[int]] | None]:
        """What each member was assigned, of the topics that the caller may see; of the first of them, up to so many
        bytes in all."""
        if not command.shows_assigned:
            return []
        found, room_bytes = list[Mapping[str, Sequence[int]] | None](), ASSIGNED_BYTES_MAX
        for member in members:
            room_bytes -= len(member.assignment)
            is_read = summary.protocol_type == CONSUMER and room_bytes >= 0
            assigned = partitions_of(member.assignment) if is_read else None
            if assigned is not None:
                assigned = {k: v for k, v in assigned.items() if command.caller.covers(k)}
            found.append(assigned)
        return found

    def _shown_gate(self) -> Gate:
        """What an answer waits for that tells of a group; where no sync comes any more, it shows what there is."""
        return NOW if self._unit.read_only else SYNCED

    def _delete(self, command: DeleteGroup, moment: Moment) -> GroupDropped:
        name = require_group_name(command.group)
        live, group = self._coordinator.live.get(name), self._groups.find(name, moment.now_ms)
        if live is not None and live.members:
            raise not_empty(name, len(live.members), GroupFault.NOT_EMPTY)
        if group is None:
            raise no_group(name)
        self._unit.require_writable(moment, reserve=True)
        self._unit.emit(GroupDeleted(moment.now_ms, name))
        self._coordinator.deleted(name)
        return GroupDropped(name, gate=SYNCED, is_logged=True, is_fsync=True)


def no_group(name: str) -> GroupRefusal:
    return GroupRefusal(
        GroupFault.NO_GROUP, f"group {quote(name)} does not exist", detail={"group": name}
    )


def not_empty(name: str, members: int, fault: GroupFault) -> GroupRefusal:
    """409: a group with members is theirs."""
    return GroupRefusal(
        fault,
        f"group {quote(name)} has {members} member{'' if members == 1 else 's'}",
        code=ErrorCode.GROUP_NOT_EMPTY,
        detail={"group": name, "members": members},
    )


def too_many(limit: str, most: int) -> GroupRefusal:
    """429 with `detail.limit` and `detail.max` (§11)."""
    return GroupRefusal(
        GroupFault.FULL,
        f"{limit} of {most} is reached",
        code=ErrorCode.THROTTLED,
        detail={"limit": limit, "max": most},
    )
