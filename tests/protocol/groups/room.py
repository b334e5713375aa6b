"""A coordinator over a state in memory, and clients of it that a test moves by hand."""

from itertools import count
from typing import Any

from topics.protocol.groups.coordinator import Answer, Coordinator
from topics.protocol.model.commands import JoinGroup, SyncGroup
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import GroupChanged
from topics.protocol.model.groups import GroupFault, GroupRefusal, Membership
from topics.protocol.model.outcomes import GroupJoined, GroupSynced
from topics.protocol.state.groups import Groups

SESSION_MS = 10_000
REBALANCE_MS = 20_000
DELAY_MS = 250
RANGE = (("range", b"sub"),)


class Room:
    """One process's coordinator of group `g`.

    Attributes:
        answers: To requests, by token.
        events: All that were emitted.
    """

    def __init__(self, groups: Groups | None = None, now_ms: int = 0, delay_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.groups = groups or Groups()
        self.answers: dict[object, Answer] = {}
        self.events: list[GroupChanged] = []
        self._tokens, self._ids = count(), count(1)
        self.coordinator = Coordinator(self.groups, self._emit, self._answer, delay_ms)
        self.coordinator.begin(now_ms)

    def _emit(self, event: GroupChanged) -> None:
        self.events.append(event)
        self.groups.change(event)

    def _answer(self, token: object, answer: Answer) -> None:
        assert token not in self.answers, "answered twice"
        self.answers[token] = answer

    def restarted(self) -> "Room":
        """The process ends, and another begins with what the state has."""
        groups = Groups()
        for image in self.groups.images():
            groups.restore(image)
        room = Room(groups, self.now_ms)
        room._ids, room._tokens = self._ids, self._tokens  # neither is given twice
        return room

    # ------------------------------------------------------------------ time

    def advance(self, ms: int) -> None:
        """Time passes, and everything is done when it is due."""
        end_ms, looks = self.now_ms + ms, 0
        while (due_ms := self.coordinator.due.next_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            name = self.coordinator.due.take(self.now_ms)
            assert name is not None
            assert (looks := looks + 1) < 100, "it is looked at over and over"
            self.coordinator.look(name, self.now_ms)
        self.now_ms = end_ms

    # ------------------------------------------------------------------ what clients ask

    def join(self, member_id: str = "", **fields: Any) -> object:
        """A join on its way: its token; raises GroupRefusal."""
        token = next(self._tokens)
        given: dict[str, Any] = {
            "group": "g",
            "member_id": member_id,
            "new_member_id": f"m{next(self._ids)}",
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_ms": SESSION_MS,
            "rebalance_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": RANGE,
        }
        found = self.coordinator.join(JoinGroup(**{**given, **fields}), token, self.now_ms)
        if found is not None:
            self._answer(token, found)
        return token

    def joined(self, token: object) -> GroupJoined:
        found = self.answers[token]
        assert isinstance(found, GroupJoined), found
        return found

    def sync(
        self, joined: GroupJoined, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> object:
        token = next(self._tokens)
        member = Membership(joined.generation, joined.member_id, fields.pop("instance_id", None))
        given = list((assignments or {}).items())
        command = SyncGroup(group="g", member=member, assignments=given, **fields)
        found = self.coordinator.sync(command, token, self.now_ms)
        if found is not None:
            self._answer(token, found)
        return token

    def synced(self, token: object) -> bytes:
        found = self.answers[token]
        assert isinstance(found, GroupSynced), found
        return found.assignment

    def stable(self, *ids: str, **fields: Any) -> list[GroupJoined]:
        """The members with these ids, or new ones, are in a generation, each assigned its own id."""
        tokens = [self.join(each, **fields) for each in ids]
        self.advance(0)
        found = [self.joined(token) for token in tokens]
        parts = {each.member_id: each.member_id.encode() for each in found}
        syncs = [self.sync(each, parts if each.members else None) for each in found]
        assert [self.synced(token) for token in syncs] == list(parts.values())
        return found

    def member(self, joined: GroupJoined, **fields: Any) -> Membership:
        given = {"generation": joined.generation, "member_id": joined.member_id, **fields}
        return Membership(**given)

    def beat(self, joined: GroupJoined, **fields: Any) -> GroupFault | None:
        """What is wrong with a heartbeat."""
        return self.fault(
            lambda: self.coordinator.heartbeat("g", self.member(joined, **fields), self.now_ms)
        )

    def leave(self, *members: Membership) -> list[GroupFault | None]:
        return self.coordinator.leave("g", members, self.now_ms)

    @staticmethod
    def fault(ask: Any) -> GroupFault | None:
        try:
            ask()
        except GroupRefusal as refusal:
            return refusal.fault
        return None

    def refused(self, token: object) -> GroupFault:
        found = self.answers[token]
        assert isinstance(found, GroupRefusal), found
        assert isinstance(found, Rejection)
        return found.fault
