"""Images of a checkpoint, taken while commands go on (§0.10).

Whatever happens between two slices, a checkpoint is of its boundary; and with what the log holds
from there on it leads to the state that the engine is in.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from protocol.durable import Durable
from protocol.harness import Harness, read_back, tagged
from topics.protocol.maintenance import sealing
from topics.protocol.maintenance.checkpointing import CheckpointPlan
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import (
    Checkpoint,
    LogPlace,
    PlaceReached,
    ProducerIdsReserved,
    TopicImage,
    UnflaggedRows,
)
from topics.protocol.state import checkpoint
from topics.protocol.state.checkpoint import EncodedCheckpoint, volatile_spans, whole_image
from topics.protocol.state.idempotency import TopicKeys
from topics.protocol.state.queue import Queue
from topics.protocol.state.state import State

NAMES = ("a", "b", "c", "d", "e")
QUEUES = ("q", "p")
CLASSES = ("disk", "disk", "memory", "fsync", "ephemeral")


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One topic, or two jobs, in one go; a queue of three is taken in several."""
    monkeypatch.setattr(checkpoint, "SLICE_WEIGHT", 1)
    monkeypatch.setattr(sealing, "ENTRIES_MAX", 1)
    monkeypatch.setattr(checkpoint, "SLICE_JOBS", 2)


class Busy:
    """Commands at random, many of them refused."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.engine = Harness(segment_max_records=5)
        self.number = 0
        self.unlogged: set[int] = set()
        for name in QUEUES:
            self.engine.put(name, type="queue", leases_durable=True, max_deliveries=3)

    def act(self, *, clock: bool = True) -> None:
        draw, engine = self.draw, self.engine
        self.number += 1
        if clock and draw.random() < 0.2:
            engine.now_ms += draw.choice((1, 10, 200, 1000))
        with suppress(Rejection):
            draw.choice(
                (
                    *(self.append, self.append, self.append, self.push, self.push),
                    *(self.claim, self.claim, self.settle, self.settle, self.delete),
                    *(self.configure, self.drop, self.route, engine.work_off),
                )
            )()

    def name(self) -> str:
        return self.draw.choice(NAMES)

    def append(self) -> None:
        fields: dict[str, Any] = {}
        if self.draw.random() < 0.4:
            fields["idempotency_key"] = f"k{self.draw.randrange(30)}"
        records = [tagged(f"t{self.number % 3}", self.number)] * self.draw.randrange(1, 5)
        self.engine.append(*records, name=self.name(), **fields)

    def push(self) -> None:
        self.engine.append(self.number, self.number, name=self.draw.choice(QUEUES))

    def claim(self) -> None:
        lease_ms = self.draw.choice((100, 1000, 30_000))
        limit = self.draw.randrange(1, 5)
        self.engine.claim(self.draw.choice(QUEUES), limit=limit, lease_ms=lease_ms)

    def settle(self) -> None:
        name = self.draw.choice(QUEUES)
        jobs = list(self.engine.engine.state.queues[self.engine.topic(name).topic_id].jobs)
        if not jobs:
            return
        seqs = self.draw.sample(jobs, min(len(jobs), 2))
        if self.draw.random() < 0.5:
            self.engine.ack(*seqs, name=name)
        else:
            self.engine.nack(*seqs, name=name, delay_ms=self.draw.choice((0, 500)))

    def delete(self) -> None:
        if self.draw.random() < 0.5:
            self.engine.delete(self.name(), match=["tag", "Eq", f"t{self.draw.randrange(3)}"])
        else:
            name = self.name()
            head_seq = self.engine.state(name)["head_seq"]
            self.engine.delete(name, before_seq=self.draw.randrange(head_seq + 1) + 1)

    def configure(self) -> None:
        durability = self.draw.choice(CLASSES)
        cap, ttl_ms = self.draw.choice((0, 0, 7)), self.draw.choice((0, 0, 900))
        window_ms = self.draw.choice((500, 120_000))
        name = self.name()
        self.engine.put(
            name,
            durability=durability,
            cap_records=cap,
            ttl_ms=ttl_ms,
            idempotency_window_ms=window_ms,
        )
        if durability == "ephemeral":
            self.unlogged.add(self.engine.topic(name).topic_id)

    def drop(self) -> None:
        if self.draw.random() < 0.5:
            self.engine.drop(self.name())
        else:
            name = self.draw.choice(("r1", "r2"))
            self.engine.unroute(name)

    def route(self) -> None:
        name = self.draw.choice(("r1", "r2"))
        self.engine.route(name, source=self.name(), dest=self.name())

    def let_pass(self) -> None:
        """Let time take now what it would take when somebody looks."""
        state, now_ms = self.engine.engine.state, self.engine.now_ms
        self.engine.engine.advance(now_ms)
        for topic in state.topics.values():
            self.engine.engine.unit.expire(topic, now_ms)
        for topic_id in state.keys.by_topic:
            state.keys.forget_old_of(topic_id, now_ms, 1000)
        for queue in state.queues.values():
            queue.settle(now_ms)

    def checkpoint(self, *, clock: bool = True) -> tuple[CheckpointPlan, Checkpoint]:
        """A checkpoint, commands between any two of its steps; and what it is to be of."""
        engine, checkpointing = self.engine, self.engine.checkpointing
        engine.sync()
        if not clock:
            self.let_pass()
        plan = checkpointing.begin(engine.now_ms)
        known = copied(engine.engine.state.image())
        engine.events.clear()
        while checkpointing.make_images(plan):
            self.act(clock=clock)
        while True:
            planning = checkpointing.planning_seal(plan)
            while planning.go_on():
                self.act(clock=clock)
            if (job := planning.job()) is None:
                break
            self.act(clock=clock)
            refs, installed = engine.store.seal(job.entries), 0
            while installed < len(job.entries):
                self.act(clock=clock)
                installed = engine.sealing.install_some(
                    job, refs, engine.now_ms, plan.images, installed
                )
                engine.sync()
        while checkpointing.make_images(plan):
            self.act(clock=clock)
        engine.sync()
        engine.store.flip()
        return plan, known


def copied(image: Checkpoint) -> Checkpoint:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(image), type=Checkpoint)


def by_name(image: Checkpoint) -> dict[str, TopicImage]:
    """Topics without their sealed runs, keys and jobs in no order of their own."""
    found = {}
    for topic in image.topics:
        queue = topic.queue
        if queue is not None:
            jobs = sorted(queue.jobs, key=lambda job: job.seq)
            queue = msgspec.structs.replace(queue, jobs=jobs)
        keys = [key for key in topic.keys if key.count]
        found[topic.name] = msgspec.structs.replace(topic, runs=[], keys=keys, queue=queue)
    assert len(found) == len(image.topics)
    return found


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("tiny_slices")
def test_a_checkpoint_is_of_its_boundary(seed: int) -> None:
    """However much happens while it is made; the clock stands still meanwhile. (§0.10)"""
    busy = Busy(seed)
    for _ in range(3):
        for _ in range(busy.draw.randrange(60)):
            busy.act()
        plan, known = busy.checkpoint(clock=False)
        found = read_back(plan.image)

        assert by_name(found) == by_name(known)
        assert {r.router_id: r for r in found.routers} == {r.router_id: r for r in known.routers}
        assert (found.now_ms, found.next_topic_id, found.next_router_id) == (
            known.now_ms,
            known.next_topic_id,
            known.next_router_id,
        )


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.usefixtures("tiny_slices")
def test_a_checkpoint_and_the_log_behind_it_lead_to_the_state(seed: int) -> None:
    """What a start makes of both is what the engine holds, but for what was in memory only.
    (§0.10)"""
    busy = Busy(seed)
    for _ in range(3):
        for _ in range(busy.draw.randrange(60)):
            busy.act()
        plan, _ = busy.checkpoint()
        for _ in range(busy.draw.randrange(20)):
            busy.act()
        engine = busy.engine
        engine.work_off()
        again = State(engine.limits, engine.store)
        again.restore(read_back(plan.image))
        for event in engine.events:
            again.apply(event)

        found, known = dict(facts(again, busy)), dict(facts(engine.engine.state, busy))
        assert set(found) == set(known)
        for what, one in found.items():
            assert one == known[what], what


def facts(state: State, busy: Busy) -> Iterator[tuple[Any, Any]]:
    """All there is to know of a state, when time has taken what it takes, but for topics that had
    records in memory only."""
    now_ms = busy.engine.now_ms
    yield "topics", sorted(state.topics)
    yield "names", list(state.names)
    yield "next", (state.next_topic_id, state.routers.next_id)
    yield "routers", {key: router.image() for key, router in state.routers.by_id.items()}
    for name, topic in state.topics.items():
        if topic.topic_id in busy.unlogged:
            continue
        expiry = topic.expired(now_ms)
        if expiry is not None:
            state.apply_expiry(topic, expiry)
        yield (
            name,
            (
                *(topic.topic_id, topic.config, topic.epoch, topic.head_seq),
                *(topic.reserved_through, topic.floors, topic.count, topic.size_bytes),
                *(topic.last_ts_ms, topic.last_write_ms, topic.holes),
                [seq for seqs in topic.live_seqs(before_seq=1 << 60) for seq in seqs.tolist()],
                [run.ref for run in topic.runs if run.ref is not None],
            ),
        )
        keys = state.keys.by_topic.get(topic.topic_id, TopicKeys())
        window_ms = topic.config.idempotency_window_ms
        entries = {digest: keys.find(digest, now_ms=now_ms, window_ms=window_ms) for digest in keys}
        yield (name, "keys"), {digest: each for digest, each in entries.items() if each is not None}
        queue = state.queues.get(topic.topic_id)
        if queue is not None:
            yield (name, "queue"), jobs_of(queue, now_ms)


def jobs_of(queue: Queue, now_ms: int) -> Any:
    queue.settle(now_ms)
    jobs = sorted(queue.image(lasting=True).jobs, key=lambda job: job.seq)
    return queue.dead_lettered, queue.fresh_from, queue.in_flight, queue.delayed, jobs


def test_what_expires_before_it_is_sealed_is_not_counted_after_a_start() -> None:
    """The checkpoint counts it and has no segment with it; the log behind it says why. (§0.10)"""
    engine = Harness()
    engine.put(ttl_ms=100)
    engine.append(1, 2)
    plan = engine.begin_checkpoint()
    engine.events.clear()
    engine.now_ms += 101
    assert engine.state()["count"] == 0

    found = engine.finish_checkpoint(plan)
    engine.sync()

    again = State(engine.limits, engine.store)
    again.restore(found)
    for event in engine.events:
        again.apply(event)
    assert (again.topics["t"].count, again.topics["t"].floors.ttl_through) == (0, 2)


def test_a_key_lasts_though_what_is_in_memory_only_surrounds_its_record() -> None:
    """Its record was logged, and is deleted; those before and behind it go with the process.  A retry
    writes nothing again. (§0.8, §0.10)"""
    engine = Durable()
    engine.put(durability="ephemeral")
    engine.append("before")
    engine.put(durability="disk")
    engine.append(tagged("done"), idempotency_key="k")
    engine.delete(match="done")
    engine.put(durability="ephemeral")
    engine.append("behind")
    engine.seal()
    assert volatile_spans(engine.topic("t")) == [(1, 3)]

    engine = engine.stop()

    assert engine.append("again", idempotency_key="k")["deduped"]


def test_a_large_image_stays_in_pieces_and_reads_as_one() -> None:
    """To join it would hold it twice: it is written piece by piece. (§0.10)"""
    engine = Harness()
    for n in range(3000):
        engine.append(n, idempotency_key=f"key {n}")
    engine.append(1, name="small")

    plan = engine.begin_checkpoint()
    image = engine.finish_checkpoint(plan)

    sizes = [len(piece) for piece in plan.image.pieces()]
    assert max(sizes) < checkpoint.JOINED_BYTES < sum(sizes)
    keys = {topic.name: len(topic.keys) for topic in image.topics}
    assert keys == {"t": 3000, "small": 0}


def test_a_checkpoint_that_is_given_up_among_the_jobs_of_a_queue_is_begun_anew(
    tiny_slices: None,
) -> None:
    """The jobs that were taken are no part of the next one, which is of its own boundary. (§0.10)"""
    engine = Harness()
    engine.put("q", type="queue", leases_durable=True)
    engine.append(*range(9), name="q")
    assert engine.claimed(max=9) == list(range(1, 10))
    images = engine.engine.state.images
    plan = engine.checkpointing.begin(engine.now_ms)
    for _ in range(2):
        engine.checkpointing.make_images(plan)
    assert images._jobs
    engine.checkpointing.abandon(plan)
    assert not images._jobs

    engine.ack(1, 2)
    found = engine.finish_checkpoint(engine.begin_checkpoint())

    [topic] = found.topics
    assert sorted(job.seq for job in topic.queue.jobs) == list(range(3, 10))


def test_a_place_is_in_the_checkpoint_of_a_clusters_node_alone() -> None:
    """Of any other engine the array ends before it, as it always did. (FORMAT.md)"""
    engine = Harness()
    engine.append("a")
    plain = b"".join(_checkpoint(engine).pieces())
    assert len(msgspec.msgpack.decode(plain)) == len(Checkpoint.__struct_fields__) - 5

    place = LogPlace(2, 3, 4, b"c" * 16, 5)
    reached = PlaceReached(1, place, place, 7)
    engine.engine.state.apply(reached)
    raw = b"".join(_checkpoint(engine).pieces())

    again = State(engine.limits, engine.store)
    again.restore(msgspec.msgpack.decode(raw, type=Checkpoint))
    assert again.place == reached


def test_reserved_ids_of_producers_are_the_last_field() -> None:
    """What stands before is there then, too, with nothing to say. (FORMAT.md)"""
    engine = Harness()
    engine.append("a")
    engine.engine.state.apply(ProducerIdsReserved(1, 5000))

    for image in (_checkpoint(engine), whole_image(engine.engine.state)):
        raw = b"".join(image.pieces())
        again = State(engine.limits, engine.store)
        again.restore(msgspec.msgpack.decode(raw, type=Checkpoint))
        assert (again.producer_ids, again.place) == (5000, None)


@pytest.mark.parametrize("has_place", [False, True])
def test_deletes_that_no_file_says_are_at_the_end_of_a_checkpoint(has_place: bool) -> None:
    """Whether the state is encoded topic by topic or in one go. (FORMAT.md)"""
    engine = Harness()
    engine.append("a")
    if has_place:
        place = LogPlace(2, 3, 4, b"c" * 16, 5)
        engine.engine.state.apply(PlaceReached(1, place, place, 7))
    unflagged = [UnflaggedRows(3, 0, b"\x80"), UnflaggedRows(4, 1, b"\x01\x40")]
    found = []
    for image in (_checkpoint(engine), whole_image(engine.engine.state)):
        raw = b"".join(image.with_unflagged(unflagged).pieces())
        found.append(msgspec.msgpack.decode(raw, type=Checkpoint))
        assert list(found[-1].unflagged) == unflagged
        assert (found[-1].place is not None) == has_place
    assert [topic.name for topic in found[0].topics] == [topic.name for topic in found[1].topics]


def _checkpoint(engine: Harness) -> EncodedCheckpoint:
    images = engine.engine.state.images
    engine.seal_all()
    images.begin(is_last=False)
    while images.take_some():
        pass
    while images.encode_some():
        pass
    return images.checkpoint()
