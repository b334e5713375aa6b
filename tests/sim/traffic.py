"""What clients request and what they learn: random commands, and responses checked against the
model.

Owns the clients' memory (what was acknowledged, what was ever seen) and the check of each answer.
Refuses to know what the disk does.  Invariant: the model is changed exactly when the engine was.
"""

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from topics.protocol.driver.throttle import SOFT
from topics.protocol.model.commands import (
    Ack,
    Append,
    Claim,
    Command,
    DeleteRecords,
    DeleteRouter,
    DeleteTopic,
    Diff,
    Extend,
    GetRouter,
    GetTopic,
    Nack,
    Purge,
    PutRouter,
    PutTopic,
)
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome, Parked
from topics.protocol.model.tags import parse_match, parse_subject
from topics.protocol.state.hot_run import strings_bytes

from .invariants import (
    Violation,
    check,
    f11_only_a_failed_read_fails,
    i3_a_batch_is_whole,
    i6_what_is_deleted_stays_deleted,
    i15_nothing_that_matches_is_left,
    i16_a_key_stands_for_a_batch_of_its_own,
    i17_what_is_refused_takes_nothing,
    i21_what_is_skipped_stays,
)
from .model import Entry, Refused, Topic
from .process import Told, payload
from .reading import Ask, Page, check_page, split_texts
from .routing import delete_router, get_router, put_router
from .space import check_erased
from .waiting import Claimer

if TYPE_CHECKING:
    from .world import World

NAMES = ("a", "b", "c")
WIDE = tuple("abcdefghijkl")
NODES = ("n1", "n2")
CLASSES = ("fsync", "disk", "ephemeral", "memory")
DEAD = "c"
ROUTERS = ("r1", "r2", "r3")
TAGS = ("x", "x.1", "x.2", "y.1", "y.1.z", "long" * 40)
HEADER_BYTES = 88
SIZES = (0, 15, 100, 495, 512 - HEADER_BYTES, 4080)
LARGE = 64 << 10
MOST_BESIDE_DATA = 400
"""Bytes in memory that a record has beside `data`, `meta`, tag and node, at most."""
ANSWERS: dict[type, str] = {
    Append: "I3",
    DeleteRecords: "I15",
    Purge: "I15",
    Ack: "I21",
    Nack: "I21",
    Extend: "I21",
    GetRouter: "I25",
    PutTopic: "I30",
    PutRouter: "I30",
    DeleteTopic: "I29",
}
"""The invariant that an answer breaks where it differs from the model's."""


@dataclass(frozen=True)
class Style:
    """What kind of a world this is; small bounds, so that everything happens often.

    Attributes:
        sizes: Bytes of payload; often one for all, because equal records hide the least.
        queues: Which of the names are queues; the last name takes their dead letters.
        cold: How often sealed text has to be waited for.
        held: How often the log has to be waited for, while others are decided.
        full: The disk fills, and has room again.
        routed: Routers come and go between any two of the names.
        harsh: A power loss may leave garbage, and keep any subset of what was done to names.
        faults: How often a step lets a call to come fail.
        in_a_row: How many calls fail then, one of these.
        evicts: How often the kernel has dropped its clean pages by the next start, after a kill.
        exported: An exporter follows the topics.
        hot_bytes: Memory for records that are in no segment.
        spoiled: How often a read meets segments that fail, come short or have another bit.
        reconfigured: How often a command is another config for its topic, beside other reasons.
        looks: How many runs a turn looks at for a filter or a delete, where those are few; then others
            have their turns before a command that looks at more is answered.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    caps: tuple[int, ...]
    ttls_ms: tuple[int, ...]
    segment_max_records: int
    checkpoint_bytes: int
    harsh: bool
    faults: float = 0.0
    discards: tuple[str, ...] = ("old", "old", "old", "reject")
    queues: tuple[str, ...] = ()
    cold: float = 0.0
    held: float = 0.0
    routed: bool = True
    full: bool = False
    in_a_row: tuple[int, ...] = (1, 1, 2, 3)
    evicts: float = 0.3
    reconfigured: float = 0.0
    exported: bool = False
    hot_bytes: int = 256 << 20
    spoiled: float = 0.0
    looks: int | None = None

    @staticmethod
    def working(rng: random.Random) -> "Style":
        """Queues among the topics, and one topic for their dead letters."""
        classes = rng.choice([("fsync",), ("disk",), ("disk", "fsync"), CLASSES])
        # Where a dead letter may be refused its text is at hand, so that it is refused at once.
        cold = rng.choice((0.0, 0.5))
        return Style(
            names=NAMES,
            classes=classes,
            sizes=(rng.choice(SIZES),),
            caps=rng.choice([(0,), (0,), (0, 2, 3)]) if not cold else (0,),
            ttls_ms=rng.choice([(0,), (0,), (0, 500)]),
            segment_max_records=rng.choice((8, 16, 64)),
            checkpoint_bytes=rng.choice((4 << 10, 16 << 10, 64 << 10)),
            harsh=rng.random() < 0.3,
            faults=rng.choice((0.0, 0.0, 0.02)),
            discards=("old", "old", "reject") if not cold else ("old",),
            queues=rng.choice([("a",), ("a", "b")]),
            cold=cold,
            routed=rng.random() < 0.5,
        )

    @staticmethod
    def wide(rng: random.Random) -> "Style":
        """Many topics, most of them small: they share segments, turns and checkpoints."""
        return Style(
            names=WIDE,
            classes=rng.choice([("disk", "fsync"), CLASSES]),
            sizes=(0, 15, 100),
            caps=rng.choice([(0,), (0, 1, 3)]),
            ttls_ms=rng.choice([(0,), (0, 500)]),
            segment_max_records=rng.choice((8, 16, 64)),
            checkpoint_bytes=rng.choice((4 << 10, 16 << 10)),
            harsh=rng.random() < 0.3,
            faults=rng.choice((0.0, 0.02)),
            **rng.choice(({}, {"queues": ("a",)}, {"full": True, "routed": False})),
        )

    @staticmethod
    def tight(rng: random.Random) -> "Style":
        """Memory for a few records, some of them in memory only; and segments that fail to be read."""
        style = Style.drawn(rng)
        return dataclasses.replace(
            style,
            classes=rng.choice([("ephemeral",), ("disk", "ephemeral"), CLASSES]),
            sizes=(rng.choice((15, 100, 495)),),
            hot_bytes=rng.choice((3000, 8000, 20_000)),
            spoiled=rng.choice((0.0, 0.3)),
            segment_max_records=8,
        )

    @staticmethod
    def exporting(rng: random.Random) -> "Style":
        """Topics that an exporter follows; their records are in the log, where it reads them."""
        classes = rng.choice([("fsync",), ("disk",), ("memory", "disk", "fsync")])
        style = dataclasses.replace(Style.drawn(rng), classes=classes, exported=True)
        return dataclasses.replace(style, sizes=(rng.choice(SIZES),))

    @staticmethod
    def scanning(rng: random.Random) -> "Style":
        """Topics of many short runs, of which a turn looks at few."""
        return dataclasses.replace(
            Style.drawn(rng),
            names=NAMES[: rng.choice((1, 1, 2))],
            sizes=(0, 15),
            caps=rng.choice([(0,), (0, 0, 20)]),
            ttls_ms=rng.choice([(0,), (0, 500)]),
            segment_max_records=2,
            routed=False,
            faults=0.0,
            looks=rng.choice((1, 2)),
        )

    @staticmethod
    def drawn(rng: random.Random) -> "Style":
        size = rng.choice(SIZES)
        return Style(
            names=NAMES[: rng.choice((1, 2, 3))],
            classes=rng.choice([("fsync",), ("disk",), ("disk", "fsync"), CLASSES]),
            sizes=rng.choice([(size,), (size,), SIZES, (*SIZES, LARGE)]),
            caps=rng.choice([(0,), (0, 1, 2, 3), (0, 0, 20)]),
            ttls_ms=rng.choice([(0,), (0,), (0, 50, 500)]),
            segment_max_records=rng.choice((8, 16, 64)),
            checkpoint_bytes=rng.choice((4 << 10, 16 << 10, 64 << 10)),
            harsh=rng.random() < 0.3,
            faults=rng.choice((0.0, 0.0, 0.02)),
        )

    @property
    def limits(self) -> Limits:
        return Limits(
            segment_max_records=self.segment_max_records,
            segment_max_age_ms=30_000,
            wal_file_bytes=self.checkpoint_bytes,
            max_hot_bytes=self.hot_bytes,
        )


@dataclass
class Clients:
    """Everything that clients were sent.

    Attributes:
        seen: Epoch -> greatest seq; `texts`: (epoch, seq) -> the record's bytes.
        leases: Every lease number that was ever given.
        acked: Epoch -> greatest seq whose append was acknowledged in this process.
        gone: Epoch -> seq whose delete was answered -> the write that has it.
        inner: Epoch -> seqs of batches but for the last of each.
        keyed: (epoch, idempotency key) -> first seqs of the batches that were appended with it.
        configs: Epoch -> the last config that was acknowledged, and those put since.
        configured: Epochs of which one was acknowledged, or found by a start.
    """

    seen: dict[str, int] = field(default_factory=dict)
    texts: dict[tuple[str, int], bytes] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    floors: dict[str, tuple[int, int]] = field(default_factory=dict)
    leases: set[int] = field(default_factory=set)
    gone: dict[str, dict[int, int]] = field(default_factory=dict)
    inner: dict[str, set[int]] = field(default_factory=dict)
    keyed: dict[tuple[str, bytes], set[int]] = field(default_factory=dict)
    configs: dict[str, list[TopicConfig]] = field(default_factory=dict)
    configured: set[str] = field(default_factory=set)

    def saw_head(self, epoch: str, seq: int) -> None:
        self.seen[epoch] = max(self.seen.get(epoch, 0), seq)

    def saw_record(self, epoch: str, seq: int, text: bytes) -> None:
        known = self.texts.setdefault((epoch, seq), text)
        check(known == text, "I5", f"{epoch} {seq} was {known[:60]!r}, is {text[:60]!r}")

    def saw_floors(self, epoch: str, evict_floor: int, earliest_seq: int) -> None:
        known = self.floors.get(epoch, (0, 0))
        check(evict_floor >= known[0], "I8", f"{epoch}: floor {evict_floor} after {known[0]}")
        check(earliest_seq >= known[1], "I8", f"{epoch}: earliest {earliest_seq} after {known[1]}")
        self.floors[epoch] = evict_floor, earliest_seq


class Traffic:
    """The clients of one world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.payloads = 0
        self.has_copies = self.has_plain_copies = False
        self.refused_for_room = self.refused_for_memory = 0

    def command(self) -> None:
        """One client's call, and the check of its response."""
        rng = self.world.rng
        name = rng.choice(self.world.style.names)
        kind = rng.random()
        if (name not in self.world.model.topics and rng.random() < 0.5) or self._is_reconfigured():
            self.put(name)
        elif name in self.world.style.queues and rng.random() < 0.6:
            self.work(name)
        elif kind < 0.45:
            self.append(name)
        elif kind < 0.72:
            self.diff(name)
        elif kind < 0.80:
            self.delete(name)
        elif kind < 0.85:
            self.purge(name)
        elif kind < 0.90:
            self.get(name)
        elif kind < 0.94 and len(self.world.style.names) > 1 and self.world.style.routed:
            self.route()
        elif kind < 0.97:
            self.put(name)
        else:
            self.delete_topic(name)

    def aside(self, name: str) -> None:
        """What others do with a topic while a command looks at it, and what time does."""
        rng, kind = self.world.rng, self.world.rng.random()
        self.world.pass_time(rng.choice((0, 1, 7, 33, 200)))
        if kind < 0.35:
            self.append(name)
        elif kind < 0.5:
            self.delete(name)
        elif kind < 0.6:
            self.purge(name)
        elif kind < 0.7:
            self.put(name)
        else:
            self.world.process.step_maintenance(checkpoint=kind > 0.95)

    def _is_reconfigured(self) -> bool:
        chance = self.world.style.reconfigured
        return chance > 0 and self.world.rng.random() < chance

    # -- commands ------------------------------------------------------------------------------

    def call(self, command: Command, act: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """The response's fields, checked against those of the model; None if both refuse."""
        self.world.pay(command)
        told = Telling(self.world, command)
        before = self._leases(command)
        try:
            outcome = self.world.process.submit(command, told)
        except Rejection as refusal:
            self._check_refusal(command, refusal, act)
            self.world.take_evictions()
            return None
        assert not isinstance(outcome, Parked)
        answer: dict[str, Any] = orjson.loads(payload(outcome)[0])
        self._settle_doubt(command, answer)
        try:
            expected = act()
        except Refused as refused:
            invariant = "I17" if refused.code == "topic_full" else "C2"
            what = f"{refused.code} expected: {command} {answer}"
            raise Violation(invariant, what) from None
        self.world.take_evictions()
        skipped = set(answer.get("skipped", ())) & before.keys()
        if skipped:
            after = self._leases(command)
            skipped = {seq for seq in skipped if after[seq] is not None}  # others expired just now
            i21_what_is_skipped_stays(
                getattr(command, "topic", ""),
                {seq: before[seq] for seq in skipped},
                {seq: after.get(seq) for seq in skipped},
            )
        told.learn(answer)
        shown = {key: answer.get(key) for key in expected}
        invariant = "I16" if getattr(command, "key", b"") else ANSWERS.get(type(command), "C1")
        check(shown == expected, invariant, f"{expected} expected: {answer}")
        return answer

    def _leases(self, command: Command) -> dict[int, int | None]:
        """Of the jobs that a worker names once."""
        if not isinstance(command, Ack | Nack | Extend):
            return {}
        state = self.world.process.engine.state
        topic = state.topics.get(command.topic)
        queue = state.queues.get(topic.topic_id) if topic is not None else None
        jobs = queue.jobs if queue is not None else {}
        seqs = [seq for seq in command.seqs if command.seqs.count(seq) == 1]
        return {seq: jobs[seq].lease if seq in jobs else None for seq in seqs}

    def _check_refusal(
        self, command: Command, refusal: Rejection, act: Callable[[], dict[str, Any]]
    ) -> None:
        detail = refusal.detail or {}
        if self.world.process.failed and detail.get("reason") == "read_only":
            return
        if self.world.has_no_space and detail.get("limit") == "disk":
            self.refused_for_room += 1
            return
        if "retry_after_ms" in detail:
            self.refused_for_memory += 1
            pressure = self.world.process.driver.pressure
            check(pressure >= SOFT, "I34", f"paced at {pressure}: {refusal}")
            self.world.process.engine.advance(self.world.process.now_ms)  # it was not decided
            return
        if detail.get("limit") == "max_hot_bytes":
            self._check_pressure(command)
            return
        if isinstance(command, Append) and command.key:
            key = command.key.decode().rstrip()
            if self.world.model.is_open_question(command.topic, key):
                self.world.model.settle_key(command.topic, key, remembered=False, first_seq=0)
        try:
            act()
        except Refused as refused:
            code = refused.code
        else:
            code = "none"
        what = f"{code} expected: {refusal} {detail} {command}"[:400]
        invariant = "I17" if "topic_full" in (code, refusal.code.code) else "C2"
        name = getattr(command, "topic", "")
        held, known = (of.get(name) for of in self._topics())
        if invariant == "I17" and held is not None and known is not None:
            i17_what_is_refused_takes_nothing(name, known.head_seq, held.head_seq)
        check(refusal.code.code == code, invariant, what)

    def _topics(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.world.process.engine.state.topics, self.world.model.topics

    def _check_pressure(self, command: Command) -> None:
        """Refused for want of memory: what it has, and this write, are more than there is. (§11)"""
        self.refused_for_memory += 1
        assert isinstance(command, Append)
        metas = command.metas or []
        size = sum(map(len, command.datas)) + sum(len(meta or b"") for meta in metas)
        size += strings_bytes(command.tags) + strings_bytes(command.nodes)  # they may be new
        need = size + len(command.datas) * MOST_BESIDE_DATA
        used = self.world.process.engine.state.memory.total_bytes
        check(used + need > self.world.style.hot_bytes, "I34", f"{used}, and {need} is refused")

    def _settle_doubt(self, command: Command, answer: dict[str, Any]) -> None:
        if isinstance(command, Append) and command.key:
            key = command.key.decode().rstrip()
            if self.world.model.is_open_question(command.topic, key):
                deduped, first_seq = answer["deduped"], answer["first_seq"]
                model = self.world.model
                model.settle_key(command.topic, key, remembered=deduped, first_seq=first_seq)

    def put(self, name: str) -> None:
        self.put_config(name, self.drawn_config(name))

    def put_class(self, name: str, durability: Any, **fields: Any) -> None:
        durable = durability == "fsync"
        self.put_config(name, TopicConfig(durability=durability, durable=durable, **fields))

    def put_config(self, name: str, config: TopicConfig) -> None:
        self.world.waiting.may_open_a_window(name)  # the last moment at which the old config does
        self.call(PutTopic(name, config, True), lambda: self.world.model.put(name, config))

    def drawn_config(self, name: str) -> TopicConfig:
        rng, style = self.world.rng, self.world.style
        durability: Any = rng.choice(style.classes)
        work: dict[str, Any] = {}
        if name in style.queues:
            work = {
                "type": "queue",
                "auto_create": rng.random() < 0.8,
                "lease_ms": rng.choice((100, 100, 60_000)),
                "max_deliveries": rng.choice((0, 1, 2)),
                "dead_letter": rng.choice((None, DEAD, DEAD)),
                "leases_durable": rng.random() < 0.6,
                "claim_jitter_ms": rng.choice((0, 0, 0, 40)),
            }
        return TopicConfig(
            **work,
            ttl_ms=rng.choice(style.ttls_ms),
            cap_records=rng.choice(style.caps),
            cap_bytes=rng.choice((0, 0, 300, 3000)) if any(style.caps) else 0,
            discard=rng.choice(style.discards),  # type: ignore[arg-type]
            durability=durability,
            durable=durability == "fsync",
            idempotency_window_ms=rng.choice((0, 1000, 120_000)),
        )

    def append(self, name: str) -> None:
        rng = self.world.rng
        self.append_some(
            name, rng.choice((1, 1, 2, 4, 9)), rng.choice((None, None, "k1", "k2", "k3"))
        )

    def append_some(self, name: str, count: int, key: str | None) -> None:
        size = self.world.rng.choice(self.world.style.sizes)
        self._append(name, [self._entry(size) for _ in range(count)], key)

    def submit_unchecked(self, name: str) -> None:
        """An append that the model does not get: it must be refused."""
        command = append_of(name, [self._entry(15)], None, TopicConfig())
        self.world.process.submit(command, lambda _: None)

    def append_sized(self, name: str, size: int) -> None:
        self._append(name, [self._entry(size)], None)

    def _append(self, name: str, entries: list[Entry], key: str | None) -> None:
        config = self.drawn_config(name)
        command = append_of(name, entries, key, config)
        self.call(command, lambda: self.world.model.append(name, entries, key, config))

    def _entry(self, size: int) -> Entry:
        rng = self.world.rng
        self.payloads += 1
        number = b"%d" % self.payloads
        data = number if size < 12 else b'"' + number.rjust(size - 2, b".") + b'"'
        if rng.random() < 0.6:
            return Entry(data)
        meta = rng.choice((None, b'{"k":1}'))
        return Entry(data, rng.choice((None, *TAGS)), rng.choice((None, *NODES)), meta)

    def delete(self, name: str) -> None:
        rng = self.world.rng
        match = rng.choice((None, "x", "x*", "y.1", "long*", "*"))
        before = rng.choice((None, self._near_head(name))) if match else self._near_head(name)
        self.delete_some(name, before, match, erase=rng.random() < 0.1)

    def delete_some(
        self, name: str, before_seq: int | None, match: str | None, *, erase: bool = False
    ) -> None:
        parsed = None if match is None else parse_match(match)
        command = DeleteRecords(name, before_seq, parsed, erase)
        answer = self.call(command, lambda: self.world.model.delete(name, before_seq, match))
        self._check_state(name, answer)
        if answer is not None and match is not None:
            # Nothing that comes after the delete is its: others append while the check reads.
            end_seq = answer["head_seq"] + 1
            bound = end_seq if before_seq is None else min(before_seq, end_seq)
            self._check_deleted(name, match, bound)

    def _check_deleted(self, name: str, match: str, bound: int) -> None:
        process = self.world.process
        process.pays = False
        page = self.world.page(diff_of(name, Ask(match=match, limit=1000)))
        process.pays = True
        left = [seq for seq in page.seqs if seq < bound]
        i15_nothing_that_matches_is_left(name, match, left)

    def purge(self, name: str) -> None:
        rng = self.world.rng
        subject = rng.choice((None, "x", "x.*", "y.>", "*", ">"))
        seq, keep = rng.choice(
            ((None, None), (self._near_head(name), None), (None, rng.randrange(4)))
        )
        self.purge_some(name, seq, keep, subject)

    def purge_some(self, name: str, seq: int | None, keep: int | None, subject: str | None) -> None:
        command = Purge(name, seq, keep, None if subject is None else parse_subject(subject))
        answer = self.call(command, lambda: self.world.model.purge(name, seq, keep, subject))
        self._check_state(name, answer)

    # -- work ----------------------------------------------------------------------------------

    def work(self, name: str) -> None:
        rng = self.world.rng
        node, kind = rng.choice(NODES), rng.random()
        if kind < 0.45:
            wait_ms = rng.choice((0, 0, 0, 50, 3000))
            lease_ms = rng.choice((None, None, 100))
            self.claim(name, node, rng.choice((1, 1, 2, 3, 20)), lease_ms, wait_ms)
            return
        seqs = self._drawn_jobs(name)
        leases = None if rng.random() < 0.5 else [self._drawn_lease(name, seq) for seq in seqs]
        if kind < 0.7:
            self.ack(name, node, seqs, leases)
        elif kind < 0.85:
            self.nack(name, node, seqs, leases, rng.choice((0, 0, 50, 5000)))
        else:
            self.extend(name, node, seqs, leases, rng.choice((100, 1000, 60_000)))

    def _drawn_jobs(self, name: str) -> list[int]:
        """Mostly jobs that a worker holds or held."""
        rng = self.world.rng
        topic = self.world.model.topics.get(name)
        known = sorted(topic.jobs.known) if topic is not None else []
        return [
            rng.choice(known) if known and rng.random() < 0.8 else self._near_head(name)
            for _ in range(rng.choice((0, 1, 1, 2, 3)))
        ]

    def _drawn_lease(self, name: str, seq: int) -> int:
        """The last lease of a job, or one before it, or none."""
        rng, given = self.world.rng, self.world.clients.leases
        topic = self.world.model.topics.get(name)
        job = topic.jobs.known.get(seq) if topic is not None else None
        if job is not None and rng.random() < 0.7:
            return job.lease
        return rng.choice(sorted(given)) if given and rng.random() < 0.9 else 0

    def shown_head(self, name: str) -> int:
        """The head that is shown, which only the server knows."""
        held = self.world.process.engine.state.topics.get(name)
        return 0 if held is None else held.published_seq

    def claim(
        self, name: str, node: str, limit: int, lease_ms: int | None, wait_ms: int = 0
    ) -> None:
        """§10.2: answered at once, or parked."""
        world, command = self.world, Claim(name, node, limit, lease_ms, wait_ms)
        world.pay(command)
        told, parked = Telling(world, command), list[Claimer]()

        def woken(result: Outcome | Exception) -> Told:
            is_durable = world.waiting.woken(parked[0], result)
            return lambda lsn: told.promise(lsn) if is_durable else None

        world.asked = name
        try:
            outcome = world.process.submit(command, told, woken)
            world.moved()
        except Rejection as refusal:
            self._check_refusal(command, refusal, lambda: {"queue": world.model.queue(name).name})
            return
        finally:
            world.asked = None
        if isinstance(outcome, Parked):
            parked.append(world.waiting.park(command))
            return
        answer, _ = world.waiting.answered(command, outcome)
        told.learn(answer)
        topic = world.model.topics[name]
        ready = world.model.counters(topic, self.shown_head(name))["ready"]
        check(answer["ready"] == ready, "I19", f"{ready} expected: {answer}")
        left = world.waiting.able(topic)
        check(answer["count"] == limit or not left, "I18", f"{left} not given: {answer}")

    def check_job(self, topic: Topic, answer: dict[str, Any]) -> None:
        """One claimed job: its record, and what it is leased under. (I18, I20)"""
        job = topic.jobs.known[answer["$seq"]]
        expected = orjson.loads(topic.records[answer["$seq"]].text(tags=True)) | {
            "lease_id": f"lease_{job.lease:x}",
            "deadline": job.until_ms,
            "deliveries": job.deliveries,
        }
        check(answer == expected, "I20", f"{expected} expected: {answer}")

    def ack(self, name: str, node: str, seqs: list[int], leases: list[int] | None) -> None:
        self.call(
            Ack(name, node, seqs, leases),
            lambda: self.world.model.ack(name, node, seqs, leases, self.shown_head(name)),
        )

    def nack(
        self, name: str, node: str, seqs: list[int], leases: list[int] | None, delay_ms: int
    ) -> None:
        self.call(
            Nack(name, node, seqs, leases, delay_ms),
            lambda: self.world.model.nack(
                name, node, seqs, leases, self.shown_head(name), delay_ms
            ),
        )

    def extend(
        self, name: str, node: str, seqs: list[int], leases: list[int] | None, lease_ms: int
    ) -> None:
        self.call(
            Extend(name, node, seqs, leases, lease_ms),
            lambda: self.world.model.extend(
                name, node, seqs, leases, self.shown_head(name), lease_ms
            ),
        )

    def delete_topic(self, name: str) -> None:
        self.call(DeleteTopic(name), lambda: self.world.model.delete_topic(name))

    def route(self) -> None:
        """Create, change, look at or delete a router between two of the names."""
        rng, world = self.world.rng, self.world
        router = rng.choice(ROUTERS)
        kind = rng.random()
        if kind < 0.2:
            self.call(GetRouter(router), lambda: get_router(world.model, router))
        elif kind < 0.3:
            self.call(DeleteRouter(router), lambda: delete_router(world.model, router))
        else:
            source, dest = rng.sample(world.style.names, 2)
            self.connect(
                router,
                source,
                dest,
                filter=rng.choice((None, None, ("tag", "Glob", "x*"), ("tag", "Eq", "y.1"))),
                preserve_node=rng.random() < 0.8,
                preserve_tag=rng.random() < 0.8,
                guarantee=rng.choice(("at_least_once", "exactly_once")),
            )

    def connect(self, router: str, source: str, dest: str, **fields: Any) -> None:
        self.has_copies = True
        self.has_plain_copies |= fields.get("guarantee", "at_least_once") != "exactly_once"
        config = RouterConfig(source=source, dest=dest, **fields)
        command = PutRouter(router, config, True)
        self.call(command, lambda: put_router(self.world.model, router, config))

    def _check_paid(self, name: str, acked: dict[str, int]) -> None:
        """A reader of a destination gets the records acknowledged upstream by then, unless its
        router is blocked or nothing can be written. (§6)"""
        if self.world.process.failed:
            return
        routers = self.world.process.engine.state.routers.by_name
        for router in self.world.model.routers.values():
            if router.config.dest == name and routers[router.name].blocked is None:
                source = self.world.model.topics[router.config.source]
                least = acked.get(source.epoch, 0)
                check(router.cursor >= least, "I25", f"{router} {least}")

    def get(self, name: str) -> None:
        answer = self.call(GetTopic(name), lambda: self.world.model.get(name))
        self._check_state(name, answer)
        if answer is not None:
            check(answer["next_seq"] == answer["head_seq"] + 1, "C1", answer)

    def diff(self, name: str) -> None:
        self.read(name, self._drawn_ask(name))

    def read(self, name: str, ask: Ask) -> None:
        command = diff_of(name, ask)
        acked = dict(self.world.clients.acked)
        self.world.pay(command)
        self._check_paid(name, acked)
        try:
            page = self._page(command)
        except Rejection as refusal:
            check(name not in self.world.model.topics, "C2", f"{refusal} {ask}")
            return
        if page is None:
            return
        topic = self.world.model.topics.get(name)
        if topic is None:
            raise Violation("C2", f"{name} does not exist")
        self._check_head(topic, page.fields["head_seq"])
        gone = self.world.clients.gone.get(topic.epoch, {})
        i6_what_is_deleted_stays_deleted(topic.epoch, page.seqs, gone)
        check_page(topic, ask, page)
        self._learn_floors(topic, page.fields["earliest_seq"])
        if not ask.include_tags and ask.include_meta:
            for text in split(page):
                self.world.clients.saw_record(topic.epoch, orjson.loads(text)["$seq"], text)

    def _page(self, command: Diff) -> Page | None:
        """A page; None where the disk failed, and the answer says so."""
        world, files = self.world, self.world.files
        if not world.style.spoiled or world.rng.random() >= world.style.spoiled:
            return world.page(command)
        before, files.spoil = files.spoiled_reads, world.rng.choice(("error", "short", "bit"))
        if files.spoil == "bit":
            world.process.forget_checks(command.topic)
        try:
            return world.page(command)
        except (Corrupt, OSError) as error:
            why: Exception = error  # the text is read when the answer is rendered
        except Rejection as refusal:
            if refusal.code is not ErrorCode.INTERNAL:
                raise
            why = refusal
        finally:
            files.spoil = None
        f11_only_a_failed_read_fails(files.spoiled_reads - before, why)
        return None

    def _drawn_ask(self, name: str) -> Ask:
        rng = self.world.rng
        topic = self.world.model.topics.get(name)
        return Ask(
            from_seq=rng.choice((0, self._near_head(name), self._near_head(name))),
            from_ts=self.world.clock_ms - rng.randrange(300) if rng.random() < 0.1 else None,
            limit=rng.choice((1, 2, 5, 1000)),
            budget_bytes=rng.choice((1 << 20, 1 << 20, 400)),
            nodes=rng.choice(((), (), ("n1",), NODES)),
            match=rng.choice((None, None, None, "x*", "*", "y.1")),
            include_tags=rng.random() < 0.2,
            include_meta=rng.random() < 0.8,
            epoch=topic.epoch if topic is not None and rng.random() < 0.2 else None,
        )

    def _near_head(self, name: str) -> int:
        """A seq near the ends of the live records, the head, the floor or a hole."""
        topic = self.world.model.topics.get(name)
        if topic is None:
            return self.world.rng.randrange(3)
        marks = [topic.head_seq, topic.head_seq, topic.evict_floor, topic.earliest(topic.head_seq)]
        marks += [end for hole in topic.holes for end in hole]
        return max(0, self.world.rng.choice(marks) + self.world.rng.randint(-6, 2))

    # -- what answers show ---------------------------------------------------------------------

    def _check_state(self, name: str, answer: dict[str, Any] | None) -> None:
        """Head, floor and totals of a response. (I8, I13)"""
        if answer is None:
            return
        topic = self.world.model.topics[name]
        self._check_head(topic, answer["head_seq"])
        shown = topic.shown(answer["head_seq"])
        totals = (len(shown), sum(len(r.text()) for r in shown))
        check((answer["count"], answer["bytes"]) == totals, "I13", f"{totals}: {answer}")
        if "queue" in answer:
            expected = self.world.model.counters(topic, answer["head_seq"])
            expected["dead_lettered"] = topic.jobs.dead_lettered
            told = {"delayed": 0} | answer["queue"]
            check(told == expected, "I19", f"{expected}: {answer}")
        earliest = topic.earliest(answer["head_seq"])
        check(answer["earliest_seq"] == earliest, "I8", f"{earliest}: {answer}")
        self._learn_floors(topic, earliest)

    def _check_head(self, topic: Topic, head_seq: int) -> None:
        """Every acknowledged record is visible, and none that is not written; `fsync` topics show
        nothing that a power loss may take. (I32)"""
        least = self.world.clients.acked.get(topic.epoch, 0)
        check(least <= head_seq <= topic.head_seq, "I5", f"{least} {head_seq} {topic.head_seq}")
        self.world.clients.saw_head(topic.epoch, head_seq)
        i3_a_batch_is_whole(topic.epoch, head_seq, self.world.clients.inner.get(topic.epoch, ()))
        durable = next(
            (m for n, m in reversed(self.world.history) if n <= self.world.durable_lsn), None
        )
        synced = durable.topics.get(topic.name) if durable is not None else None
        if synced is None or topic.config.durability != "fsync":
            return
        if (synced.epoch, synced.switches) == (topic.epoch, topic.switches):
            check(head_seq <= synced.head_seq, "I32", f"{head_seq} {synced.head_seq}")

    def _learn_floors(self, topic: Topic, earliest: int) -> None:
        held = self.world.process.engine.state.topics[topic.name]
        floor = held.floors.evict_floor
        check(floor == topic.evict_floor, "I10", f"{topic.name} {floor} {topic.evict_floor}")
        self.world.clients.saw_floors(topic.epoch, floor, earliest)


class Telling:
    """What a client learns from its response."""

    def __init__(self, world: "World", command: Command) -> None:
        self._world = world
        self._command = command
        self._rows: list[tuple[int, bytes]] = []
        self._epoch = ""
        self._is_durable = isinstance(command, PutTopic | DeleteTopic | PutRouter | DeleteRouter)
        self._early: int | None = None
        self._learned = False
        self._erases: list[bytes] = []
        self._gone: tuple[str, list[int]] = ("", [])
        self._is_told = False
        self._config: TopicConfig | None = None

    def learn(self, answer: dict[str, Any]) -> None:
        """The engine has answered, and the model agrees; the response may still have to wait."""
        world, command = self._world, self._command
        topics = world.process.engine.state.topics
        for name, made in world.model.topics.items():
            made.epoch = topics[name].epoch  # also of topics that came with a router
        held = topics.get(getattr(command, "topic", ""))
        topic = world.model.topics.get(getattr(command, "topic", ""))
        if held is not None and topic is not None:
            topic.epoch = self._epoch = held.epoch
            is_work = isinstance(command, Claim | Nack | Extend)
            is_logged = topic.config.leases_durable or not is_work
            is_logged &= not isinstance(command, Claim) or answer["count"] > 0
            self._is_durable |= topic.config.durability == "fsync" and is_logged
            if isinstance(command, Append):
                first = answer["first_seq"]
                self._last = answer["first_seq"] + answer["count"] - 1
                rows = range(first, self._last + 1)
                known = topic.records
                self._rows = [(seq, known[seq].text()) for seq in rows if seq in known]
                self._check_key(held.epoch, command, answer)
                if not answer["deduped"]:
                    inner = world.clients.inner.setdefault(held.epoch, set())
                    inner.update(range(first, self._last))
            if isinstance(command, DeleteRecords | Purge | Ack) and not topic.is_volatile:
                self._gone = world.model.removed
            if isinstance(command, PutTopic):
                world.clients.configs.setdefault(held.epoch, []).append(held.config)
                self._config = held.config
            if isinstance(command, DeleteRecords) and command.erase:
                self._erases = self._dead_texts(topic)
        self._learned = True
        if self._early is not None:
            self(self._early)

    def _check_key(self, epoch: str, command: Append, answer: dict[str, Any]) -> None:
        given = self._world.clients.keyed.setdefault((epoch, command.key), set())
        if answer["deduped"]:
            i16_a_key_stands_for_a_batch_of_its_own(repr(command.key), answer["first_seq"], given)
        else:
            given.add(answer["first_seq"])

    def _dead_texts(self, topic: Topic) -> list[bytes]:
        """Texts that were acknowledged or read of the topic and are not in it any more; none if
        copies may have the same."""
        world = self._world
        if world.traffic.has_copies or world.style.queues:
            return []
        known = world.clients.texts.items()
        others = {text for (epoch, _), text in known if epoch != topic.epoch}
        mine = [(seq, text) for (epoch, seq), text in known if epoch == topic.epoch]
        return [text for seq, text in mine if seq not in topic.records and text not in others]

    def __call__(self, lsn: int) -> None:
        if not self._learned:
            self._early = lsn
            return
        world = self._world
        check(not self._is_told, "I33", f"answered twice: {self._command}")
        self._is_told = True
        check_erased(world, self._erases)
        epoch, seqs = self._gone
        world.clients.gone.setdefault(epoch, {}).update(dict.fromkeys(seqs, lsn))
        if self._is_durable:
            self.promise(lsn)
        if self._config is not None and (put := world.clients.configs.get(self._epoch)):
            last = max(i for i, config in enumerate(put) if config is self._config)
            del put[:last]
            world.clients.configured.add(self._epoch)
        if isinstance(self._command, Append):
            clients = world.clients
            clients.saw_head(self._epoch, self._last)
            clients.acked[self._epoch] = max(clients.acked.get(self._epoch, 0), self._last)
            for seq, text in self._rows:
                clients.saw_record(self._epoch, seq, text)

    def promise(self, lsn: int) -> None:
        """What was acknowledged has to be there whatever happens."""
        self._world.durable_lsn = max(self._world.durable_lsn, lsn)


def append_of(name: str, entries: list[Entry], key: str | None, config: TopicConfig) -> Append:
    nodes, tags = [e.node for e in entries], [e.tag for e in entries]
    metas = [e.meta for e in entries]
    return Append(
        topic=name,
        datas=[e.data for e in entries],
        nodes=nodes if any(nodes) else None,
        tags=tags if any(tags) else None,
        metas=metas if any(metas) else None,
        key=b"" if key is None else key.encode().ljust(16),
        create=None,
        config=config,
        return_seqs=True,
        disable_backpressure=False,
    )


def diff_of(name: str, ask: Ask) -> Diff:
    return Diff(
        topic=name,
        from_seq=ask.from_seq,
        from_ts=ask.from_ts,
        limit=ask.limit,
        budget_bytes=ask.budget_bytes,
        nodes=ask.nodes,
        match=None if ask.match is None else parse_match(ask.match),
        include_tags=ask.include_tags,
        include_meta=ask.include_meta,
        wait_ms=0,
        epoch=ask.epoch,
    )


def split(page: Page) -> list[bytes]:
    """The bytes of each record of a page."""
    return split_texts(page.text)
