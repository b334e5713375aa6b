"""Groups of consumers: their offsets, lists of them, and their end.

What is shown of a group waits for a sync, as what is told to its members does: a power loss may take back no commit that
somebody saw.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.pages import page_of
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    ListGroups,
)
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.events import GroupDeleted, OffsetsCommitted
from topics.protocol.model.groups import (
    COMMIT_METADATA_BYTES_MAX,
    NO_MEMBER,
    CommittedOffset,
    GroupFault,
    GroupRefusal,
    OffsetCommit,
    require_group_name,
)
from topics.protocol.model.limits import throttled
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import quote
from topics.protocol.model.outcomes import (
    NOW,
    SYNCED,
    Gate,
    GroupDropped,
    GroupShown,
    GroupsListed,
    GroupSummary,
    KeptOffset,
    OffsetsFound,
    OffsetsKept,
    Outcome,
)
from topics.protocol.state.expiry import DueTimes
from topics.protocol.state.groups import OFFSET_BYTES, Group

GROUPS_MAX: Final = 10_000
GROUPS_BYTES_MAX: Final = 256 << 20
"""Of all groups, with their members and offsets."""
STEP_GROUPS: Final = 64
"""Groups that one step looks at."""
OFFSETS_MAX: Final = 100_000
"""Of one group."""


class GroupCommands:
    """Groups of one engine."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._state = unit.state
        self._groups = unit.state.groups
        self._due = DueTimes[str]()
        """When to look at a group as time passes."""
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            CommitOffsets: self._commit,
            FetchOffsets: self._fetch,
            DeleteOffsets: self._delete_offsets,
            ListGroups: self._list,
            DescribeGroup: self._describe,
            DeleteGroup: self._delete,
        }

    # ------------------------------------------------------------------ time

    def begin(self) -> None:
        """From now on this engine decides: groups are timed."""
        for group in self._groups.by_name.values():
            self._time(group)

    def _time(self, group: Group) -> None:
        due_ms = group.expires_ms()
        if due_ms is not None:
            self._due.not_after(group.name, due_ms)

    def alarm_ms(self) -> int | None:
        """When `step` is wanted though nothing happens until then."""
        return self._due.next_ms()

    def is_due(self, now_ms: int) -> bool:
        return self._due.is_due(now_ms)

    def step(self, now_ms: int) -> None:
        """Do some of what is due."""
        for _ in range(STEP_GROUPS):
            name = self._due.take(now_ms)
            if name is None:
                break
            group = self._groups.by_name.get(name)
            if group is not None and group.is_expired(now_ms):
                self._state.expire_group(name)
            elif group is not None:
                self._time(group)

    def on_dropped(self) -> None:
        """A topic was deleted: groups that have no offset any more are gone sooner."""
        lighter, self._groups.lighter = self._groups.lighter, {}
        for name in lighter:
            if name in self._groups.by_name:
                self._time(self._groups.by_name[name])

    # ------------------------------------------------------------------ offsets

    def _commit(self, command: CommitOffsets, moment: Moment) -> OffsetsKept:
        """Keep offsets, each by itself: what is wrong with one keeps no other from being kept."""
        name, now_ms = require_group_name(command.group), moment.now_ms
        self._require_commit(command, now_ms)
        group = self._groups.find(name, now_ms)
        faults = list(self._faults(group, command.offsets))
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
            self._time(self._groups.by_name[name])
        return OffsetsKept(name, faults, gate=SYNCED, is_logged=True)

    def _require_commit(self, command: CommitOffsets, now_ms: int) -> None:
        """Raises GroupRefusal where who commits may not."""
        group = self._groups.find(command.group, now_ms)
        if command.member != NO_MEMBER:
            fault = GroupFault.UNKNOWN_MEMBER if group else GroupFault.ILLEGAL_GENERATION
            raise GroupRefusal(fault, f"group {quote(command.group)} has no such member")
        if group is not None and group.members:
            raise not_empty(group, GroupFault.UNKNOWN_MEMBER)

    def _require_room(self, now_ms: int, *, is_new: bool) -> None:
        """Raises Rejection: 429 where there are too many groups, or too much of them."""
        self.step(now_ms)
        if is_new and len(self._groups.by_name) >= GROUPS_MAX:
            raise throttled("max_groups", GROUPS_MAX)
        if self._groups.size_bytes >= GROUPS_BYTES_MAX:
            raise throttled("max_group_bytes", GROUPS_BYTES_MAX)

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
        """Offsets of a group; none of one that is not there."""
        group = self._groups.find(require_group_name(command.group), moment.now_ms)
        if group is None:
            return OffsetsFound((), gate=SYNCED)
        if command.topics is None:
            found, after_id = self._page(
                group, command.after_id, command.page_size, command.caller, moment.now_ms
            )
            return OffsetsFound(found, after_id, gate=SYNCED)
        topics = self._state.topics
        ids = [topics[name].topic_id for name in command.topics if name in topics]
        return OffsetsFound(self._shown(group, ids, moment.now_ms), gate=SYNCED)

    def _page(
        self, group: Group, after_id: int, size: int, caller: Caller, now_ms: int
    ) -> tuple[list[KeptOffset], int | None]:
        """Offsets of the next topics behind one, by their ids, of which the caller may see the names."""
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
                    max(topic.published_seq - offset.seq, 0),
                    max(topic.evict_floor - 1 - offset.seq, 0),
                )
            )
        return found

    def _delete_offsets(self, command: DeleteOffsets, moment: Moment) -> OffsetsKept:
        """Forget offsets, but of topics that a member reads."""
        group = self._required(command.group, moment.now_ms)
        topics = self._state.topics
        faults = [None if name in topics else GroupFault.NO_TOPIC for name in command.topics]
        ids = [topics[name].topic_id for name in command.topics if name in topics]
        ids = [topic_id for topic_id in ids if topic_id in group.offsets]
        if ids:
            self._unit.require_writable(moment, FRAME_BYTES + 16 * len(ids), reserve=True)
            self._unit.emit(OffsetsCommitted(moment.now_ms, group.name, (), ids))
        return OffsetsKept(group.name, faults, gate=SYNCED, is_logged=True)

    # ------------------------------------------------------------------ groups

    def _required(self, name: str, now_ms: int) -> Group:
        """A group that is there.  Raises GroupRefusal: 404."""
        group = self._groups.find(require_group_name(name), now_ms)
        if group is None:
            raise GroupRefusal(
                GroupFault.NO_GROUP, f"group {quote(name)} does not exist", detail={"group": name}
            )
        return group

    def _list(self, command: ListGroups, moment: Moment) -> GroupsListed:
        """By name, of the groups that the caller may see."""
        size, now_ms = command.page_size, moment.now_ms
        names = page_of(
            self._groups.names,
            command.caller,
            command.prefix,
            command.after,
            size + 1,
            lambda name: self._is_listed(name, command.phases, now_ms),
        )
        shown = [self._summary(self._groups.by_name[name]) for name in names[:size]]
        return GroupsListed(shown, names[size - 1] if len(names) > size else None)

    def _is_listed(self, name: str, phases: Sequence[str], now_ms: int) -> bool:
        group = self._groups.find(name, now_ms)
        return group is not None and (not phases or group.phase.value in phases)

    def _summary(self, group: Group) -> GroupSummary:
        return GroupSummary(
            group.name, group.phase, group.generation, group.protocol_type, len(group.members)
        )

    def _describe(self, command: DescribeGroup, moment: Moment) -> GroupShown:
        group = self._required(command.group, moment.now_ms)
        offsets, after_id = self._page(
            group, command.after_id, command.page_size, command.caller, moment.now_ms
        )
        return GroupShown(
            self._summary(group),
            group.protocol,
            list(group.members.values()),
            offsets,
            after_id,
            gate=self._shown_gate(),
        )

    def _shown_gate(self) -> Gate:
        """What an answer waits for that tells of a group; where no sync comes any more, it shows what there is."""
        return NOW if self._unit.read_only else SYNCED

    def _delete(self, command: DeleteGroup, moment: Moment) -> GroupDropped:
        group = self._required(command.group, moment.now_ms)
        if group.members:
            raise not_empty(group, GroupFault.NOT_EMPTY)
        self._unit.require_writable(moment, reserve=True)
        self._unit.emit(GroupDeleted(moment.now_ms, group.name))
        return GroupDropped(group.name, gate=SYNCED, is_logged=True)


def not_empty(group: Group, fault: GroupFault) -> GroupRefusal:
    """409: a group with members is theirs."""
    count = len(group.members)
    return GroupRefusal(
        fault,
        f"group {quote(group.name)} has {count} members",
        code=ErrorCode.GROUP_NOT_EMPTY,
        detail={"group": group.name, "members": count},
    )
