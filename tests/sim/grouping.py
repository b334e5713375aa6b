"""A group of consumers over kills and power losses at any file call: who is in it, what each was assigned, what it committed.

Members join, sync, heartbeat, commit, leave, die, fall silent for longer than their session, lie about their generation, and
come back as static members; topics are made anew; the clock is moved and set back, and a backup is restored below the living
members.  Whatever a start finds is what the group was at some moment since the last sync, so that nothing that anybody was
told is lost; members go on in their generation; no generation is assigned twice, and no partition has two owners in it; who
is silent for a session is out, and whoever is out commits nothing.
"""

import copy
from typing import Any, NamedTuple

import msgspec

from topics.protocol.model.commands import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from topics.protocol.model.events import GroupChanged, GroupImage, OffsetsCommitted
from topics.protocol.model.groups import (
    GroupFault,
    GroupPhase,
    GroupRefusal,
    Membership,
    OffsetCommit,
)
from topics.protocol.model.outcomes import (
    Gate,
    GroupJoined,
    GroupSynced,
    Parked,
)

from .lives import SECONDS, Bug, Lives, Patch, require

TOPICS = ("t0", "t1", "t2")
SESSION_MS = 6000
REBALANCE_MS = 3000
PROTOCOLS = (("range", b"all"),)
ROUNDS = 400
"""Within which living members come to rest."""


class Client:
    """A consumer, as it knows itself.

    Attributes:
        instance: Of a static member.
        life: Another each time that it begins anew; answers to a former self reach nobody.
        does: What it waits for: an answer to its `join` or `sync`; `out` and `joined`: it asks next; `in`: it is a member.
        heard_ms: When the server has heard of it last.
        silent_ms: Until when it does nothing.
        is_of_another_history: A backup was restored meanwhile, which may have a former self of it.
    """

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.life = 0
        self.silent_ms = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        self.life += 1
        self.member_id, self.generation, self.does = "", -1, "out"
        self.assignments: list[tuple[str, bytes]] = []
        self.heard_ms = 0
        self.is_of_another_history = False

    @property
    def membership(self) -> Membership:
        return Membership(self.generation, self.member_id, self.instance)

    @property
    def identity(self) -> str:
        return self.instance or self.member_id


class Known(NamedTuple):
    """What was known when a backup was taken."""

    images: list[GroupImage | None]
    assigned: dict[int, bytes]
    owners: dict[tuple[int, bytes], str]


class World(Lives):
    """One group and its clients.

    Attributes:
        images: The group after each change since the last sync, the state at that sync first.
        assigned: By generation, the leader's word for it; `owners` by generation and partition.
        asked: The client of each request that waits, and its life.
        outbox: Answers that wait for a sync.
        ghosts: Members that were given up by their clients.
    """

    jumps = SECONDS
    steps = 120

    def __init__(self, seed: int, *, harsh: bool) -> None:
        super().__init__(seed, harsh=harsh)
        self.clients = [Client(None), Client(None), Client("i1"), Client("i2")]
        self.images: list[GroupImage | None] = [None]
        self.assigned: dict[int, bytes] = {}
        self.owners: dict[tuple[int, bytes], str] = {}
        self.commits: dict[str, int] = {}
        """What was committed last, of each topic."""
        self.newest = 0
        """The greatest generation of an answer in this life."""
        self.asked: dict[object, tuple[Client, int]] = {}
        self.outbox: list[tuple[Client, int, Any]] = []
        self.ghosts: list[Membership] = []
        self.numbers = 0

    # ------------------------------------------------------------------ one life

    def begin(self) -> None:
        engine = self.engine
        self.asked, self.outbox = {}, []
        found = self._image()
        require(found in self.images, "a start finds the group as it never was since the last sync")
        self.images = [found]
        self.newest = 0 if found is None else found.generation
        by_id = engine.engine.state.by_id
        offsets = () if found is None else found.offsets
        self.commits = {by_id[each.topic_id].name: each.seq for each in offsets}
        for name in TOPICS:
            if name not in engine.engine.state.topics:
                require(found is None or not found.offsets, "a topic is gone")
                engine.put(name, durability=self.durability)
        self.sync()
        members = {} if found is None else {each.member_id: each for each in found.members}
        for client in self.clients:
            client.heard_ms = self.time
            if client.does != "in":
                client.does = "out"  # what it asked was not answered: it asks again
            elif client.member_id in members and found is not None:
                is_stable = found.phase is GroupPhase.STABLE
                if is_stable and found.generation == client.generation:
                    fault = self.fault(Heartbeat("g", client.membership))
                    require(fault is None, f"a member is out of its generation: {fault}")

    def known(self) -> Known:
        return copy.deepcopy(Known(self.images, self.assigned, self.owners))

    def revert(self, known: Known) -> None:
        self.images, self.assigned, self.owners = known
        for client in self.clients:
            client.is_of_another_history = True

    @property
    def time(self) -> int:
        """The engine's time: it does not fall."""
        return max(self.engine.now_ms, self.engine.engine.state.now_ms)

    def step(self) -> None:
        dice, engine = self.dice, self.engine
        choice = dice.random()
        if choice < 0.75:
            client = dice.choice(self.clients)
            if client.silent_ms <= self.time:
                self.act(client)
                if dice.random() < 0.6:
                    self.sync()
        elif choice < 0.82:
            self.pass_time(dice.choice((50, 300, 300, 1000, 3000, 7000)))
        elif choice < 0.85:
            self.end(dice.choice(self.clients))
        elif choice < 0.89:
            self.lie()
        elif choice < 0.92:
            self.fetch()
        elif choice < 0.945:
            self.sync()
        elif choice < 0.95:
            self.renew(dice.choice(TOPICS))
        elif choice < 0.97:
            engine.drive(engine.schedule.round(checkpoint=True))
            self.heed()
        elif choice < 0.972:
            self.delete()
        else:
            self.engine.write()
            if not self.harsh:
                del self.images[:-1]
        self.note_time()

    # ------------------------------------------------------------------ asking, and what is answered

    def ask(self, client: Client, command: Any) -> GroupRefusal | None:
        """Ask, and hear what comes of it; an answer that is given now has to wait for a sync."""
        try:
            found = self.engine.ask(command)
        except GroupRefusal as refusal:
            self.heed()
            return refusal
        if isinstance(found, Parked):
            self.asked[self.engine.last_token] = client, client.life
        else:
            self._hold_back(client, client.life, found)
            if isinstance(found, GroupJoined | GroupSynced):
                client.heard_ms = self.time
        self.heed()
        return None

    def fault(self, command: Any) -> GroupFault | None:
        """Why a command is refused; its answer reaches nobody."""
        try:
            self.engine.ask(command)
        except GroupRefusal as refusal:
            return refusal.fault
        finally:
            self.heed()
        return None

    def heed(self) -> None:
        """What those who wait are told, and what has become of the group."""
        for wake in self.engine.engine.take_wakes():
            client, life = self.asked.pop(wake.token)
            if client.life == life:
                client.heard_ms = self.time
            if isinstance(wake.result, GroupRefusal):
                if client.life == life:
                    self.refused(client, wake.result)
            else:
                self._hold_back(client, life, wake.result)
        image = self._image()
        if image != self.images[-1]:
            self.images.append(image)

    def _hold_back(self, client: Client, life: int, answer: Any) -> None:
        is_told = isinstance(answer, GroupJoined | GroupSynced)
        require(not is_told or answer.gate is Gate.SYNCED, "a member is told before a sync")
        if isinstance(answer, GroupJoined):
            require(answer.generation >= self.newest, "a generation falls")
            self.newest = answer.generation
        self.outbox.append((client, life, answer))

    def sync(self) -> None:
        """All that was decided is durable, and answered."""
        self.engine.sync()
        del self.images[:-1]
        outbox, self.outbox = self.outbox, []
        for client, life, answer in outbox:
            if client.life == life:
                self.answered(client, answer)

    def answered(self, client: Client, answer: Any) -> None:
        match answer:
            case GroupJoined():
                client.member_id, client.generation = answer.member_id, answer.generation
                client.does = "joined"
                client.assignments = self._share_out(answer)
            case GroupSynced() if client.does == "sync":
                client.does = "in"
                self._assigned(client, answer.assignment)

    def _share_out(self, answer: GroupJoined) -> list[tuple[str, bytes]]:
        """What a leader assigns: its word for the generation, for whom, and which topics."""
        if answer.skips_assignment:
            return []
        self.numbers += 1
        shares: list[list[str]] = [[] for _ in answer.members]
        for at, name in enumerate(TOPICS if shares else ()):
            shares[at % len(shares)].append(name)
        return [
            (member_id, f"{self.numbers}|{instance or member_id}|{' '.join(share)}".encode())
            for (member_id, instance, _), share in zip(answer.members, shares, strict=True)
        ]

    def _assigned(self, client: Client, assignment: bytes) -> None:
        if not assignment:
            return
        word, whose, topics = assignment.split(b"|")
        require(whose.decode() == client.identity, "a member gets what is another's")
        for name in topics.split():
            owner = self.owners.setdefault((client.generation, name), client.identity)
            require(owner == client.identity, "a partition has two owners in one generation")
        known = self.assigned.setdefault(client.generation, word)
        require(known == word, "a generation is assigned twice")

    def refused(self, client: Client, refusal: GroupRefusal) -> None:
        """As a client of Kafka's does: join again, under another id where its own is not known."""
        fault = refusal.fault
        if fault is GroupFault.FENCED_INSTANCE:
            require(client.is_of_another_history, "who came last is fenced")
            client.begin_anew()
            return
        client.does = "out"
        if fault is GroupFault.MEMBER_ID_REQUIRED:
            client.member_id = refusal.member_id
        elif fault is GroupFault.UNKNOWN_MEMBER:
            client.member_id, client.generation = "", -1

    # ------------------------------------------------------------------ clients

    def act(self, client: Client) -> None:
        """What it does next."""
        if client.does == "out":
            self._join(client)
        elif client.does == "joined":
            client.does = "sync"
            self._told(client, SyncGroup(group="g", member=client.membership, assignments=client.assignments))  # fmt: skip
        elif client.does == "in":
            if self.dice.random() < 0.5:
                self._beat(client)
            else:
                self.commit(client)

    def _join(self, client: Client) -> None:
        self.numbers += 1
        client.does = "join"
        command = JoinGroup(
            group="g",
            member_id=client.member_id,
            new_member_id=f"m{self.numbers}",
            instance_id=client.instance,
            client_id="c",
            client_host="/h",
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=PROTOCOLS,
            joins_twice=self.dice.random() < 0.5,
            skips_assignment=True,
        )
        self._told(client, command)

    def _told(self, client: Client, command: Any) -> None:
        life = client.life
        refusal = self.ask(client, command)
        if refusal is not None and client.life == life:
            client.heard_ms = self.time
            self.refused(client, refusal)

    def _beat(self, client: Client) -> None:
        before_ms = client.heard_ms
        refusal = self.ask(client, Heartbeat("g", client.membership))
        self._lives_on(client, refusal, before_ms)

    def _lives_on(self, client: Client, refusal: GroupRefusal | None, before_ms: int) -> None:
        """Whoever is taken for a member was heard of within its session."""
        if refusal is None or refusal.fault is GroupFault.REBALANCING:
            is_alive = self.time < before_ms + SESSION_MS
            require(is_alive, "a member is alive after its session")
            client.heard_ms = self.time
        if refusal is not None:
            self.refused(client, refusal)

    def commit(self, client: Client) -> None:
        """An offset, which may be lower than the one before."""
        before_ms = client.heard_ms
        command = self._committing(client.membership)
        refusal = self.ask(client, command)
        if refusal is None:
            self.commits |= {each.topic: each.seq for each in command.offsets}
        if refusal is None or refusal.fault is not GroupFault.REBALANCING:
            self._lives_on(client, refusal, before_ms)
        else:
            self.refused(client, refusal)

    def _committing(self, membership: Membership) -> CommitOffsets:
        topic, seq = self.dice.choice(TOPICS), self.dice.randrange(1000)
        return CommitOffsets("g", [OffsetCommit(topic, seq)], membership)

    def end(self, client: Client) -> None:
        """It leaves, dies, falls silent, or is gone while it waits."""
        choice = self.dice.random()
        waits = [token for token, (each, _) in self.asked.items() if each is client]
        if waits and choice < 0.7:
            self.engine.engine.group_commands.forget(waits[-1])
            for token in waits:
                del self.asked[token]
            self._give_up(client)
        elif client.does == "in" and choice < 0.25:
            named = Membership(member_id=client.member_id, instance_id=client.instance)
            self.fault(LeaveGroup("g", [named]))
            client.begin_anew()
        elif client.does == "in" and choice < 0.5:
            self._give_up(client)
        else:
            client.silent_ms = self.time + self.dice.choice((1000, SESSION_MS + 1000))
        self.heed()

    def _give_up(self, client: Client) -> None:
        if client.member_id:
            self.ghosts.append(client.membership)
        client.begin_anew()

    def lie(self) -> None:
        """Whoever is no member of the generation commits nothing, and is not heard of."""
        image = self._image()
        here = {} if image is None else {each.member_id: each for each in image.members}
        liars = [Membership(1, "nobody"), Membership(1, "nobody", "i1")]
        for client in self.clients:
            if client.does == "in":
                off = client.generation + self.dice.choice((-1, 1))
                liars.append(Membership(off, client.member_id, client.instance))
        static = {each.instance_id for each in here.values() if each.instance_id is not None}
        replaced = [
            each
            for each in self.ghosts
            if each.instance_id in static and each.member_id not in here
        ]
        liar = self.dice.choice(liars + replaced)
        generation = 0 if image is None else image.generation
        if liar.member_id in here and liar.generation == generation:
            return  # its lie is true by now
        for command in (Heartbeat("g", liar), self._committing(liar)):
            fault = self.fault(command)
            require(fault is not None, "who is no member of the generation is heard")
            if liar in replaced:
                is_fenced = fault is GroupFault.FENCED_INSTANCE
                require(is_fenced, f"a former self is told another reason: {fault}")
        if here:
            fault = self.fault(self._committing(Membership()))
            require(fault is not None, "a commit without membership is taken beside members")

    def fetch(self) -> None:
        """What is committed, as anybody is told."""
        found: Any = self.engine.ask(FetchOffsets("g"))
        require(found.gate is Gate.SYNCED, "a commit is shown before it is durable")
        shown = {each.topic: each.seq for each in found.offsets}
        require(shown == self.commits, f"other offsets are shown: {shown}, not {self.commits}")
        self.heed()

    def renew(self, name: str) -> None:
        """A topic of that name, but another: no offset of the first one is one of it."""
        self.engine.drop(name)
        self.commits.pop(name, None)
        self.engine.put(name, durability=self.durability)
        self.heed()
        found: Any = self.engine.ask(FetchOffsets("g", [name]))
        require(not found.offsets, "an offset survives its topic")

    def delete(self) -> None:
        """A group without members is gone with its offsets, and begins anew."""
        image = self._image()
        fault = self.fault(DeleteGroup("g"))
        if image is not None and image.members:
            require(fault is GroupFault.NOT_EMPTY, f"a group with members is deleted: {fault}")
        if self._image() is None:
            self.commits.clear()
            self.assigned.clear()
            self.owners.clear()
            self.newest = 0

    # ------------------------------------------------------------------ time

    def pass_time(self, ms: int) -> None:
        """What is due is done when it is."""
        engine = self.engine
        end_ms, looks = engine.now_ms + ms, 0
        while (due_ms := engine.engine.alarm_ms()) is not None and due_ms <= end_ms:
            looks += 1
            require(looks < ROUNDS, "no rest: the group is looked at over and over")
            engine.now_ms = max(engine.now_ms, due_ms)
            engine.engine.work_off(engine.moment)
            self.heed()
        engine.now_ms = end_ms

    def _image(self) -> GroupImage | None:
        found = self.engine.engine.state.groups.find("g", self.time)
        return None if found is None else found.image()

    # ------------------------------------------------------------------ the end

    def judge(self) -> None:
        """Living members come to rest, each partition with one of them; once all are silent, nobody is left."""
        self.start()
        self.begin()
        for client in self.clients:
            client.silent_ms = 0
        for _ in range(ROUNDS):
            for client in self.clients:
                self.act(client)
            self.pass_time(100)
            self.sync()
            if self._rests():
                break
        require(self._rests(), f"no rest: {[client.does for client in self.clients]}")
        generation = self.clients[0].generation
        owners = [self.owners.get((generation, name.encode())) for name in TOPICS]
        require(None not in owners, f"a partition has no owner: {owners}")
        self.fetch()
        self.pass_time(2 * (SESSION_MS + REBALANCE_MS))
        self.sync()
        shown: Any = self.engine.ask(DescribeGroup("g"))
        require(not shown.members, "a member is alive after its session")

    def _rests(self) -> bool:
        image = self._image()
        return (
            image is not None
            and image.phase is GroupPhase.STABLE
            and {each.member_id for each in image.members}
            == {client.member_id for client in self.clients}
            and all(
                client.does == "in" and client.generation == image.generation
                for client in self.clients
            )
        )


def commits_not_logged(patch: Patch) -> None:
    _emitted(patch, lambda event: None if isinstance(event, OffsetsCommitted) else event)


def assignments_not_logged(patch: Patch) -> None:
    def bare(event: Any) -> Any:
        is_change = isinstance(event, GroupChanged)
        return msgspec.structs.replace(event, assignments=()) if is_change else event

    _emitted(patch, bare)


def _emitted(patch: Patch, change: Any) -> None:
    """The log gets another event than was applied, or none."""
    from topics.protocol.commit import unit_of_work

    emit, encode = unit_of_work.UnitOfWork.emit, unit_of_work.encode

    def emitted(self: Any, event: Any, *, logged: bool = True, **named: Any) -> None:
        emit(self, event, logged=logged and change(event) is not None, **named)

    patch.setattr(unit_of_work.UnitOfWork, "emit", emitted)
    patch.setattr(unit_of_work, "encode", lambda event: encode(change(event) or event))


def offsets_left_out_of_a_checkpoint(patch: Patch) -> None:
    from topics.protocol.state.groups import Groups

    own = Groups.restore
    patch.setattr(
        Groups,
        "restore",
        lambda self, image: own(self, msgspec.structs.replace(image, offsets=[])),
    )


def generation_used_again(patch: Patch) -> None:
    """The next generation has the number of the one before."""
    from topics.protocol.groups.coordinator import Coordinator

    own = Coordinator._complete

    def complete(self: Any, live: Any, now_ms: int) -> None:
        emit = self._emit

        def same(event: Any) -> None:
            again = max(event.generation - 1, 1)
            emit(msgspec.structs.replace(event, generation=again))

        self._emit = same
        try:
            own(self, live, now_ms)
        finally:
            self._emit = emit

    patch.setattr(Coordinator, "_complete", complete)


def assignment_of_the_generation_before_kept(patch: Patch) -> None:
    """Who had partitions keeps them, though the leader assigned them to another."""
    from topics.protocol.state.groups import Group

    own = Group.assign

    def assign(self: Any, member_id: str, assignment: bytes) -> None:
        if not self.members[member_id].assignment:
            own(self, member_id, assignment)

    put = Group.put

    def kept(self: Any, member: Any) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            member = msgspec.structs.replace(member, assignment=before.assignment)
        put(self, member)

    patch.setattr(Group, "assign", assign)
    patch.setattr(Group, "put", kept)


def assignment_of_another_given(patch: Patch) -> None:
    from topics.protocol.groups import coordinator

    own = coordinator._synced
    patch.setattr(
        coordinator, "_synced", lambda kept, member_id: own(kept, next(iter(kept.members)))
    )


def sessions_end_late(patch: Patch) -> None:
    from topics.protocol.groups.coordinator import Coordinator

    own = Coordinator._heard
    patch.setattr(
        Coordinator,
        "_heard",
        lambda self, live, member, now_ms: own(self, live, member, now_ms + 2000),
    )


def members_forgotten_at_a_start(patch: Patch) -> None:
    from topics.protocol.groups.coordinator import Coordinator

    patch.setattr(Coordinator, "begin", lambda self, now_ms: None)


def members_told_before_the_sync(patch: Patch) -> None:
    from topics.protocol.groups import coordinator

    patch.setattr(coordinator, "SYNCED", Gate.WRITTEN)


def commits_shown_before_the_sync(patch: Patch) -> None:
    from topics.protocol.decide import groups

    patch.setattr(groups, "SYNCED", Gate.WRITTEN)


def offsets_belong_to_a_name(patch: Patch) -> None:
    """A topic that is made anew has the offsets of the one before."""
    from topics.protocol.state.groups import Groups
    from topics.protocol.state.state import State

    forget, created = Groups.forget_topic, State._created
    left: list[tuple[str, bytes]] = []

    def forgotten(self: Any, topic_id: int) -> None:
        left[:] = [(name, self.by_name[name].offsets[topic_id]) for name in self.of_topic(topic_id)]
        forget(self, topic_id)

    def made(self: Any, event: Any) -> None:
        created(self, event)
        for name, row in left:
            self.groups.by_name[name].keep(event.topic_id, row)
        left.clear()

    patch.setattr(Groups, "forget_topic", forgotten)
    patch.setattr(State, "_created", made)


def static_member_fenced_by_its_former_self(patch: Patch) -> None:
    from topics.protocol.groups.coordinator import Coordinator

    own = Coordinator._replace

    def replace(self: Any, live: Any, before: Any, command: Any, *given: Any) -> Any:
        found = own(self, live, before, command, *given)
        live.static[command.instance_id] = before.member_id
        return found

    patch.setattr(Coordinator, "_replace", replace)


def instances_not_compared(patch: Patch) -> None:
    from topics.protocol.groups.coordinator import Coordinator

    own = Coordinator._member
    patch.setattr(
        Coordinator,
        "_member",
        staticmethod(lambda live, member_id, instance_id: own(live, member_id, None)),
    )


def generations_not_compared(patch: Patch) -> None:
    from topics.protocol.groups.coordinator import Coordinator

    patch.setattr(Coordinator, "_require_generation", staticmethod(lambda kept, member: None))


def commits_taken_from_anybody(patch: Patch) -> None:
    from topics.protocol.decide.groups import GroupCommands

    own = GroupCommands._require_commit

    def required(self: Any, command: Any, now_ms: int) -> None:
        if command.member.member_id:
            own(self, command, now_ms)

    patch.setattr(GroupCommands, "_require_commit", required)


def lower_commits_passed_over(patch: Patch) -> None:
    from topics.protocol.state.groups import Groups

    own = Groups.commit

    def commit(self: Any, event: Any) -> None:
        known = self.by_name.get(event.group)
        offsets = [
            each
            for each in event.offsets
            if known is None
            or (before := known.offset_of(each.topic_id)) is None
            or before.seq <= each.seq
        ]
        own(self, msgspec.structs.replace(event, offsets=offsets))

    patch.setattr(Groups, "commit", commit)


def rebalances_wait_for_ever(patch: Patch) -> None:
    from topics.protocol.groups.coordinator import Coordinator

    patch.setattr(Coordinator, "_overdue", lambda self, live, now_ms: None)


BUGS: dict[str, Bug] = {
    bug.sow.__name__: bug
    for bug in (
        Bug(commits_not_logged, "as it never was"),
        Bug(assignments_not_logged, "as it never was", 3),
        Bug(offsets_left_out_of_a_checkpoint, "as it never was", 1),
        Bug(generation_used_again, "two owners in one generation|assigned twice"),
        Bug(assignment_of_the_generation_before_kept, "two owners in one generation", 4),
        Bug(assignment_of_another_given, "a member gets what is another's"),
        Bug(sessions_end_late, "a member is alive after its session"),
        Bug(members_forgotten_at_a_start, "a member is out of its generation", 2),
        Bug(members_told_before_the_sync, "a member is told before a sync"),
        Bug(commits_shown_before_the_sync, "a commit is shown before"),
        Bug(offsets_belong_to_a_name, "an offset survives its topic"),
        Bug(static_member_fenced_by_its_former_self, "who came last is fenced", 2),
        Bug(instances_not_compared, "a former self is told another reason", 3),
        Bug(generations_not_compared, "who is no member of the generation is heard", 1),
        Bug(commits_taken_from_anybody, "a commit without membership is taken"),
        Bug(lower_commits_passed_over, "other offsets are shown"),
        Bug(rebalances_wait_for_ever, "no rest"),
    )
}
