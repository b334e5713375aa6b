"""One group as this process knows it: who waits, and until when."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from topics.protocol.model.groups import GroupMember, GroupPhase

Token: TypeAlias = object
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


class LiveMember(msgspec.Struct, eq=False):
    """A member, or one that joins.

    Attributes:
        profile: As it joined last; its assignment is in the state alone.
        until_ms: When its session ends, unless it is heard of, or waits here.
        join: The token of its join, while that waits; `sync` likewise.
        is_new: It was in no generation yet.
        skips_assignment: Of its last join.
    """

    profile: GroupMember
    until_ms: int
    join: Token | None = None
    sync: Token | None = None
    is_new: bool = True
    skips_assignment: bool = False

    @property
    def member_id(self) -> str:
        return self.profile.member_id

    @property
    def waits(self) -> bool:
        return self.join is not None or self.sync is not None


PENDING_BYTES: Final = 300
"""An id that was given to a member which has not joined yet."""


class Weight:
    """Bytes of all live groups of an engine."""

    def __init__(self) -> None:
        self.size_bytes = 0


class LiveGroup:
    """A group with members, or with some that come.

    Attributes:
        pending: Ids that were given to members which have not joined with them, and until when they may.
        static: The ids of members by their instances.
        deadline_ms: When it goes on without who has not joined, or removes who has not synced.
        extends_until_ms: While the first members come: until then the deadline is put off for each.
        unsynced: Members that have still to ask what they were assigned.
    """

    def __init__(self, name: str, weight: Weight) -> None:
        self.name = name
        self._weight = weight
        self.phase = GroupPhase.EMPTY
        self.protocol_type = ""
        self.leader = ""
        self.members: dict[str, LiveMember] = {}
        self.pending: dict[str, int] = {}
        self.static: dict[str, str] = {}
        self.deadline_ms: int | None = None
        self.extends_until_ms = 0
        self.has_more = False
        """A member came since the deadline was set."""
        self.unsynced: dict[str, None] = {}
        self.size_bytes = 0
        """Of its members' profiles."""
        self._joined = 0
        self._votes: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        return not self.members and not self.pending

    # ------------------------------------------------------------------ members

    def add(self, member: LiveMember) -> None:
        """A member comes; it may wait already."""
        profile = member.profile
        if not self.members:
            self.leader = ""
        self.members[profile.member_id] = member
        if profile.instance_id is not None:
            self.static[profile.instance_id] = profile.member_id
        self._joined += member.join is not None
        self._count(profile, 1)

    def remove(self, member_id: str) -> LiveMember:
        """A member goes; who waits for it is the caller's to answer."""
        member = self.members.pop(member_id)
        profile = member.profile
        if profile.instance_id is not None and self.static.get(profile.instance_id) == member_id:
            del self.static[profile.instance_id]
        self._joined -= member.join is not None
        self._count(profile, -1)
        self.unsynced.pop(member_id, None)
        if self.leader == member_id:
            self.leader = ""
        return member

    def update(self, member: LiveMember, profile: GroupMember) -> None:
        """A member joins anew, perhaps with other protocols."""
        self._count(member.profile, -1)
        member.profile = profile
        self._count(profile, 1)

    def _count(self, profile: GroupMember, by: int) -> None:
        size_bytes = by * profile.size_bytes
        self.size_bytes += size_bytes
        self._weight.size_bytes += size_bytes
        for name in dict(profile.protocols):
            self._votes[name] += by
            if not self._votes[name]:
                del self._votes[name]

    def await_join(self, member_id: str, until_ms: int) -> None:
        """A member was given an id, and is to join with it."""
        self.pending[member_id] = until_ms
        self._weight.size_bytes += PENDING_BYTES

    def was_awaited(self, member_id: str) -> bool:
        """Whether an id was given to a member that has not joined; it is not awaited any more."""
        if self.pending.pop(member_id, None) is None:
            return False
        self._weight.size_bytes -= PENDING_BYTES
        return True

    # ------------------------------------------------------------------ who waits

    def join(self, member: LiveMember, token: Token) -> Token | None:
        """The member's join waits; the token of one that waited before."""
        before, member.join = member.join, token
        self._joined += before is None
        return before

    def joined(self, member: LiveMember) -> Token | None:
        """Its join waits no longer."""
        token, member.join = member.join, None
        self._joined -= token is not None
        return token

    @property
    def joined_count(self) -> int:
        """Members whose join waits."""
        return self._joined

    @property
    def have_all_joined(self) -> bool:
        return self._joined == len(self.members) and not self.pending

    @property
    def rebalance_ms(self) -> int:
        """How long the slowest member may take to join."""
        return max((each.profile.rebalance_ms for each in self.members.values()), default=0)

    # ------------------------------------------------------------------ protocols

    def takes(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one that all others know."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        known = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._votes[name] == known for name, _ in protocols
        )

    def chosen(self) -> str:
        """The protocol that all know and most like best; of equals, the one that the leader likes better."""
        common = {name for name, votes in self._votes.items() if votes == len(self.members)}
        votes = Counter(
            next(name for name, _ in each.profile.protocols if name in common)
            for each in self.members.values()
        )
        leader = self.members[self.leader].profile.protocols
        return max((name for name, _ in leader if name in common), key=lambda name: votes[name])

    # ------------------------------------------------------------------ time

    def due_ms(self) -> int | None:
        """When something of it is due."""
        return min(self._times(), default=None)

    def _times(self) -> Iterable[int]:
        if self.deadline_ms is not None:
            yield self.deadline_ms
        yield from self.pending.values()
        for member in self.members.values():
            if not member.waits:
                yield member.until_ms
