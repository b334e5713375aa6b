"""The coordinator: what members of groups ask, and what comes of it.

A group goes from empty to preparing, completing and stable, and back to preparing with each member that comes, goes, or
knows other protocols.  While it prepares, joins wait; while it completes, syncs do.

A static member (KIP-345) has an instance: it may come back under a new id, and takes the place of its former self, which is
fenced off.  A leader that comes back so has nothing to assign (KIP-814).  A new member that is not static is told its id
first, and joins with it (KIP-394): a client that never hears the answer leaves no member behind.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from topics.protocol.groups.live import LiveGroup, LiveMember, Token, Weight
from topics.protocol.model.commands import JoinGroup, SyncGroup
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import GroupChanged
from topics.protocol.model.groups import (
    GroupFault,
    GroupMember,
    GroupPhase,
    GroupRefusal,
    Membership,
)
from topics.protocol.model.names import quote
from topics.protocol.model.outcomes import SYNCED, GroupJoined, GroupSynced
from topics.protocol.state.expiry import DueTimes
from topics.protocol.state.groups import Group, Groups

MEMBERS_MAX: Final = 1000
SESSION_MS_MIN: Final = 6000
SESSION_MS_MAX: Final = 1_800_000
FIELD_CHARS_MAX: Final = 255
"""Of an instance, the name of a protocol or of its type."""
PROTOCOLS_MAX: Final = 64
MEMBER_BYTES_MAX: Final = 256 << 10
"""Of what a member says of itself, and of what it is assigned."""
GROUP_BYTES_MAX: Final = 8 << 20
"""The same of all members of a group."""

Answer: TypeAlias = GroupJoined | GroupSynced | Rejection


class Coordinator:
    """The live groups of one engine.

    Args:
        emit: Makes an event true, and has it written.
        answer: Gets the answer to a request that waits.
        delay_ms: How long the first rebalance of an empty group waits for more members.

    Attributes:
        live: Groups with members, or with some that come.
        due: When to look at each group, also at one without members: it is gone some day.
        weight: What all live groups take.
    """

    def __init__(
        self,
        groups: Groups,
        emit: Callable[[GroupChanged], None],
        answer: Callable[[Token, Answer], None],
        delay_ms: int,
    ) -> None:
        self._groups = groups
        self._emit = emit
        self._answer = answer
        self._delay_ms = delay_ms
        self.live: dict[str, LiveGroup] = {}
        self.due = DueTimes[str]()
        self.weight = Weight()
        self._waiting: dict[Token, tuple[str, str]] = {}
        """Group and member of each request that waits."""

    def begin(self, now_ms: int) -> None:
        """From now on this process coordinates: sessions begin anew, and members go on in their generation."""
        for group in self._groups.by_name.values():
            if not group.members:
                self.time(group)
                continue
            live = self.live[group.name] = LiveGroup(group.name, self.weight)
            for profile in group.members.values():
                live.add(LiveMember(profile, now_ms + profile.session_ms, is_new=False))
            live.phase, live.leader = group.phase, group.leader
            live.protocol_type = group.protocol_type
            if live.phase is GroupPhase.COMPLETING:
                live.unsynced = dict.fromkeys(live.members)
            if live.phase is not GroupPhase.STABLE:
                live.deadline_ms = now_ms + live.rebalance_ms
            self._time(live)

    # ------------------------------------------------------------------ joins

    def join(self, command: JoinGroup, token: Token, now_ms: int) -> GroupJoined | None:
        """Join a group; None where the answer comes later.  Raises GroupRefusal."""
        _require_fields(command)
        live = self.live.get(command.group)
        if live is None:
            if command.member_id:
                raise unknown_member(command.member_id)
            live = LiveGroup(command.group, self.weight)
        if not live.takes(command.protocol_type, command.protocols):
            raise GroupRefusal(
                GroupFault.INCONSISTENT_PROTOCOL,
                f"group {quote(live.name)} has no protocol in common with the member",
            )
        if not command.member_id:
            return self._join_new(live, command, token, now_ms)
        if command.instance_id is None and live.was_awaited(command.member_id):
            self._add(live, command, command.member_id, token, now_ms)
            return None
        member = self._member(live, command.member_id, command.instance_id)
        return self._join_again(live, member, command, token, now_ms)

    def _join_new(
        self, live: LiveGroup, command: JoinGroup, token: Token, now_ms: int
    ) -> GroupJoined | None:
        instance_id, new_id = command.instance_id, command.new_member_id
        before = None if instance_id is None else live.static.get(instance_id)
        if before is not None:
            return self._replace(live, live.members[before], command, token, now_ms)
        if len(live.members) + len(live.pending) >= MEMBERS_MAX:
            raise full(live.name, f"{MEMBERS_MAX} members")
        if instance_id is None and command.joins_twice:
            live.await_join(new_id, now_ms + command.session_ms)
            self._opened(live)
            raise GroupRefusal(
                GroupFault.MEMBER_ID_REQUIRED,
                f"join again as {quote(new_id)}",
                member_id=new_id,
            )
        self._add(live, command, new_id, token, now_ms)
        return None

    def _opened(self, live: LiveGroup) -> None:
        self.live[live.name] = live
        self._time(live)

    def _add(
        self, live: LiveGroup, command: JoinGroup, member_id: str, token: Token, now_ms: int
    ) -> None:
        profile = _profile(command, member_id)
        if live.size_bytes + profile.size_bytes > GROUP_BYTES_MAX:
            self._close(live)
            raise full(live.name, f"{GROUP_BYTES_MAX} bytes of its members' protocols")
        if not live.members:
            live.protocol_type = command.protocol_type
        member = LiveMember(profile, now_ms + command.session_ms)
        live.add(member)
        self._wait_join(live, member, command, token)
        live.has_more = True
        self._prepare(live, now_ms)
        self._opened(live)
        self._complete_if_all(live, now_ms)

    def _wait_join(
        self, live: LiveGroup, member: LiveMember, command: JoinGroup, token: Token
    ) -> None:
        member.skips_assignment = command.skips_assignment
        before = live.join(member, token)
        if before is not None:
            self._refuse(before, rebalancing(live.name))
        self._waiting[token] = live.name, member.member_id

    def _join_again(
        self,
        live: LiveGroup,
        member: LiveMember,
        command: JoinGroup,
        token: Token,
        now_ms: int,
    ) -> GroupJoined | None:
        """A member that is in the group joins its next generation; or hears of the present one, where it asks for
        nothing new."""
        profile = _profile(command, member.member_id)
        is_same = profile.protocols == member.profile.protocols
        is_settled = live.phase is GroupPhase.COMPLETING or (
            live.phase is GroupPhase.STABLE and live.leader != member.member_id
        )
        if is_same and is_settled:
            self._heard(live, member, now_ms)
            return self._joined(live, member)
        if live.size_bytes + profile.size_bytes - member.profile.size_bytes > GROUP_BYTES_MAX:
            raise full(live.name, f"{GROUP_BYTES_MAX} bytes of its members' protocols")
        live.update(member, profile)
        self._wait_join(live, member, command, token)
        self._prepare(live, now_ms)
        self._complete_if_all(live, now_ms)
        return None

    def _replace(
        self,
        live: LiveGroup,
        before: LiveMember,
        command: JoinGroup,
        token: Token,
        now_ms: int,
    ) -> GroupJoined | None:
        """A static member comes back under a new id."""
        led = live.leader == before.member_id
        live.remove(before.member_id)
        self._end(before, fenced(before.profile.instance_id))
        member = LiveMember(_profile(command, command.new_member_id), now_ms + command.session_ms)
        live.add(member)
        if led:
            live.leader = member.member_id
        kept = self._groups.by_name.get(live.name)
        if kept is not None and self._goes_on(live, kept):
            member.is_new = False
            assigned = kept.members[before.member_id].assignment
            profile = msgspec.structs.replace(member.profile, assignment=assigned)
            self._change(live, now_ms, members=[profile], left=[before.member_id])
            self._time(live)
            if led and not command.skips_assignment:
                # It would assign anew, and nobody would ask for that: it is told that its former self leads.
                return self._joined(live, member, leader=before.member_id)
            return self._joined(live, member, skips_assignment=led)
        self._wait_join(live, member, command, token)
        self._prepare(live, now_ms)
        known = self._groups.by_name.get(live.name)
        if known is not None and before.member_id in known.members:
            self._change(live, now_ms, left=[before.member_id])
        self._complete_if_all(live, now_ms)
        return None

    @staticmethod
    def _goes_on(live: LiveGroup, kept: Group) -> bool:
        """Whether the generation goes on with its protocol."""
        return live.phase is GroupPhase.STABLE and live.chosen() == kept.protocol

    def _joined(
        self,
        live: LiveGroup,
        member: LiveMember,
        *,
        leader: str | None = None,
        skips_assignment: bool = False,
    ) -> GroupJoined:
        """The answer to a join of the present generation."""
        kept = self._groups.by_name[live.name]
        members: Sequence[tuple[str, str | None, bytes]] = ()
        if live.leader == member.member_id and leader is None:
            members = [
                (each.member_id, each.profile.instance_id, each.profile.metadata_of(kept.protocol))
                for each in live.members.values()
                if not each.is_new
            ]
        return GroupJoined(
            member.member_id,
            kept.generation,
            kept.protocol_type,
            kept.protocol,
            live.leader if leader is None else leader,
            members,
            skips_assignment,
            gate=SYNCED,
            is_logged=True,
        )

    # ------------------------------------------------------------------ from one generation to the next

    def _prepare(self, live: LiveGroup, now_ms: int) -> None:
        """Members are to join the next generation."""
        if live.phase is GroupPhase.PREPARING:
            return
        if live.phase is GroupPhase.EMPTY:
            # Without a delay too: a member that was told its id and does not come holds up no first generation.
            live.deadline_ms = now_ms + min(self._delay_ms, live.rebalance_ms)
            live.extends_until_ms = now_ms + live.rebalance_ms if self._delay_ms else 0
            live.has_more = False
        else:
            live.deadline_ms, live.extends_until_ms = now_ms + live.rebalance_ms, 0
        for member in live.members.values():
            if member.sync is not None:
                token, member.sync = member.sync, None
                member.until_ms = now_ms + member.profile.session_ms
                self._refuse(token, rebalancing(live.name))
        live.unsynced.clear()
        live.phase = GroupPhase.PREPARING
        self._time(live)

    def _complete_if_all(self, live: LiveGroup, now_ms: int) -> None:
        if (
            live.phase is GroupPhase.PREPARING
            and live.have_all_joined
            and now_ms >= live.extends_until_ms
        ):
            self._complete(live, now_ms)

    def _complete(self, live: LiveGroup, now_ms: int) -> None:
        """The next generation begins, without the members that have not joined; a static one keeps its place."""
        absent = [
            each.member_id
            for each in live.members.values()
            if each.join is None and each.profile.instance_id is None
        ]
        left = self._remove(live, absent)
        if not live.members:
            self._emptied(live, now_ms, left)
            return
        if not live.joined_count:
            live.deadline_ms = now_ms + live.rebalance_ms
            self._change_if(live, now_ms, left)
            self._time(live)
            return
        leader = live.members.get(live.leader)
        if leader is None or leader.join is None:
            live.leader = next(
                each.member_id for each in live.members.values() if each.join is not None
            )
        kept = self._groups.find(live.name, now_ms)
        known = {} if kept is None else kept.members
        came = [
            each.profile
            for each in live.members.values()
            if not _is_as_before(each.profile, known.get(each.member_id))
        ]
        live.phase = GroupPhase.COMPLETING
        live.deadline_ms, live.extends_until_ms = now_ms + live.rebalance_ms, 0
        generation = (0 if kept is None else kept.generation) + 1
        self._emit(
            GroupChanged(
                now_ms,
                live.name,
                generation,
                live.phase,
                live.protocol_type,
                live.chosen(),
                live.leader,
                came,
                left,
            )
        )
        here = [each for each in live.members.values() if each.join is not None]
        for member in live.members.values():
            member.is_new = False
        live.unsynced = dict.fromkeys(each.member_id for each in here)
        for member in here:
            token = live.joined(member)
            member.until_ms = now_ms + member.profile.session_ms
            self._tell(token, self._joined(live, member))
        self._time(live)

    def _remove(self, live: LiveGroup, member_ids: Sequence[str]) -> list[str]:
        """Take members out; those of them that were in a generation."""
        known = self._groups.by_name.get(live.name)
        for member_id in member_ids:
            self._end(live.remove(member_id), unknown_member(member_id))
        return [each for each in member_ids if known is not None and each in known.members]

    def _end(self, member: LiveMember, why: GroupRefusal) -> None:
        """A member is no more: what it waits for is refused."""
        for token in (member.join, member.sync):
            if token is not None:
                self._refuse(token, why)

    def _gone(self, live: LiveGroup, member_ids: Sequence[str], now_ms: int) -> None:
        """Members left, or were not heard of: the others share what they had."""
        left = self._remove(live, member_ids)
        if not live.members:
            self._emptied(live, now_ms, left)
            return
        self._prepare(live, now_ms)
        self._change_if(live, now_ms, left)
        self._complete_if_all(live, now_ms)

    def _emptied(self, live: LiveGroup, now_ms: int, left: Sequence[str]) -> None:
        live.phase, live.leader, live.deadline_ms = GroupPhase.EMPTY, "", None
        self._change_if(live, now_ms, left)
        self._close(live)

    def _change_if(self, live: LiveGroup, now_ms: int, left: Sequence[str]) -> None:
        """The state has members that are no more."""
        if left:
            self._change(live, now_ms, left=left)

    def _change(
        self,
        live: LiveGroup,
        now_ms: int,
        *,
        members: Sequence[GroupMember] = (),
        left: Sequence[str] = (),
        assignments: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Within the generation that there is."""
        kept = self._groups.by_name[live.name]
        phase = live.phase
        if phase is GroupPhase.PREPARING and len(left) == len(kept.members):
            phase = GroupPhase.EMPTY  # those that come are in no generation yet
        leader = live.leader if live.leader in kept.members or members else ""
        self._emit(
            GroupChanged(
                now_ms,
                live.name,
                kept.generation,
                phase,
                kept.protocol_type,
                kept.protocol,
                leader,
                members,
                left,
                assignments,
            )
        )

    # ------------------------------------------------------------------ syncs

    def sync(self, command: SyncGroup, token: Token, now_ms: int) -> GroupSynced | None:
        """What a member was assigned; None where the answer comes later.  Raises GroupRefusal."""
        live, member = self._known(command.group, command.member)
        kept = self._groups.by_name.get(live.name)
        self._require_generation(kept, command.member)
        assert kept is not None
        said = (command.protocol_type, kept.protocol_type), (command.protocol, kept.protocol)
        if any(theirs is not None and theirs != ours for theirs, ours in said):
            raise GroupRefusal(
                GroupFault.INCONSISTENT_PROTOCOL,
                f"group {quote(live.name)} is assigned by {quote(kept.protocol)}",
            )
        if live.phase is GroupPhase.PREPARING:
            raise rebalancing(live.name)
        if live.phase is GroupPhase.STABLE:
            self._heard(live, member, now_ms)
            live.unsynced.pop(member.member_id, None)
            return _synced(kept, member.member_id)
        _require_assignments(command)
        before, member.sync = member.sync, token
        if before is not None:
            self._refuse(before, rebalancing(live.name))
        self._waiting[token] = live.name, member.member_id
        live.unsynced.pop(member.member_id, None)
        if live.leader == member.member_id:
            self._assign(live, command.assignments, now_ms)
        return None

    def _assign(
        self, live: LiveGroup, assignments: Sequence[tuple[str, bytes]], now_ms: int
    ) -> None:
        """The leader has assigned: the generation is stable."""
        live.phase = GroupPhase.STABLE
        given = [each for each in dict(assignments).items() if each[0] in live.members]
        self._change(live, now_ms, assignments=given)
        kept = self._groups.by_name[live.name]
        for member in live.members.values():
            if member.sync is not None:
                token, member.sync = member.sync, None
                member.until_ms = now_ms + member.profile.session_ms
                self._tell(token, _synced(kept, member.member_id))
        self._time(live)

    # ------------------------------------------------------------------ heartbeats and ends

    def heartbeat(self, group: str, member: Membership, now_ms: int) -> None:
        """A member lives.  Raises GroupRefusal; where the group prepares, it is heard of all the same."""
        live, found = self._known(group, member)
        self._require_generation(self._groups.by_name.get(group), member)
        self._heard(live, found, now_ms)
        if live.phase is GroupPhase.PREPARING:
            raise rebalancing(group)

    def leave(
        self, group: str, members: Sequence[Membership], now_ms: int
    ) -> list[GroupFault | None]:
        """Members leave, each by itself; why not, where one does not."""
        live = self.live.get(group)
        faults: list[GroupFault | None] = []
        gone: dict[str, None] = {}
        for each in members:
            if live is None:
                faults.append(GroupFault.UNKNOWN_MEMBER)
                continue
            try:
                member_id = self._leaving(live, each)
            except GroupRefusal as refusal:
                faults.append(refusal.fault)
                continue
            faults.append(None)
            if member_id is not None:
                gone[member_id] = None
        if live is not None:
            if gone:
                self._gone(live, list(gone), now_ms)
            else:
                self._complete_if_all(live, now_ms)
            self._close(live)
        return faults

    def _leaving(self, live: LiveGroup, member: Membership) -> str | None:
        """The id of a member that leaves; None: it has not come.  Raises GroupRefusal."""
        if member.instance_id is None and live.was_awaited(member.member_id):
            return None
        member_id = member.member_id
        if member.instance_id is not None and not member_id:
            member_id = live.static.get(member.instance_id, "")
        return self._member(live, member_id, member.instance_id).member_id

    def require_commit(self, group: str, member: Membership, now_ms: int) -> None:
        """Whether a member may commit now.  Raises GroupRefusal."""
        live, found = self._known(group, member)
        self._require_generation(self._groups.by_name.get(group), member)
        if live.phase is GroupPhase.COMPLETING:
            raise rebalancing(group)
        self._heard(live, found, now_ms)

    def forget(self, token: Token, now_ms: int) -> None:
        """Who waited is gone: a member that had never joined before goes with its join."""
        place = self._waiting.pop(token, None)
        if place is None:
            return
        name, member_id = place
        live = self.live[name]
        member = live.members[member_id]
        self._heard(live, member, now_ms)
        if member.sync is token:
            member.sync = None
            live.unsynced[member_id] = None
        else:
            live.joined(member)
            if member.is_new:
                live.remove(member_id)
                if not live.members:
                    live.phase, live.deadline_ms = GroupPhase.EMPTY, None
        # The next look finds what is left: nobody, or others that have all joined.
        self.due.not_after(name, now_ms)

    def deleted(self, name: str) -> None:
        """A group without members is gone; ids that were given go with it."""
        live = self.live.pop(name, None)
        if live is not None:
            for member_id in list(live.pending):
                live.was_awaited(member_id)
        self.due.forget(name)

    def release_all(self, why: Rejection) -> None:
        """Answer every request that waits."""
        for token, (name, member_id) in list(self._waiting.items()):
            live = self.live[name]
            member = live.members[member_id]
            if member.sync is token:
                member.sync = None
            else:
                live.joined(member)
            self._refuse(token, why)

    # ------------------------------------------------------------------ time

    def look(self, name: str, now_ms: int) -> None:
        """Time passed for a group; whether it is gone is the state's to say."""
        live = self.live.get(name)
        if live is None:
            kept = self._groups.by_name.get(name)
            if kept is not None:
                self.time(kept)
            return
        for member_id in [each for each, until_ms in live.pending.items() if until_ms <= now_ms]:
            live.was_awaited(member_id)
        silent = [
            each.member_id
            for each in live.members.values()
            if not each.waits and each.until_ms <= now_ms
        ]
        if silent:
            self._gone(live, silent, now_ms)
        if live.deadline_ms is not None and live.deadline_ms <= now_ms:
            self._overdue(live, now_ms)
        self._complete_if_all(live, now_ms)
        if not self._close(live):
            self._time(live)

    def _overdue(self, live: LiveGroup, now_ms: int) -> None:
        if live.phase is not GroupPhase.PREPARING:
            live.deadline_ms = None
            if live.unsynced:
                self._gone(live, list(live.unsynced), now_ms)
        elif live.has_more and now_ms < live.extends_until_ms:
            live.has_more = False
            live.deadline_ms = min(now_ms + self._delay_ms, live.extends_until_ms)
        else:
            self._complete(live, now_ms)

    def _heard(self, live: LiveGroup, member: LiveMember, now_ms: int) -> None:
        """The session goes on; it is looked at when it would have ended without this."""
        member.until_ms = now_ms + member.profile.session_ms

    def _time(self, live: LiveGroup) -> None:
        due_ms = live.due_ms()
        assert due_ms is not None, "whoever waits waits for a deadline"
        self.due.not_after(live.name, due_ms)

    def _close(self, live: LiveGroup) -> bool:
        """Nobody is in it and nobody comes: it is what the state says."""
        if not live.is_over:
            return False
        self.live.pop(live.name, None)
        kept = self._groups.by_name.get(live.name)
        if kept is not None:
            self.time(kept)
        return True

    def time(self, kept: Group) -> None:
        """Look at a group that nobody is in once it may be gone."""
        due_ms = kept.expires_ms()
        if due_ms is not None:
            self.due.not_after(kept.name, due_ms)

    # ------------------------------------------------------------------ who asks

    def _known(self, group: str, member: Membership) -> tuple[LiveGroup, LiveMember]:
        live = self.live.get(group)
        if live is None:
            raise unknown_member(member.member_id)
        return live, self._member(live, member.member_id, member.instance_id)

    @staticmethod
    def _member(live: LiveGroup, member_id: str, instance_id: str | None) -> LiveMember:
        """Raises GroupRefusal: nobody has the id, or another has the instance."""
        if instance_id is not None:
            owner = live.static.get(instance_id)
            if owner is not None and owner != member_id:
                raise fenced(instance_id)
            if owner is None:
                raise unknown_member(member_id)
        found = live.members.get(member_id)
        if found is None:
            raise unknown_member(member_id)
        return found

    @staticmethod
    def _require_generation(kept: Group | None, member: Membership) -> None:
        generation = 0 if kept is None else kept.generation
        if kept is None or member.generation != generation:
            raise GroupRefusal(
                GroupFault.ILLEGAL_GENERATION,
                f"generation {member.generation}, and the group is in {generation}",
            )

    def _tell(self, token: Token, outcome: GroupJoined | GroupSynced) -> None:
        self._waiting.pop(token, None)
        self._answer(token, outcome)

    def _refuse(self, token: Token, why: Rejection) -> None:
        self._waiting.pop(token, None)
        self._answer(token, why)


def _profile(command: JoinGroup, member_id: str) -> GroupMember:
    return GroupMember(
        member_id,
        command.instance_id,
        command.client_id[:FIELD_CHARS_MAX],
        command.client_host,
        command.session_ms,
        command.rebalance_ms,
        command.protocols,
    )


def _is_as_before(profile: GroupMember, before: GroupMember | None) -> bool:
    """Whether a member says of itself what it said when it joined the generation before."""
    return before is not None and msgspec.structs.replace(before, assignment=b"") == profile


def _synced(kept: Group, member_id: str) -> GroupSynced:
    member = kept.members[member_id]
    return GroupSynced(
        kept.protocol_type, kept.protocol, member.assignment, gate=SYNCED, is_logged=True
    )


def _require_fields(command: JoinGroup) -> None:
    """Raises GroupRefusal: what the member says of itself is out of bounds."""
    if not SESSION_MS_MIN <= command.session_ms <= SESSION_MS_MAX:
        raise GroupRefusal(
            GroupFault.INVALID_SESSION,
            f"a session has {SESSION_MS_MIN} to {SESSION_MS_MAX} ms, and this one {command.session_ms}",
        )
    texts = [command.protocol_type, command.instance_id or "", *dict(command.protocols)]
    if (
        len(command.protocols) > PROTOCOLS_MAX
        or max(map(len, texts)) > FIELD_CHARS_MAX
        or sum(len(metadata) for _, metadata in command.protocols) > MEMBER_BYTES_MAX
    ):
        raise GroupRefusal(
            GroupFault.INVALID_FIELD,
            f"a member has at most {PROTOCOLS_MAX} protocols of {MEMBER_BYTES_MAX} bytes in all, and "
            f"names of {FIELD_CHARS_MAX} characters",
        )


def _require_assignments(command: SyncGroup) -> None:
    """Raises GroupRefusal: too much is assigned."""
    sizes = [len(assignment) for _, assignment in command.assignments]
    if max(sizes, default=0) > MEMBER_BYTES_MAX or sum(sizes) > GROUP_BYTES_MAX:
        raise GroupRefusal(
            GroupFault.INVALID_FIELD,
            f"an assignment has at most {MEMBER_BYTES_MAX} bytes, and all have {GROUP_BYTES_MAX}",
        )


def unknown_member(member_id: str) -> GroupRefusal:
    return GroupRefusal(GroupFault.UNKNOWN_MEMBER, f"the group has no member {quote(member_id)}")


def rebalancing(group: str) -> GroupRefusal:
    return GroupRefusal(GroupFault.REBALANCING, f"group {quote(group)} is rebalanced: join again")


def fenced(instance_id: str | None) -> GroupRefusal:
    return GroupRefusal(
        GroupFault.FENCED_INSTANCE, f"another is instance {quote(instance_id or '')} now"
    )


def full(group: str, most: str) -> GroupRefusal:
    return GroupRefusal(GroupFault.FULL, f"group {quote(group)} has its {most}")
