"""The real engine in the simulated cluster: a driver over a store on simulated files, and what is on
its way.

It is a host of `topics.protocol.cluster`, and to the world what the small engine of `process` is.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import orjson
from protocol.harness import shown
from sim.files import SimFiles

from topics.backup.proof import Living
from topics.backup.replica import replicate
from topics.protocol.cluster.acceptance import UnitAcceptance
from topics.protocol.cluster.formats import JOBS
from topics.protocol.cluster.member import LogEffect, Member
from topics.protocol.cluster.place import place_of
from topics.protocol.cluster.rule.leading import Node
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.steps import (
    Apply,
    AskEnd,
    ClientReply,
    Halt,
    HistoryLost,
    Input,
    Install,
    Prove,
    ReadOn,
    Send,
    TakeSnapshot,
)
from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.driver.group_commit import Sync, Write
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.driver.reply import Reply as DriverReply
from topics.protocol.driver.reply import Ticket
from topics.protocol.engine import Engine
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.model.commands import Begin, Command, View
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome
from topics.protocol.state.frames import CaughtUpFrame, RecordFrame
from topics.protocol.state.topic import Topic
from topics.store.store import DiskStore

from .invariants import Violation
from .memory_log import Reader
from .process import WHOLE, Token

if TYPE_CHECKING:
    from .engine_world import EngineWorld

START_MS = 1_750_000_000_000
MESSAGE_BYTES = 600
"""So small that some turns take parts."""
LIMITS = Limits(wal_file_bytes=1 << 20, reserve_bytes=64 << 10)
TOPICS: dict[str, dict[str, object]] = {
    "plain": {},
    "short": {"ttl_ms": 3000},
    "work": {"type": "queue"},
    "mist": {"durability": "ephemeral"},
    "veil": {"durability": "ephemeral"},
}
VEILED = ("ephemeral", "disk", "fsync")
"""What class `veil` is of changes."""
RECORDS = ("plain", "short", "work")
"""Topics of which every replica has every record."""
HISTORY = b"h" * 8


def new_store(files: SimFiles) -> DiskStore:
    return DiskStore(files, history=HISTORY, wal_file_bytes=1 << 20, reserve_bytes=64 << 10)


class Disk:
    """A data directory."""

    def __init__(self, world: "EngineWorld") -> None:
        self.world = world
        self.files = SimFiles()
        self.copies = SimFiles()
        """Of another node's store, as far as they came."""
        self.durable_mark = self.written_mark = Mark(Place.before_all(world.shard))

    @property
    def durable(self) -> Place:
        """The place of its mark, as far as it is synced."""
        return self.durable_mark.place

    def open(self) -> tuple[Place, Mark, Engine]:
        """What is there, opened in a copy."""
        host = EngineHost(new_store(self.files.kill()), lambda: START_MS)
        host.driver.recover()
        engine = host.driver.engine
        return (*place_of(engine.state.place, self.world.shard), engine)

    def crash(self) -> None:
        """The power goes."""
        self.files = self.files.cut(self.world.rng)
        self.copies = self.copies.cut(Random(len(self.copies.log)))

    def stop(self) -> None:
        """The process goes."""
        self.files = self.files.kill()
        self.copies = self.copies.kill()


class EngineHost(InlineHost):
    """A driver's host whose time is the engine's."""

    def __init__(self, store: DiskStore, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.wrote: Callable[[], None] = lambda: None
        self.synced: Callable[[], None] = lambda: None
        self.failed: Callable[[], None] = lambda: None
        self.acceptance = UnitAcceptance(self)
        super().__init__(LIMITS, store, clock(), acceptance=self.acceptance)
        self.acceptance.attach(self.driver)
        # A world's clock stands still for most steps.
        self.acceptance.turns.turn_every_ms = 0

    @property
    def clock_ms(self) -> int:
        return self._clock()

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return self.acceptance.engine_ms

    @now_ms.setter
    def now_ms(self, _: int) -> None:
        """Engine time is of accepted events."""

    @property
    def steady_ms(self) -> int:
        return self._clock()

    def not_before(self, seen_ms: int) -> None:
        """Nor does it follow a log that was found."""

    def write_log(self, step: Write) -> None:
        self.wrote()
        super().write_log(step)

    def sync_log(self, step: Sync) -> None:
        super().sync_log(step)
        self.synced()

    def on_failed(self, error: Exception) -> None:
        self.failed()

    def on_broken_answer(self, error: Exception) -> None:
        raise error

    @property
    def is_due(self) -> bool:
        return self._is_turn_due or self._is_work_due

    def ring_once(self) -> None:
        at_ms = self.driver.alarm_ms()
        if at_ms is not None and at_ms <= self.steady_ms:
            self.driver.ring()


class EngineProcess:
    """From a start to a kill.  Implements `MemberHost`; attributes as `process.Process`."""

    def __init__(self, world: "EngineWorld", name: str, store: Disk) -> None:
        self.world, self.name, self.store = world, name, store
        self.reader: Reader | None = None
        self.outbox: deque[Send] = deque()
        self.began = b""
        self.sent: dict[tuple[bytes, int], bytes] = {}
        self.reports: deque[Input] = deque()
        self.asked: deque[Prove | AskEnd] = deque()
        self.wants_snapshot = False
        self.is_paused = self.is_cut_off = self.is_slow = self.is_ghost = False
        self.haunted_from = 0
        self.has_met_loss = False
        self.offered: tuple[Place, Mark, SimFiles] | None = None
        self.skew_ms = world.rng.randint(-900, 900)
        self.host: EngineHost
        self.member = Member(world.shard, name, self, message_bytes_max=MESSAGE_BYTES)
        self._apply, member = self.member._apply, self.member
        member._apply = self.apply  # type: ignore[method-assign]
        self.reopen()

    def __repr__(self) -> str:
        return f"{self.name}/{self.member.state}"

    @property
    def node(self) -> Node:
        assert self.member.node is not None
        return self.member.node

    @property
    def durable(self) -> tuple[int, int]:
        """What the real engine says of its disk: offset and epoch of its mark."""
        durable = self.host.acceptance.turns.durable
        return durable.offset, durable.epoch

    @property
    def is_deaf(self) -> bool:
        return self.is_paused or self.is_cut_off

    @property
    def decides(self) -> bool:
        return self.member.leads

    @property
    def engine(self) -> Engine:
        return self.host.driver.engine

    @property
    def turn(self) -> bool:
        """Whether the host was asked to end a turn, or to do work."""
        return self.host.is_due

    @property
    def is_whole(self) -> bool:
        """Whether the store holds what is accepted and nothing else."""
        is_written, turns = self.host.driver.commit.is_written, self.host.acceptance.turns
        is_settled = self.member.is_settled and turns.is_settled and is_written
        return is_settled and self.node.state in WHOLE

    def guarded(self, call: Callable[[], None]) -> None:
        """A unit that cannot be applied breaks an invariant, and not the test."""
        try:
            call()
        except StateUnknown as error:
            raise Violation("a unit applies", f"{self}: {error}") from error

    def hear(self, event: Input) -> None:
        self.guarded(lambda: self.member.hear(event))

    def apply(self, effect: Apply) -> None:
        self.world.applied(self, effect.place)  # type: ignore[arg-type]
        self._apply(effect)

    # ------------------------------------------------------------------ clients

    def ask(self, command: Command, answered: Callable[[Any], None]) -> None:
        """Submit a command; `answered` gets the JSON of its answer, or why there is none."""

        def deliver(reply: DriverReply) -> None:
            result = reply.result
            answered(shown(result) if isinstance(result, Outcome) else result)

        try:
            found = self.host.driver.submit(command, deliver)
        except Rejection as refusal:
            answered(refusal)
        else:
            if not isinstance(found, Ticket):
                deliver(found)

    def add(self, token: Token, topic: str) -> None:
        record: dict[str, object] = {"data": token.mark}
        if topic == "work" and self.node.format >= JOBS:
            record |= _options(token.mark)
        body = orjson.dumps({"records": [record], "idempotency_key": f"k{token.mark}"})
        command = parse_append(topic, body, LIMITS, return_seqs=True, header_key=None)
        self.ask(command, lambda found: self.tell(token, topic, found))

    def tell(self, token: Token, topic: str, found: Any) -> None:
        if topic not in RECORDS:
            if not isinstance(found, Exception):
                epoch = self.engine.state.topics[topic].epoch
                self.world.was_given(epoch, found["seqs"])
            return
        if not isinstance(found, Exception):
            self.world.answered(self, token, ClientReply.ACCEPTED)  # type: ignore[arg-type]
            return
        assert isinstance(found, Rejection), found
        if found.code is ErrorCode.NOT_LEADER:
            is_unknown = (found.detail or {})["outcome"] == "unknown"
            reply = ClientReply.UNKNOWN if is_unknown else ClientReply.NOT_APPLIED
            self.world.answered(self, token, reply)  # type: ignore[arg-type]

    def read(self, topic: str) -> None:
        index = self.host.acceptance.turns.shown_index
        command = parse_diff(topic, b'{"from_seq":0,"limit":1000}', LIMITS)
        if topic not in RECORDS:
            index = 0  # a page ends before what was lost, so that not all need be on it
        was_logged = self.is_logged(topic)

        def answered(page: Any) -> None:
            if not isinstance(page, Exception) and was_logged and self.is_logged(topic):
                marks = {record["data"] for record in page["records"]}
                self.world.has_read(self, topic, marks, index)

        self.ask(command, answered)

    def watch(self, topic: str) -> None:
        """Pull what a stream from the topic's beginning gets now."""
        driver = self.host.driver
        if not self.host.acceptance.is_shown:
            return
        index, now_ms = self.host.acceptance.turns.shown_index, self.host.now_ms
        commands = driver.engine.watch_commands
        stream = commands.open_socket(lambda: None)
        marks: set[int] = set()
        has_all = False
        try:
            commands.subscribe(stream, {topic: Begin()}, View(1000, 1 << 20), now_ms)
            while (frame := commands.next_frame(stream, now_ms)) is not None:
                has_all = isinstance(frame, CaughtUpFrame)
                if isinstance(frame, RecordFrame):
                    text = b",".join(
                        bytes(piece).rstrip(b",")
                        for run, spans in frame.records.extents
                        for piece in (run.read(spans) or run.read_blocking(spans))
                    )
                    marks |= {record["data"] for record in orjson.loads(b"[%b]" % text)}
        except Rejection:
            pass  # no such topic
        finally:
            commands.watches.close_socket(stream)
        self.world.has_read(self, topic, marks, index if has_all else 0)

    def is_logged(self, name: str) -> bool:
        topic = self.engine.state.topics.get(name)
        return topic is not None and topic.durability.is_logged

    def end_turn(self) -> None:
        self.guarded(self.host.settle)

    # ------------------------------------------------------------------ MemberHost

    def carry(self, effect: LogEffect) -> None:
        self.world.note(f"{self.name} {type(effect).__name__}")
        match effect:
            case ReadOn(from_offset):
                self.reader = self.world.log.reader(from_offset)
            case Prove() | AskEnd():
                self.asked.append(effect)
            case Send():
                self.outbox.append(effect)
                if not self.node._in_flight.has(effect.ticket):
                    self.began = effect.raw
            case TakeSnapshot():
                self.wants_snapshot, self.reader = True, None
            case Install(place):
                assert self.offered is not None
                assert self.offered[0] == place
                self.host.store.close(None)
                self.store.files = self.offered[2]
                self.wants_snapshot = self.is_ghost = self.has_met_loss = False
                self.world.installed(self)  # type: ignore[arg-type]
                self.store.durable_mark = self.offered[1]
                self.reopen()
            case HistoryLost():
                self.world.told(self)  # type: ignore[arg-type]
            case Halt(why):
                raise AssertionError(why)

    def reopen(self) -> None:
        if self.member.node is not None:
            self.host.store.close(None)
            self.store.files = self.store.files.kill()
        host = EngineHost(new_store(self.store.files), lambda: self.world.now_ms + self.skew_ms)
        self.host = host
        host.driver.recover()
        host.wrote, host.synced, host.failed = self._wrote, self._synced, self.member.failed
        self._wrote()
        self._synced()
        self.member.opened(host.acceptance)

    def log(self, level: str, what: str) -> None:
        self.world.note(f"{self.name} {level} {what}")

    def _wrote(self) -> None:
        _, mark = place_of(self.engine.state.place, self.world.shard)
        self.store.written_mark = mark

    def _synced(self) -> None:
        self.store.durable_mark = self.store.written_mark

    def was_promised(self, first: int) -> bool:
        flights = self.node._in_flight.flights
        return any(at >= first for flight in flights for at in flight.offsets.values())

    # ------------------------------------------------------------------ the store

    def sync(self) -> None:
        self.host.driver.commit.want_sync()

    def checkpoint(self) -> None:
        driver = self.host.driver
        if (
            driver.maintenance.is_idle
            and self.member.acceptance is not None
            and self.member.acceptance.driver is driver
        ):
            driver.maintenance.round(lambda error: None, checkpoint=True)

    @property
    def may_give(self) -> bool:
        """Whether another node may copy its store, whatever is in flight here."""
        return self.node.state in WHOLE

    def take_of(self, donor: "EngineProcess", cut_at: int | None) -> bool:
        """Bring the donor's store here, as it is on its disk now; False: it has no data.

        Args:
            cut_at: The call to this node's disk that never returns.

        Raises:
            Cut: This process was killed there.
        """
        target = SimFiles()
        target.cut_at = cut_at
        self.store.copies.cut_at = None if cut_at is None else self.store.copies.calls + cut_at
        living = self.replicate(donor, target)
        if living.place is None:
            return False
        place, mark = place_of(living.place, self.world.shard)
        self.store.copies = SimFiles()
        self.offered = place, mark, target.kill()
        return True

    def replicate(self, donor: "EngineProcess", target: SimFiles) -> Living:
        files, copies = donor.store.files, self.store.copies
        return replicate(
            files,
            copies,
            target,
            HISTORY,
            link=lambda copy, name: False,
            progress=lambda size: None,
        )


def live_of(topic: Topic) -> tuple[list[int], bytes]:
    """Seqs and text of the live records."""
    live = [int(seq) for seqs in topic.live_seqs(before_seq=1 << 62) for seq in seqs]
    if not live:
        return [], b""
    extents = topic.runs.extents_of(live)
    pieces = [run.read(spans) or run.read_blocking(spans) for run, spans in extents]
    return live, b",".join(bytes(each) for piece in pieces for each in piece)


def _options(mark: int) -> dict[str, object]:
    """What a job asks for: of some nothing, of others all that does not end it."""
    found: dict[str, object] = {"priority": mark % 5 - 2} if mark % 2 else {}
    if mark % 3 == 0:
        found["delay_ms"] = 300 * (mark % 4)
    if mark % 4 < 2:
        found["group"] = f"g{mark % 3}"
    return found


def dump(engine: Engine, now_ms: int) -> dict[str, object]:
    """All that is true of the topics that every replica has, once time has passed."""
    engine.let_pass(now_ms)
    state = engine.state
    found: dict[str, object] = {"now": state.now_ms}
    for name, topic in sorted(state.topics.items()):
        about: dict[str, object] = {"epoch": topic.epoch, "id": topic.topic_id}
        if name in RECORDS:
            engine.unit.expire(topic, state.now_ms)
            seqs, text = live_of(topic)
            about |= {"head": topic.head_seq, "live": seqs, "floor": topic.floors.evict_floor}
            about["text"] = text
            queue = state.queues.get(topic.topic_id)
            if queue is not None:
                queue.settle(state.now_ms)
                about["jobs"] = sorted(
                    (seq, job.lease, job.deliveries) for seq, job in queue.jobs.items() if job.lease
                )
        elif topic.durability.is_logged:
            seqs, text = live_of(topic)
            about |= {"head": topic.head_seq, "live": seqs, "text": text}
            about |= {"count": topic.count, "lost": lost_of(topic)}
        found[name] = about
    for name, group in sorted(state.groups.by_name.items()):
        if not group.is_expired(now_ms):
            found[f"group {name}"] = group.image()
    return found


def lost_of(topic: Topic) -> list[tuple[int, int]]:
    """The spans of seqs that are told as lost, by a floor or a hole, ascending and apart."""
    spans = [(1, topic.floors.evict_floor - 1)]
    spans += [(hole.first_seq, hole.last_seq) for hole in topic.holes]
    apart: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if last < first:
            continue
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = apart[-1][0], max(last, apart[-1][1])
        else:
            apart.append((first, last))
    return apart
