"""Figures of one engine at one moment, for those who keep them: totals, and the jobs of some queues.

Owns which topics, queues and routers are looked at, so that reading figures costs the same however many
there are.
"""

from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from topics.protocol.engine import Engine
from topics.protocol.state.state import State

QUEUES_MAX: Final = 20
"""Queues whose jobs are told."""
LOOKED_AT_MAX: Final = 1000
"""Topics and routers that are looked at."""


class Totals(NamedTuple):
    """Of everything.

    Attributes:
        appended: Records, since the start of the store.
        router_lag: Records that the router farthest behind has yet to pass, of the first
            `LOOKED_AT_MAX` routers.
        blocked_routers: Of the same.
        hot_bytes: Of records in memory.
    """

    appended: int
    router_lag: int
    blocked_routers: int
    records: int
    total_bytes: int
    hot_bytes: int


class JobCounts(NamedTuple):
    """Of one queue."""

    topic_id: int
    name: str
    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int


def totals(engine: Engine) -> Totals:
    state = engine.state
    lag, blocked = _routers(state)
    return Totals(
        state.appended_total,
        lag,
        blocked,
        state.records_total,
        state.total_bytes,
        state.memory.total_bytes,
    )


def _routers(state: State) -> tuple[int, int]:
    lag = blocked = 0
    for router in islice(state.routers.by_name.values(), LOOKED_AT_MAX):
        source = state.by_id.get(router.source_id)
        if source is not None:
            lag = max(lag, source.published_seq - router.cursor)
        blocked += router.blocked is not None
    return lag, blocked


def job_counts(engine: Engine, known: Collection[int]) -> Iterator[JobCounts]:
    """Of up to `QUEUES_MAX` queues: those written to last, then those of the ids `known`, then any."""
    state = engine.state
    for topic_id in _queue_ids(engine, known):
        topic, queue = state.by_id[topic_id], state.queues.get(topic_id)
        assert queue is not None
        queue.settle(state.now_ms)
        ready = topic.shown()[0] - queue.in_flight - queue.delayed
        yield JobCounts(
            topic_id, topic.name, ready, queue.in_flight, queue.delayed, queue.dead_lettered
        )


def _queue_ids(engine: Engine, known: Collection[int]) -> list[int]:
    state = engine.state
    active = islice(reversed(engine.active), LOOKED_AT_MAX)
    found: dict[int, None] = {}
    for topic_id in chain(active, known, islice(state.queues, QUEUES_MAX)):
        if state.queues.get(topic_id) is not None and topic_id in state.by_id:
            found[topic_id] = None
            if len(found) == QUEUES_MAX:
                break
    return list(found)
