"""Workers over push streams (§10.8): what they are given, and what is given back when they leave.

Owns the workers' end.  Refuses to know when a stream is served.  Invariant: a stream is given no more
jobs than it may hold, and when it closes exactly those that it holds are released.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from topics.protocol.decide.push_streams import PushStream
from topics.protocol.model.outcomes import Grant, Jobs
from topics.protocol.state.job import JobPlace

from .invariants import check, i6_what_is_deleted_stays_deleted

if TYPE_CHECKING:
    from .world import World

STREAMS = 2
NODES = ("n1", "n2")


class Pushing:
    """All push streams of one process."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = random.Random(f"pushing {world.seed}")
        self.open: list[PushStream] = []
        self.woken: set[PushStream] = set()
        self._newest: dict[PushStream, Grant | None] = {}

    def end(self) -> None:
        """The process has ended, and every connection with it."""
        self.open.clear()
        self.woken.clear()
        self._newest.clear()

    @property
    def untaken(self) -> set[str]:
        """The grants, by their first lease, that wait for their stream to send."""
        return {f"lease_{g.leases[0]:x}" for stream in self.open for g in stream.given}

    @property
    def hungry(self) -> set[str]:
        """Queues of which a stream waits for jobs."""
        waiting = (s for s in self.open if s not in self.woken and s.ended_by is None)
        return {stream.name for stream in waiting if not stream.is_full}

    def step(self) -> None:
        """A worker comes, takes what there is, or leaves; in the middle of a turn."""
        rng, world = self._rng, self._world
        if world.process.failed or world.process.is_writing:
            return
        world.model.pass_time(world.process.now_ms)
        kind = rng.random()
        if kind < 0.35 and len(self.open) < STREAMS:
            self._come(rng.choice(world.style.queues))
        elif kind < 0.8:
            self.take_all()
        elif self.open:
            self.leave(rng.choice(self.open))
        world.end_turn()

    def _come(self, name: str) -> None:
        rng, topic = self._rng, self._world.model.topics.get(name)
        if topic is None or topic.config.type != "queue":
            return
        limit, lease_ms = rng.choice((1, 2, 20)), rng.choice((None, 100))
        self.come(name, rng.choice(NODES), limit, lease_ms)

    def come(self, name: str, node: str, limit: int, lease_ms: int | None) -> PushStream:
        """A worker opens a stream of the queue `name`."""
        process = self._world.process
        engine = process.engine
        topic_id = engine.queue_commands.require_queue(name, process.now_ms).topic_id
        stream = PushStream(topic_id, name, node, limit, lease_ms, wake=lambda: self._wake(stream))
        engine.open_push_stream(stream)
        self.open.append(stream)
        self.woken.add(stream)
        return stream

    def _wake(self, stream: PushStream) -> None:
        """It is given no more than it may hold; a lease that its worker extends past its end may come
        on top. (§10.6, §10.8)"""
        self.woken.add(stream)
        newest = stream.given[-1] if stream.given else None
        if newest is not self._newest.get(stream):
            self._newest[stream] = newest
            is_more = newest is not None and len(stream.held) > stream.limit
            check(not is_more, "I18", f"{len(stream.held)} of {stream}")

    def take_all(self) -> None:
        """Every stream that was woken takes what it is given."""
        world, process = self._world, self._world.process
        for stream in [each for each in self.open if each in self.woken]:
            if stream.ended_by is not None:
                check(stream.name not in world.model.topics or self._is_old(stream), "I24", stream)
                self._close(stream)
                continue
            self.woken.discard(stream)
            before = [f"lease_{grant.leases[0]:x}" for grant in stream.given]
            world.asked = stream.name
            try:
                found = process.engine.queue_commands.take(stream, process.driver.moment)
            finally:
                world.asked = None
            world.moved()
            self._check(stream, found)
            for first in before:  # what is deleted, or another's by now, is not sent
                world.waiting.grants.pop(first, None)
            if found:
                self.woken.add(stream)  # it asks again once it has sent these
            process.driver.nudge()

    def _is_old(self, stream: PushStream) -> bool:
        topics = self._world.process.engine.state.topics
        return stream.name not in topics or topics[stream.name].topic_id != stream.topic_id

    def _check(self, stream: PushStream, found: Sequence[Jobs]) -> None:
        world = self._world
        topic, grants = world.model.topics[stream.name], world.waiting.grants
        for jobs in found:
            grant = jobs.grant
            leases = set(grant.leases)
            known = [k for k, (event, _) in grants.items() if leases <= set(event.leases)]
            check(len(known) == 1, "I18", f"{grant} of no grant to {stream}")
            del grants[known[0]]
            check(grant.node == stream.node, "I21", f"{grant}: {stream}")
            texts = [
                bytes(text)
                for run, spans in jobs.extents
                for text in (run.read(spans) or run.read_blocking(spans))
            ]
            records = [orjson.loads(text) for text in texts]
            seqs = list(grant.seqs)
            check([each["$seq"] for each in records] == seqs, "I18", f"{grant}: {records}")
            gone = world.clients.gone.get(topic.epoch, {})
            i6_what_is_deleted_stays_deleted(topic.epoch, seqs, gone)
            for seq, text, lease in zip(seqs, texts, grant.leases, strict=True):
                job, record = topic.jobs.known.get(seq), topic.records.get(seq)
                is_its = job is not None and job.lease == lease
                check(is_its and record is not None, "I18", f"{seq} is {job}: {stream}")
                assert record is not None
                check(text == record.text(), "I4", f"{seq}: {text!r}")

    # -- the end -------------------------------------------------------------------------------

    def leave(self, stream: PushStream) -> None:
        """The connection goes: exactly what it holds may be claimed at once. (§10.8)"""
        world = self._world
        topic = world.model.topics.get(stream.name)
        if topic is None or self._is_old(stream):
            self._close(stream)
            return
        jobs = topic.jobs
        held = {
            seq
            for seq, lease in stream.held.items()
            if (job := jobs.known.get(seq)) is not None
            and job.is_leased
            and (job.lease, job.node) == (lease, stream.node)
        }
        others = {seq for seq, job in jobs.known.items() if job.is_leased} - held
        lasting, fits = topic.config.leases_durable, not world.has_no_space
        # Without room it is in no log: after a crash these leases run out.
        jobs.release(
            sorted(held), 0, now_ms=world.model.now_ms, lasting=lasting and fits, logged=fits
        )
        for grant in stream.given:
            world.waiting.grants.pop(f"lease_{grant.leases[0]:x}", None)
        self._close(stream)
        i24_exactly_its_leases_are_released(world, stream, held, others)

    def _close(self, stream: PushStream) -> None:
        self.open.remove(stream)
        self.woken.discard(stream)
        process = self._world.process
        process.engine.queue_commands.close(stream, process.driver.moment)
        self._newest.pop(stream, None)
        process.driver.nudge()


def i24_exactly_its_leases_are_released(
    world: "World", stream: PushStream, held: set[int], others: set[int]
) -> None:
    """A push stream that closes releases its leases, and no other's. (§10.8)

    Args:
        held: Seqs that it held.
        others: Seqs that were leased otherwise.
    """
    places = world.places()[stream.name]
    leased = {seq for seq, place in places.items() if place is JobPlace.LEASED}
    check(not held & leased, "I24", f"{held & leased} are still leased: {stream}")
    check(others <= leased, "I24", f"{others - leased} were another's: {stream}")
