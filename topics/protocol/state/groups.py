"""Groups of consumers: the members of the last generation of each, and the offsets that it has committed.

Events change a group, and time: one that has no members and was not used for a week is gone with its offsets, one
without offsets after some minutes.  A replay finds that again by the clock, so that an event about a group which is gone
by then begins a new one.

An offset belongs to an instance of a topic and goes with it.  Each is kept as the bytes that a checkpoint has of it.
"""

from typing import Final

import msgspec

from topics.protocol.model.events import (
    GroupChanged,
    GroupImage,
    OffsetsCommitted,
    array_header,
    encode_image,
)
from topics.protocol.model.groups import CommittedOffset, GroupMember, GroupPhase
from topics.protocol.state.sorted_names import SortedNames

RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""How long the offsets of a group without members are kept."""
UNUSED_MS: Final = 600_000
"""How long a group is kept that has neither members nor offsets."""
GROUP_BYTES: Final = 600
"""What a group takes beside its members and offsets."""
OFFSET_BYTES: Final = 160
"""What an offset takes in memory beside its own bytes."""
_decode: Final = msgspec.msgpack.Decoder(CommittedOffset).decode


class Group:
    """One group.

    Attributes:
        generation: Of its members; it never falls.
        leader: The id of the member that assigns; empty: none does.
        used_ms: When it last changed.
        offsets: By the ids of topics, each as msgpack.
        size_bytes: About what it takes in memory.
    """

    __slots__ = (
        "generation",
        "leader",
        "members",
        "name",
        "offsets",
        "phase",
        "protocol",
        "protocol_type",
        "size_bytes",
        "used_ms",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.phase = GroupPhase.EMPTY
        self.protocol_type = self.protocol = self.leader = ""
        self.used_ms = 0
        self.members: dict[str, GroupMember] = {}
        self.offsets: dict[int, bytes] = {}
        self.size_bytes = GROUP_BYTES

    def expires_ms(self) -> int | None:
        """When it is gone, unless it is used before; None: not while it has members."""
        if self.members:
            return None
        return self.used_ms + (RETENTION_MS if self.offsets else UNUSED_MS)

    def is_expired(self, now_ms: int) -> bool:
        due_ms = self.expires_ms()
        return due_ms is not None and due_ms <= now_ms

    def offset_of(self, topic_id: int) -> CommittedOffset | None:
        row = self.offsets.get(topic_id)
        return None if row is None else _decode(row)

    def put(self, member: GroupMember) -> None:
        self.drop(member.member_id)
        self.members[member.member_id] = member
        self.size_bytes += member.size_bytes

    def drop(self, member_id: str) -> None:
        before = self.members.pop(member_id, None)
        if before is not None:
            self.size_bytes -= before.size_bytes

    def assign(self, member_id: str, assignment: bytes) -> None:
        """The member keeps its place."""
        before = self.members[member_id]
        self.members[member_id] = msgspec.structs.replace(before, assignment=assignment)
        self.size_bytes += len(assignment) - len(before.assignment)

    def keep(self, topic_id: int, row: bytes) -> None:
        self.forget(topic_id)
        self.offsets[topic_id] = row
        self.size_bytes += len(row) + OFFSET_BYTES

    def forget(self, topic_id: int) -> None:
        before = self.offsets.pop(topic_id, None)
        if before is not None:
            self.size_bytes -= len(before) + OFFSET_BYTES

    def encoded(self) -> bytes:
        """The msgpack of its `GroupImage`."""
        pieces = (
            array_header(len(GroupImage.__struct_fields__)),
            *map(encode_image, self._head()),
            encode_image(list(self.members.values())),
            array_header(len(self.offsets)),
            *self.offsets.values(),
        )
        return b"".join(pieces)

    def image(self) -> GroupImage:
        members, offsets = list(self.members.values()), [*map(_decode, self.offsets.values())]
        return GroupImage(*self._head(), members, offsets)

    def _head(self) -> tuple[str, int, GroupPhase, str, str, str, int]:
        kind = self.protocol_type, self.protocol, self.leader
        return self.name, self.generation, self.phase, *kind, self.used_ms


class Groups:
    """The groups of one engine.

    Attributes:
        by_name: Also those that are expired, until somebody looks.
        size_bytes: Of all.
        lighter: Groups that have lost their last offset with its topic.
        commits, rebalances: How many there were since this process decides.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Group] = {}
        self.size_bytes = 0
        self.lighter: dict[str, None] = {}
        self.commits = self.rebalances = 0
        self._names = SortedNames()
        self._of_topic: dict[int, dict[str, None]] = {}

    @property
    def names(self) -> list[str]:
        """Of all groups, ascending."""
        return self._names.in_order()

    def find(self, name: str, now_ms: int) -> Group | None:
        """A group that is there now."""
        found = self.by_name.get(name)
        return None if found is None or found.is_expired(now_ms) else found

    def _used(self, name: str, now_ms: int) -> Group:
        """The group that an event is about, made where there is none."""
        found = self.by_name.get(name)
        if found is not None and found.is_expired(now_ms):
            self.delete(name)
            found = None
        if found is None:
            found = self.by_name[name] = Group(name)
            self._names.add(name)
            self.size_bytes += found.size_bytes
        found.used_ms = now_ms
        return found

    def change(self, event: GroupChanged) -> None:
        group = self._used(event.group, event.now_ms)
        before_bytes = group.size_bytes
        self.rebalances += event.generation > group.generation
        group.generation, group.phase = event.generation, event.phase
        group.protocol_type, group.protocol = event.protocol_type, event.protocol
        group.leader = event.leader
        for member_id in event.left:
            group.drop(member_id)
        if event.phase is GroupPhase.COMPLETING:
            for member in list(group.members.values()):
                if member.assignment:
                    group.assign(member.member_id, b"")
        for member in event.members:
            group.put(member)
        for member_id, assignment in event.assignments:
            group.assign(member_id, assignment)
        self.size_bytes += group.size_bytes - before_bytes

    def commit(self, event: OffsetsCommitted) -> None:
        group = self._used(event.group, event.now_ms)
        before_bytes = group.size_bytes
        for topic_id in event.removed:
            self._forget(group, topic_id)
        self.commits += bool(event.offsets)
        for offset in event.offsets:
            group.keep(offset.topic_id, encode_image(offset))
            self._of_topic.setdefault(offset.topic_id, {})[group.name] = None
        self.size_bytes += group.size_bytes - before_bytes

    def _forget(self, group: Group, topic_id: int) -> None:
        group.forget(topic_id)
        named = self._of_topic.get(topic_id, {})
        named.pop(group.name, None)
        if not named:
            self._of_topic.pop(topic_id, None)

    def delete(self, name: str) -> None:
        """The group is gone."""
        group = self.by_name.pop(name)
        self.lighter.pop(name, None)
        self._names.remove(name)
        self.size_bytes -= group.size_bytes
        for topic_id in list(group.offsets):
            self._forget(group, topic_id)

    def of_topic(self, topic_id: int) -> list[str]:
        """The groups that have an offset of a topic."""
        return list(self._of_topic.get(topic_id, ()))

    def forget_topic(self, topic_id: int) -> None:
        """The topic is gone."""
        for name in self.of_topic(topic_id):
            group = self.by_name[name]
            before_bytes = group.size_bytes
            self._forget(group, topic_id)
            self.size_bytes += group.size_bytes - before_bytes
            if not group.offsets:
                self.lighter[name] = None

    def images(self) -> list[GroupImage]:
        return [group.image() for group in self.by_name.values()]

    def restore(self, image: GroupImage) -> None:
        """A group of a checkpoint."""
        group = self.by_name[image.name] = Group(image.name)
        self._names.add(image.name)
        group.generation, group.phase = image.generation, image.phase
        group.protocol_type, group.protocol = image.protocol_type, image.protocol
        group.leader, group.used_ms = image.leader, image.used_ms
        for member in image.members:
            group.put(member)
        for offset in image.offsets:
            group.keep(offset.topic_id, encode_image(offset))
            self._of_topic.setdefault(offset.topic_id, {})[group.name] = None
        self.size_bytes += group.size_bytes
