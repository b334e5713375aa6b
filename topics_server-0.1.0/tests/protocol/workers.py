"""Workers without a wire: queues, push streams that are pulled, and text that a disk must be asked for.

Owns what a test of §10 says often, so that the test itself is a story.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from topics.protocol.decide.push_streams import PushStream
from topics.protocol.state.queue import Queue
from topics.store.runs import SealedRun

from .harness import Harness


def queue(harness: Harness | None = None, name: str = "q", **config: object) -> Harness:
    """An engine with one queue, and perhaps a dead-letter topic's name in its config."""
    harness = harness or Harness()
    harness.put(name, type="queue", **config)
    return harness


def held_by(harness: Harness, name: str = "q") -> Queue:
    return harness.engine.state.queues[harness.topic(name).topic_id]


def alarm(engine: Harness) -> int:
    """When the engine wants to be asked though nothing happens until then."""
    at_ms = engine.engine.alarm_ms()
    assert at_ms is not None
    return at_ms


def parked(engine: Harness, **fields: object) -> int:
    """A claim that waits; its token."""
    assert engine.claim(**{"wait_ms": 10_000, **fields}) is None
    return engine.last_token


def given(engine: Harness) -> list[list[int]]:
    """The jobs of each answer to those who waited."""
    return [[job["$seq"] for job in answer["claimed"]] for answer in engine.woken()]


class Puller:
    """A worker's push stream as its driver sees it: told that there is news, then asked.

    Attributes:
        news: It was woken since it last looked.
        jobs: Every (seq, lease number, deliveries) that it was given.
    """

    def __init__(
        self,
        harness: Harness,
        limit: int = 1,
        *,
        node: str = "s",
        lease_ms: int | None = None,
        name: str = "q",
    ) -> None:
        self.news = True
        self.jobs: list[tuple[int, int, int]] = []
        self._harness = harness
        topic = harness.engine.queue_commands.require_queue(name, harness.now_ms)
        self.stream = PushStream(topic.topic_id, topic.name, node, limit, lease_ms, self._wake)
        harness.engine.open_push_stream(self.stream)

    def _wake(self) -> None:
        self.news = True

    def pull(self, *, stalls: bool = False) -> list[int]:
        """What it is given; asks as long as it is woken, as a driver does, and only then.

        Args:
            stalls: Its connection takes what it is given first, and no more.
        """
        harness, found = self._harness, list[int]()
        while self.news and not (stalls and found):
            self.news = False
            for jobs in harness.engine.queue_commands.take(self.stream, harness.moment):
                grant = jobs.grant
                self.jobs += zip(grant.seqs, grant.leases, grant.deliveries, strict=True)
                found += grant.seqs
                self.news = True  # after it has sent something it looks again
            harness.sync()
        return found

    @property
    def held(self) -> list[int]:
        return sorted(self.stream.held)

    def close(self) -> None:
        self._harness.engine.queue_commands.close(self.stream, self._harness.moment)
        self._harness.sync()


@contextmanager
def cold(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """No sealed text is in memory: reading it means to wait for a disk."""

    def none(run: SealedRun, spans: Any) -> None:
        return None

    with patch.context() as inner:
        inner.setattr(SealedRun, "read", none)
        yield
