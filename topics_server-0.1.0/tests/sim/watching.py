"""Clients that watch (§7): streams of sessions, what each is sent, and that none is forgotten.

Owns the clients' end: what a client remembers of each topic, and the check of every frame against the
model.  Refuses to know when a stream is pulled.  Invariant: what a stream was not sent by the time its
server rests is nothing.
"""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from topics.protocol.model.commands import Begin, CreateWatch, View
from topics.protocol.model.errors import Rejection
from topics.protocol.model.outcomes import Parked
from topics.protocol.model.tags import parse_match
from topics.protocol.state.frames import (
    CaughtUpFrame,
    DamagedFrame,
    DeletedFrame,
    Pulled,
    RecordFrame,
    TombstoneFrame,
)
from topics.protocol.state.watched import Stream
from topics.protocol.state.watches import Session

from .invariants import (
    check,
    i6_what_is_deleted_stays_deleted,
    i14_times_do_not_fall,
    i28_nobody_reads_its_own,
)
from .model import Topic, tag_matches
from .process import payload, texts_of
from .reading import split_texts

if TYPE_CHECKING:
    from .world import World

WATCHERS = 2


@dataclass(eq=False)
class Watcher:
    """One client, and what it remembers.

    Attributes:
        positions: By topic: the seq through which it was sent everything, and the instance.
        news: There may be a frame for its open stream.
        ended: Topics of which it was told that they are deleted.
    """

    wid: str
    match: str | None
    nodes: tuple[str, ...]
    limit: int
    positions: dict[str, tuple[str, int]] = field(default_factory=dict)
    session: Session | None = None
    stream: Stream | None = None
    news: bool = False
    ended: set[str] = field(default_factory=set)

    def woken(self) -> None:
        self.news = True


class Watching:
    """All watching clients of one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = random.Random(f"watching {world.seed}")
        self._made = 0
        self.watchers: list[Watcher] = []

    def end(self) -> None:
        """The process has ended, with every session; clients keep what they know."""
        for watcher in self.watchers:
            watcher.session = watcher.stream = None
            watcher.ended.clear()

    def step(self) -> None:
        """One thing that one client does: begin, read a few frames, leave, or come back."""
        rng = self._rng
        if len(self.watchers) < WATCHERS:
            self._begin()
            return
        watcher = rng.choice(self.watchers)
        kind = rng.random()
        if watcher.stream is None:
            self._connect(watcher)
        elif kind < 0.8:
            self.pull(watcher, rng.choice((1, 3, 100)))
        elif kind < 0.95:
            self._leave(watcher)
        else:
            self._leave(watcher)
            self.watchers.remove(watcher)

    def _begin(self) -> None:
        rng = self._rng
        self._made += 1
        match, nodes = rng.choice((None, None, "x*")), rng.choice(((), (), ("n1",)))
        watcher = Watcher(f"w{self._made}", match, nodes, rng.choice((1, 3, 256)))
        self.watchers.append(watcher)
        self._connect(watcher)

    # -- connections ---------------------------------------------------------------------------

    def _connect(self, watcher: Watcher) -> None:
        """Open a stream: on the session, from what the client has, or on a new one."""
        world = self._world
        engine = world.process.engine
        if watcher.session is None and not self._create(watcher):
            return
        assert watcher.session is not None
        now_ms = world.process.now_ms
        session, stream = engine.watch_commands.open_stream(
            watcher.wid, None, watcher.woken, now_ms
        )
        check(session is watcher.session, "I33", f"another session for {watcher}")
        watcher.stream, watcher.news = stream, True
        watcher.ended.clear()

    def _create(self, watcher: Watcher) -> bool:
        """§7.2: with the positions that the client remembers; False where it is refused."""
        world, rng = self._world, self._rng
        names = [name for name in world.style.names if name in world.model.topics]
        if not names:
            return False
        self._made += 1
        watcher.wid = f"w{self._made}"
        begins = {name: self._begin_in(watcher, name) for name in names}
        view = View(
            watcher.limit,
            rng.choice((1 << 18, 400)),
            watcher.nodes,
            None if watcher.match is None else parse_match(watcher.match),
        )
        command = CreateWatch(
            wid=watcher.wid,
            topics=begins,
            view=view,
            heartbeat_ms=15_000,
            lenient=False,
            cursors={},
        )
        world.pay(command)
        try:
            outcome = world.process.submit(command, lambda _: None)
        except Rejection as refusal:
            check(False, "C2", f"{refusal} {command}")
        assert not isinstance(outcome, Parked)
        answer = orjson.loads(payload(outcome)[0])
        check(answer["wid"] == watcher.wid, "C1", answer)
        watcher.positions.clear()
        for name, begin in begins.items():
            told = answer["topics"][name]
            at = told["head_seq"] if begin.tail else begin.from_seq
            check(told["from_seq"] == at, "I12", f"{begin}: {told}")
            watcher.positions[name] = world.model.topics[name].epoch, at
        watcher.session = world.process.engine.watches.sessions[watcher.wid]
        return True

    def _begin_in(self, watcher: Watcher, name: str) -> Begin:
        epoch, seq = watcher.positions.get(name, ("", 0))
        if epoch == self._world.model.topics[name].epoch:
            return Begin(from_seq=seq)
        return Begin(tail=True) if self._rng.random() < 0.3 else Begin()

    def _leave(self, watcher: Watcher) -> None:
        if watcher.session is not None and watcher.stream is not None:
            world = self._world
            watches = world.process.engine.watches
            now_ms = world.process.engine.state.now_ms
            watches.close_session_stream(watcher.session, watcher.stream, now_ms)
        watcher.stream, watcher.news = None, False

    # -- frames --------------------------------------------------------------------------------

    def pull(self, watcher: Watcher, most: int) -> None:
        """Take up to so many frames of an open stream."""
        world = self._world
        while watcher.news and watcher.stream is not None and most > 0:
            # What a client is shown is what time has left by now.
            world.model.pass_time(world.process.now_ms)
            watcher.news = False
            frame = world.process.engine.watch_commands.next_frame(
                watcher.stream, world.process.now_ms
            )
            if frame is not None:
                self._take(watcher, frame)
                watcher.news = True
                most -= 1

    def _take(self, watcher: Watcher, frame: Pulled) -> None:
        world, name = self._world, frame.topic
        assert not isinstance(frame, DamagedFrame), frame
        check(name not in watcher.ended, "I29", f"after its end: {frame}")
        topic = world.model.topics.get(name)
        epoch, at = watcher.positions[name]
        if isinstance(frame, DeletedFrame):
            check(topic is None or topic.epoch != epoch, "I29", f"{name} is there: {frame}")
            watcher.ended.add(name)
            return
        if isinstance(frame, CaughtUpFrame) and (topic is None or topic.epoch != epoch):
            return  # it was chosen before the delete, which comes next
        check(topic is not None, "I29", f"{name} is deleted: {frame}")
        assert topic is not None
        what = f"{name} at {at}: {type(frame).__name__}"
        match frame:
            case TombstoneFrame():
                self._lost(watcher, topic, frame, what)
            case CaughtUpFrame():
                shown = world.traffic.shown_head(name)
                told = epoch == topic.epoch and at <= frame.head_seq <= shown
                left = self._left(watcher, topic, at, frame.head_seq)
                check(
                    told and not left, "I11", f"{what} {frame} shown {shown}: {left[:3]} not sent"
                )
                watcher.positions[name] = epoch, frame.head_seq
            case RecordFrame():
                self._got(watcher, topic, frame, what)
        world.clients.saw_head(*watcher.positions[name])

    def _lost(self, watcher: Watcher, topic: Topic, frame: TombstoneFrame, what: str) -> None:
        """§3.3: the floor, a hole, or another instance under the name."""
        epoch, at = watcher.positions[topic.name]
        head_seq, stone = self._world.traffic.shown_head(topic.name), frame.stone
        what += f" {stone}, floor {topic.evict_floor}, holes {topic.holes}"
        if stone.reason == "recreated":
            check(epoch != topic.epoch or at > head_seq, "I29", what)
            watcher.positions[topic.name] = topic.epoch, topic.earliest(head_seq) - 1
            return
        check(epoch == topic.epoch, "I29", what)
        left = self._left(watcher, topic, at, stone.gap_from - 1)
        check(at < stone.gap_from and not left, "I9", f"{what}, {left[:3]} not sent")
        at = stone.gap_from - 1  # it may have passed by records that the client does not want
        if at + 1 < topic.floor(head_seq):
            check(stone.gap_to == topic.earliest(head_seq) - 1, "I9", what)
        else:
            ends = [last for first, last in topic.holes if last > at]
            check(bool(ends) and stone.gap_to == ends[0], "I9", what)
        watcher.positions[topic.name] = epoch, stone.gap_to

    def _got(self, watcher: Watcher, topic: Topic, frame: RecordFrame, what: str) -> None:
        epoch, at = watcher.positions[topic.name]
        texts = split_texts(b",".join(bytes(text) for text in texts_of(frame.records)))
        records = [orjson.loads(text) for text in texts]
        seqs = [record["$seq"] for record in records]
        what += f" ({frame.from_seq}, {frame.to_seq}] {seqs[:9]}"
        check(epoch == topic.epoch, "I29", what)
        check(at <= frame.from_seq < frame.to_seq, "I12", what)
        check(len(seqs) <= watcher.limit, "I11", what)
        wanted = self._left(watcher, topic, at, frame.to_seq)
        check(seqs == wanted, "I11", f"{what}, expected {wanted[:9]}")
        expected = [topic.records[seq].text() for seq in seqs]
        check(texts == expected, "I4", f"other bytes: {what}")
        i14_times_do_not_fall(topic.name, texts)
        i28_nobody_reads_its_own(watcher.nodes if topic.config.dedupe_node else (), records)
        gone = self._world.clients.gone.get(epoch, {})
        i6_what_is_deleted_stays_deleted(epoch, seqs, gone)
        check(not any(at < h[1] and h[0] <= frame.to_seq for h in topic.holes), "I9", what)
        watcher.positions[topic.name] = epoch, frame.to_seq

    def _left(self, watcher: Watcher, topic: Topic, after: int, through: int) -> list[int]:
        """Live seqs in (after, through] that the client wants."""
        skips = watcher.nodes if topic.config.dedupe_node else ()
        return [
            seq
            for seq, record in topic.records.items()
            if after < seq <= through
            and record.entry.node not in skips
            and (watcher.match is None or tag_matches(watcher.match, record.entry.tag))
        ]

    def check_rest(self) -> None:
        """A stream that was not woken has been sent all that its topics show. (§7.6)"""
        for watcher in self.watchers:
            if watcher.stream is None or watcher.news:
                continue
            for name, (epoch, at) in watcher.positions.items():
                topic = self._world.model.topics.get(name)
                what = f"{name} after {at} of {epoch}: {watcher.wid} was not woken"
                if name in watcher.ended:
                    continue
                check(topic is not None and topic.epoch == epoch, "I33", what)
                assert topic is not None
                left = self._left(watcher, topic, at, self._world.traffic.shown_head(name))
                check(not left, "I33", f"{what} for {left[:3]}")
