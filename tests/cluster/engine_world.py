"""A simulated cluster of real engines: the faults of `world`, and clocks that are apart."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import orjson
from sim.files import Cut

from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.replica import Place
from topics.protocol.cluster.rule.steps import Offered
from topics.protocol.cluster.rule.unit import FORMAT
from topics.protocol.driver.reply import Reply
from topics.protocol.engine import Engine
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.faces.http.schedules import parse_put_schedule
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import (
    Command,
    CommitOffsets,
    JoinGroup,
    PauseSchedule,
)
from topics.protocol.model.errors import ErrorCode, Rejection, StoreError
from topics.protocol.model.events import (
    Event,
    Fired,
    GroupChanged,
    JobsLeased,
    OffsetsCommitted,
    RecordsAppended,
)
from topics.protocol.model.groups import GroupPhase, OffsetCommit
from topics.protocol.model.names import DONE
from topics.protocol.model.records import Batch, PackedBatch
from topics.store.memory import MemoryStore

from .engines import (
    HISTORY,
    LIMITS,
    RECORDS,
    START_MS,
    TOPICS,
    VEILED,
    Disk,
    EngineProcess,
    dump,
    live_of,
)
from .invariants import Violation, acknowledged_stays, can_go_on, loss_is_told, refused_is_not_there
from .process import Token
from .style import KINDS, Style
from .world import World

STEPS = 2500
CUT_SHARE = 0.3
"""Of snapshots whose taker is killed meanwhile, in front of one of the first `CALLS` to its disk."""
CALLS = 60


@dataclass(frozen=True)
class EngineStyle(Style):
    """`tick`: time passes, `put`: topics are configured anew, `delete`: records are, `group`: consumers commit and join,
    `schedule`: one is made, or paused."""

    tick: float = 3
    put: float = 0.3
    delete: float = 0.4
    claim: float = 2
    group: float = 0
    schedule: float = 0


def _of(style: Style) -> EngineStyle:
    values = {each.name: getattr(style, each.name) for each in fields(Style)}
    return replace(EngineStyle(**values), twin=style.twin / 2)


ENGINE_KINDS: dict[str, EngineStyle] = {kind: _of(style) for kind, style in KINDS.items()}
GROUPED: dict[str, EngineStyle] = {
    kind: replace(ENGINE_KINDS[kind], group=3) for kind in ("storm", "twins", "trims", "cuts")
}
"""Worlds with groups of consumers: `g` has offsets, and `h` has members."""
SCHEDULED: dict[str, EngineStyle] = {
    kind: replace(ENGINE_KINDS[kind], schedule=1) for kind in ("storm", "twins", "calm")
}
"""Worlds with a schedule, whose ticks are records of `ticks`."""


def _marks_of(batch: Batch | PackedBatch) -> list[Any]:
    """What clients of the world wrote; batches of Kafka's are not theirs."""
    if isinstance(batch, PackedBatch):
        return []
    found: list[Any] = orjson.loads(b"[" + bytes(batch.text).rstrip(b",") + b"]")
    return found


def _mark_of(record: Any) -> Any:
    """What no other record has: of a tick, which it is."""
    if not isinstance(record, dict):
        return record
    meta = record.get("meta", {})
    is_tick = "$schedule" in meta
    return (meta["$schedule"], meta["$schedule_at"]) if is_tick else record["data"]


class Reference:
    """An engine that has applied what the log has, and forgets nothing.

    Attributes:
        born: For each record of `RECORDS` by its mark, the index of the unit that appended it.
        commits: The offsets that were committed, each of which is another.
        generation: That of the members of `h`.
    """

    def __init__(self) -> None:
        self.engine = Engine(LIMITS, MemoryStore(instance_id=HISTORY.hex()))
        self.engine.resume()
        self.born: dict[int, tuple[str, int]] = {}
        self.leases: set[int] = set()
        self.commits: set[int] = set()
        self.generation = 0
        self.index = 0

    def take(self, index: int, events: list[Event]) -> None:
        self.index = index
        for event in events:
            if isinstance(event, RecordsAppended):
                topic = self.engine.state.by_id[event.topic_id]
                name = topic.name
                # Letters go from one topic to another, and what ended says so beside its queue.
                is_new = event.cause is None or isinstance(event.cause, Fired)
                for record in _marks_of(event.batch) if is_new and topic.partition != DONE else ():
                    mark = _mark_of(record)
                    if mark in self.born:
                        raise Violation(
                            "no double", f"{mark} of one idempotency key is there twice"
                        )
                    self.born[mark] = (name, index)
                if event.first_seq <= topic.head_seq:
                    raise Violation("no seq twice", f"{event.first_seq} of {name}")
            if isinstance(event, JobsLeased):
                # An extension has the lease that its job has.
                jobs = self.engine.state.queues[event.topic_id].jobs
                held = {jobs[seq].lease for seq in event.seqs if seq in jobs}
                if twice := (self.leases & set(event.leases)) - held:
                    raise Violation("no lease twice", f"{twice}")
                self.leases |= set(event.leases)
            if isinstance(event, OffsetsCommitted):
                self.commits |= {each.seq for each in event.offsets}
            if isinstance(event, GroupChanged) and event.phase is GroupPhase.COMPLETING:
                if event.generation <= self.generation:
                    raise Violation("no generation twice", f"{event.generation}")
                self.generation = event.generation
            self.engine.state.apply(event)
            for topic in self.engine.state.by_id.values():
                topic.publish(topic.head_seq)

    def live(self, name: str) -> set[int]:
        """Marks of the records that are live."""
        state = self.engine.state
        topic = state.topics.get(name)
        if topic is None:
            return set()
        self.engine.unit.expire(topic, state.now_ms)
        _, text = live_of(topic)
        return {each["data"] for each in orjson.loads(b"[" + text + b"]")}


class EngineWorld(World):
    """One life of a cluster of real engines."""

    stores: dict[str, Disk]  # type: ignore[assignment]
    processes: dict[str, EngineProcess]  # type: ignore[assignment]

    def __init__(self, seed: int, style: EngineStyle | None = None) -> None:
        self.now_ms = START_MS
        self.reference = Reference()
        self.snapshots = Counter[str]()
        self.commits = 0
        self.committed: set[int] = set()
        """Offsets whose commit was acknowledged."""
        self.given: set[tuple[str, int]] = set()
        """Seqs of records that live in a leader's memory only, by epoch."""
        kind = list(ENGINE_KINDS)[seed % len(ENGINE_KINDS)]
        super().__init__(seed, style or ENGINE_KINDS[kind])

    def run(self, steps: int = STEPS) -> "EngineWorld":
        super().run(steps)
        return self

    def empty_store(self) -> Disk:  # type: ignore[override]
        return Disk(self)

    def process(self, name: str, store: Disk) -> EngineProcess:  # type: ignore[override]
        return EngineProcess(self, name, store)

    # ------------------------------------------------------------------ what the log says

    def put(self, raw: bytes) -> int:
        offset = super().put(raw)
        moment = self.oracle.moments[-1]
        if moment.events is not None:
            self.reference.take(moment.index, moment.events)
        self.oracle.marks = set(self.reference.born)
        return offset

    def do_cut(self) -> None:
        cuts = len(self.log.cuts)
        super().do_cut()
        if len(self.log.cuts) > cuts:
            self.reference = self.reference_at(1 << 62)
            gone = self.acknowledged - set(self.reference.born)
            self.lost |= gone
            self.acknowledged -= gone
            self.committed &= self.reference.commits
            self.oracle.marks = set(self.reference.born)

    def reference_at(self, index: int) -> Reference:
        """The state behind a unit."""
        found = Reference()
        for moment in self.oracle.moments:
            if moment.events is not None and moment.index <= index:
                found.take(moment.index, moment.events)
        return found

    # ------------------------------------------------------------------ clients

    def do_ask(self) -> None:
        rng = self.rng
        process = self.pick(lambda p: not p.is_paused and (p.decides or rng.random() < 0.2))
        if process is None or process.node.state in (NodeState.JOINING, NodeState.ASIDE):
            return
        assert isinstance(process, EngineProcess)
        if rng.random() < 0.35:
            topic = rng.choice([*RECORDS, "veil"])
            process.read(topic)
            if topic in RECORDS:
                process.watch(topic)
        elif not process.decides:
            return
        elif missing := [name for name in TOPICS if name not in process.engine.state.topics]:
            self.put_topic(process, missing[0], TOPICS[missing[0]])
        elif rng.random() < 0.15 and self.unknown:
            self.add(process, self.unknown.pop(rng.randrange(len(self.unknown))), 0)  # type: ignore[arg-type]
        else:
            self.mark += 1
            self.add(process, self.mark, 0)  # type: ignore[arg-type]

    def add(self, process: Any, mark: int, topic: int, *, is_lease: bool = False) -> None:
        self.attempts[mark] = self.attempts.get(mark, 0) + 1
        # A repetition goes where the first one went.
        name = [*RECORDS, "mist"][mark % 4] if mark % 7 else "plain"
        process.add(Token("add", mark), "veil" if mark % 9 == 4 else name)

    def leader(self) -> EngineProcess | None:
        found = self.pick(lambda p: p.decides and not p.is_paused)
        return found  # type: ignore[return-value]

    def do_put(self) -> None:
        if process := self.leader():
            name = self.rng.choice([*TOPICS, "veil", "veil"])
            config = dict(TOPICS[name])
            if name == "plain" and self.rng.random() < 0.5:
                config["cap_records"] = self.rng.randint(5, 30)
            if name == "veil":
                config["durability"] = self.rng.choice(VEILED)
            self.put_topic(process, name, config)

    @staticmethod
    def put_topic(process: EngineProcess, name: str, config: dict[str, object]) -> None:
        process.ask(parse_put(name, orjson.dumps(config)), lambda found: None)

    def do_delete(self) -> None:
        if process := self.leader():
            name = self.rng.choice(RECORDS)
            topic = process.engine.state.topics.get(name)
            head = 0 if topic is None else topic.head_seq
            before = max(0, head - self.rng.randint(0, 6))
            command = parse_delete(name, orjson.dumps({"before_seq": before}))
            process.ask(command, lambda found: None)

    def do_claim(self) -> None:
        if process := self.leader():
            body = {"node": "w", "max": self.rng.randint(1, 3), "lease_ms": 2000}
            command = parse_claim("work", orjson.dumps(body), LIMITS)
            process.ask(command, lambda found: None)

    def do_group(self) -> None:
        """An offset is committed, or somebody joins, who is never heard of again."""
        process = self.leader()
        if process is None or "plain" not in process.engine.state.topics:
            return
        if process.node.format < FORMAT and self.rng.random() < 0.5:
            process.member.write_format(FORMAT)  # all nodes are upgraded by now
        self.commits += 1
        offset = self.commits
        if self.rng.random() < 0.3:
            self._submit(process, _joining(offset, self.rng.choice(("i", "j", None))))
            return

        def told(found: Any) -> None:
            if not isinstance(found, Exception) and not process.is_ghost:
                if offset not in self.reference.commits:
                    raise Violation("acknowledged is true", f"the commit of {offset} is not there")
                self.committed.add(offset)

        self._submit(process, CommitOffsets("g", [OffsetCommit("plain", offset)]), told)

    def do_schedule(self) -> None:
        """A schedule is made, or configured anew, which its ticks outlive; or rests until then."""
        if not (process := self.leader()):
            return
        if process.node.format < FORMAT and self.rng.random() < 0.5:
            process.member.write_format(FORMAT)  # all nodes are upgraded by now
        choice = self.rng.random()
        if choice < 0.8:
            missed = self.rng.choice(("all", "one"))
            record = {"data": "tick"}
            body = {"topic": "ticks", "record": record, "every_ms": 1000, "missed": missed}
            self._submit(process, parse_put_schedule("s", orjson.dumps(body), LIMITS))
        elif "s" in process.engine.state.schedules.by_name:
            self._submit(process, PauseSchedule("s"))

    @staticmethod
    def _submit(process: EngineProcess, command: Command, told: Callable[[Any], None] = id) -> None:
        is_old = process.node.format < FORMAT
        try:
            found = process.host.driver.submit(command, lambda reply: told(reply.result))
        except Rejection as refusal:
            if is_old and refusal.code is not ErrorCode.UPGRADE_PENDING:
                raise Violation("older nodes read all", f"{command}: {refusal}") from None
            return
        if is_old:
            raise Violation("older nodes read all", f"{command} is taken")
        if isinstance(found, Reply):
            told(found.result)

    def do_tick(self) -> None:
        self.now_ms += self.rng.choice((1, 20, 300, 1100))
        for process in self.processes.values():
            if not process.is_paused:
                process.guarded(process.host.ring_once)

    def do_sync(self) -> None:
        if process := self.pick(lambda p: not p.is_paused):
            process.sync()  # type: ignore[attr-defined]

    def has_read(self, process: EngineProcess, name: str, marks: set[int], index: int) -> None:
        """A read was answered, by a node that showed unit `index` when it came."""
        if process.is_ghost:
            return
        if early := marks - self.reference.born.keys():
            raise Violation("a read is accepted", f"{process} showed {sorted(early)[:5]}")
        live = self.reference.live(name)
        missing = {
            mark
            for mark in live - marks
            if self.reference.born[mark][1] <= index
        }  # fmt: skip
        if missing:
            what = f"{process} at {index} did not show {sorted(missing)[:5]} of {name}"
            raise Violation("what is live is shown", what)

    def installed(self, process: Any) -> None:
        super().installed(process)
        place = process.offered[0]
        # An empty store is the beginning of every history.
        if place.index and self.oracle.chain_at(place.index) != place.chain:
            # The log lost it after the look that proved the snapshot.
            self.haunt(process, self.log.cuts[-1])

    def was_given(self, epoch: str, seqs: list[int]) -> None:
        """Records of a topic that is in no log have these seqs."""
        given = {(epoch, seq) for seq in seqs}
        if not self.log.cuts and (twice := given & self.given):
            raise Violation("no seq twice", f"{twice}")
        self.given |= given

    # ------------------------------------------------------------------ stores

    def kill(self, process: Any, *, power: bool | None = None) -> None:
        process.store.stop()
        super().kill(process, power=power)

    def do_snapshot(self) -> None:
        process = self.pick(lambda p: p.wants_snapshot and not p.is_deaf and not p.asked)
        if process is not None:
            # A leader gives a snapshot while units are in flight.
            donor = self.pick(lambda p: p is not process and not p.is_deaf and p.may_give)  # type: ignore[attr-defined]
            is_cut = self.rng.random() < CUT_SHARE
            self.offer(process, donor, cut_at=self.rng.randint(1, CALLS) if is_cut else None)

    def offer(self, process: Any, donor: Any, cut_at: int | None = None) -> None:
        """The real thing, over simulated disks; a process that is killed meanwhile begins anew."""
        if donor is None:
            return
        try:
            is_there = process.take_of(donor, cut_at)
        except Cut:
            self.snapshots["cut"] += 1
            self.kill(process)
            return
        if is_there:
            self.snapshots["taken"] += 1
            self.snapshots["in flight"] += not donor.is_whole
            process.wants_snapshot = False
            process.hear(Offered(*process.offered[:2]))

    # ------------------------------------------------------------------ the end

    def check(self, is_acknowledged: bool) -> None:
        """As `ending.check`, of real engines."""
        acknowledged_stays(self.acknowledged, self.oracle)
        refused_is_not_there(self.refused, self.oracle)
        loss_is_told(self.untold)
        if gone := self.committed - self.reference.commits:
            raise Violation("acknowledged stays", f"commits of {sorted(gone)[:5]}")
        index = self.oracle.moments[-1].index
        for process in self.processes.values():
            if process.node.state is NodeState.ASIDE:
                continue
            process.guarded(process.host.settle)
            self.state_is_of(index, process.engine, who=repr(process))
            place, _, kept = process.store.open()
            self.place_is_of(place, who=repr(process))
            self.state_is_of(place.index, kept, who=f"the store of {process}")
        if not self.log.cuts:
            can_go_on(is_acknowledged)

    def place_is_of(self, place: Place, *, who: str) -> None:
        if self.oracle.chain_at(place.index) != place.chain:
            raise Violation("replicas agree", f"{who} has another unit {place.index}")

    def state_is_of(self, index: int, engine: Engine, *, who: str) -> None:
        """A replica at an index, and its store, has what the units up to it say and nothing else."""
        is_last = index == self.reference.index
        reference = self.reference if is_last else self.reference_at(index)
        now_ms = reference.engine.state.now_ms
        if engine.state.now_ms > now_ms:
            raise Violation(
                "time is accepted", f"{who} is at {engine.state.now_ms - now_ms} ms more"
            )
        said, found = dump(reference.engine, now_ms), dump(engine, now_ms)
        for name, about in said.items():
            if found.get(name) != about:
                what = f"{who} at {index}: {name} is {found.get(name)}, and was {about}"
                raise Violation("a state is of its index", what)


def _joining(number: int, instance: str | None) -> JoinGroup:
    return JoinGroup(
        group="h",
        member_id="",
        new_member_id=f"m{number}",
        instance_id=instance,
        client_id="c",
        client_host="/h",
        session_ms=6000,
        rebalance_ms=1000,
        protocol_type="consumer",
        protocols=(("range", b"all"),),
    )


def told_engine_world(
    seed: int, style: EngineStyle | None = None, steps: int = STEPS
) -> EngineWorld:
    """Live this world.  Raises Violation, with the seed that lives it again."""
    world = EngineWorld(seed, style)
    try:
        return world.run(steps)
    except Violation as violation:
        violation.args = (f"seed={seed} kind={world.kind} {violation}",)
        raise
    except StoreError as why:
        raise Violation("a store opens", f"seed={seed} kind={world.kind} {why}") from why
    except AssertionError as why:
        raise Violation("asserted", f"seed={seed} kind={world.kind} {why!r}") from why
