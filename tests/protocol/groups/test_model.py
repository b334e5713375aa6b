"""Members that die, pause, lie and come back, over restarts, against what must always hold. (§5)

In a generation a partition has one owner; a generation is used once; nobody is a member after the session; who is fenced
commits nothing.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from topics.protocol.model.groups import GroupFault, GroupPhase, GroupRefusal, Membership
from topics.protocol.model.outcomes import GroupJoined, GroupSynced

from .room import DELAY_MS, RANGE, REBALANCE_MS, SESSION_MS, Room

PROTOCOLS = (RANGE, (("range", b"other"), ("sticky", b"")), (("sticky", b""), ("range", b"")))
WAITING = Bundle("waiting")
MEMBERS = Bundle("members")


class Client:
    """A member as its client knows it.

    Attributes:
        heard_ms: When the group last heard of it, at the latest.
    """

    def __init__(self, joined: GroupJoined, instance_id: str | None, heard_ms: int) -> None:
        self.joined = joined
        self.instance_id = instance_id
        self.heard_ms = heard_ms

    @property
    def member(self) -> Membership:
        return Membership(self.joined.generation, self.joined.member_id, self.instance_id)


class GroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.room = Room(delay_ms=DELAY_MS)
        self.assigned: dict[int, dict[str, bytes]] = {}
        """What each member of a generation was told, by generation."""
        self.leaders: dict[int, set[str]] = {}
        self.greatest = 0

    def _told(self, joined: GroupJoined) -> None:
        """A generation was told: by that of the state, or one before it."""
        kept = self.room.groups.by_name["g"]
        assert joined.generation <= kept.generation
        if joined.members and not joined.skips_assignment:
            ids = {each[0] for each in joined.members}
            known = self.leaders.setdefault(joined.generation, ids)
            assert known == ids, "the members of a generation are those of its leader's list"

    @staticmethod
    def _refused(refusal: GroupRefusal, *faults: GroupFault) -> None:
        assert refusal.fault in faults

    # ------------------------------------------------------------------ rules

    @rule(
        target=WAITING,
        instance=st.sampled_from([None, None, "i", "j"]),
        protocols=st.sampled_from(PROTOCOLS),
    )
    def come(self, instance: str | None, protocols: Any) -> Any:
        try:
            token = self.room.join(instance_id=instance, protocols=protocols, skips_assignment=True)
        except GroupRefusal as refusal:
            self._refused(refusal, GroupFault.INCONSISTENT_PROTOCOL)
            return multiple()
        return token, instance, protocols

    @rule(target=WAITING, client=MEMBERS, protocols=st.sampled_from(PROTOCOLS))
    def join_again(self, client: Client, protocols: Any) -> Any:
        try:
            token = self.room.join(
                client.joined.member_id, instance_id=client.instance_id, protocols=protocols
            )
        except GroupRefusal as refusal:
            self._refused(
                refusal,
                GroupFault.INCONSISTENT_PROTOCOL,
                GroupFault.UNKNOWN_MEMBER,
                GroupFault.FENCED_INSTANCE,
            )
            return multiple()
        return token, client.instance_id, protocols

    @rule(target=MEMBERS, waiting=consumes(WAITING))
    def hear(self, waiting: Any) -> Any:
        """The answer to a join comes, or a client gives up."""
        token, instance, _ = waiting
        answer = self.room.answers.get(token)
        if answer is None:
            self.room.coordinator.forget(token, self.room.now_ms)
            return multiple()
        if not isinstance(answer, GroupJoined):
            return multiple()
        self._told(answer)
        return Client(answer, instance, self.room.now_ms)

    @rule(client=MEMBERS)
    def ask(self, client: Client) -> None:
        """The leader assigns a partition to each that it knows; others ask."""
        joined = client.joined
        parts = {each[0]: each[0].encode() for each in joined.members}
        before = len(self.room.answers)
        try:
            token = self.room.sync(joined, parts, instance_id=client.instance_id)
        except GroupRefusal as refusal:
            self._refused(
                refusal,
                GroupFault.REBALANCING,
                GroupFault.UNKNOWN_MEMBER,
                GroupFault.FENCED_INSTANCE,
                GroupFault.ILLEGAL_GENERATION,
            )
            return
        client.heard_ms = self.room.now_ms
        if len(self.room.answers) > before and token in self.room.answers:
            answer = self.room.answers[token]
            assert isinstance(answer, GroupSynced)
            told = self.assigned.setdefault(joined.generation, {})
            assert told.setdefault(joined.member_id, answer.assignment) == answer.assignment
            owners = [part for part in told.values() if part]
            assert len(owners) == len(set(owners)), "a partition has one owner"

    @rule(client=MEMBERS, lie=st.sampled_from([0, 0, 0, 1, -1]))
    def beat(self, client: Client, lie: int) -> None:
        member = client.member
        told = Membership(member.generation + lie, member.member_id, member.instance_id)
        fault = self.room.fault(
            lambda: self.room.coordinator.heartbeat("g", told, self.room.now_ms)
        )
        kept = self.room.groups.by_name.get("g")
        if fault in (None, GroupFault.REBALANCING):
            assert kept is not None
            assert told.generation == kept.generation
            client.heard_ms = self.room.now_ms

    @rule(client=MEMBERS)
    def commit(self, client: Client) -> None:
        """Whoever is not in the present generation commits nothing, nor does anybody while the leader assigns."""
        room = self.room
        fault = room.fault(lambda: room.coordinator.require_commit("g", client.member, room.now_ms))
        kept = room.groups.by_name.get("g")
        if fault is None:
            assert kept is not None
            assert client.joined.generation == kept.generation
            assert room.coordinator.live["g"].phase is not GroupPhase.COMPLETING
            client.heard_ms = room.now_ms

    @rule(client=consumes(MEMBERS))
    def go(self, client: Client) -> None:
        (fault,) = self.room.leave(client.member)
        assert fault in (None, GroupFault.UNKNOWN_MEMBER, GroupFault.FENCED_INSTANCE)
        assert self.room.beat(client.joined) in (
            GroupFault.UNKNOWN_MEMBER,
            GroupFault.FENCED_INSTANCE,
        )

    @rule(ms=st.sampled_from([1, DELAY_MS, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.room.advance(ms)

    @rule()
    def restart(self) -> None:
        """What waited is gone with the process."""
        self.room = self.room.restarted()

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def a_generation_never_falls(self) -> None:
        kept = self.room.groups.by_name.get("g")
        if kept is None:
            assert self.greatest == 0
            return
        assert kept.generation >= self.greatest
        self.greatest = kept.generation
        begun = [e for e in self.room.events if e.phase is GroupPhase.COMPLETING]
        numbers = [event.generation for event in begun]
        assert numbers == sorted(set(numbers)), "each is begun once"

    @invariant()
    def nobody_lives_after_the_session(self) -> None:
        live = self.room.coordinator.live.get("g")
        for member in [] if live is None else live.members.values():
            assert (
                member.waits
                or member.until_ms > self.room.now_ms
                or (
                    (due_ms := self.room.coordinator.due.next_ms()) is not None
                    and due_ms <= self.room.now_ms
                )
            )

    @invariant()
    def the_state_has_the_members_that_live(self) -> None:
        """But for those that are in no generation yet."""
        live = self.room.coordinator.live.get("g")
        kept = self.room.groups.by_name.get("g")
        known = set() if kept is None else set(kept.members)
        lives = set() if live is None else {m.member_id for m in live.members.values()}
        new = set() if live is None else {m.member_id for m in live.members.values() if m.is_new}
        assert known == lives - new
        phase = GroupPhase.EMPTY if live is None else live.phase
        if kept is not None and phase is not GroupPhase.PREPARING:
            assert kept.phase is phase

    @invariant()
    def who_waits_is_a_member(self) -> None:
        coordinator = self.room.coordinator
        waiting = set(coordinator._waiting)
        live = coordinator.live.get("g")
        members = [] if live is None else list(live.members.values())
        tokens = [t for m in members for t in (m.join, m.sync) if t is not None]
        assert waiting == set(tokens)
        assert not waiting & set(self.room.answers)
        if live is not None:
            assert live.joined_count == sum(m.join is not None for m in members)
            assert coordinator.due.next_ms() is not None


GroupModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroupModel = GroupModel.TestCase
