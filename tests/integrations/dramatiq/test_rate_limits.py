"""Counters that several processes change at once: every change is atomic, and counts expire by the server's clock."""

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from dramatiq.rate_limits import Barrier, ConcurrentRateLimiter, WindowRateLimiter

from topics.client import Client
from topics.integrations.dramatiq import TopicsRateLimiterBackend
from topics.testing import MemoryTopics

TTL_MS = 600_000
WAIT_MS = 100_000

Make = Callable[[], TopicsRateLimiterBackend]


@pytest.fixture
def make(client: Client) -> Make:
    """Backends of one topic, each as a process of its own would have it."""
    name = f"l{uuid.uuid4().hex[:12]}"
    return lambda: TopicsRateLimiterBackend(client=client, namespace=name)


@pytest.mark.parametrize(
    ("calls", "granted"),
    [
        ([("add", "a", 1, TTL_MS), ("add", "a", 1, TTL_MS)], [True, False]),
        ([("incr", "a", 2, 3, TTL_MS), ("incr", "a", 2, 3, TTL_MS)], [True, False]),
        ([("incr", "a", 3, 3, TTL_MS), ("decr", "a", 3, 0, TTL_MS)], [True, True]),
        ([("decr", "a", 1, 0, TTL_MS)], [False]),
        ([("add", "a", 2, TTL_MS), *[("decr", "a", 1, 1, TTL_MS)] * 2], [True, True, False]),
        ([("add", "a", 1, TTL_MS), ("add", "b", 1, TTL_MS)], [True, True]),
    ],
)
@pytest.mark.parametrize("is_one", [True, False], ids=["one process", "a process a call"])
def test_changes(make: Make, calls: list[Any], granted: list[bool], is_one: bool) -> None:
    """The same is granted, whether one process calls or each call is another's."""
    one = make()
    backends = [one if is_one else make() for _ in calls]

    got = [getattr(b, op)(*args) for b, (op, *args) in zip(backends, calls, strict=True)]

    assert got == granted


def test_a_sum_of_keys_is_limited(make: Make) -> None:
    backend, other = make(), make()

    def keys() -> list[str]:
        return ["w@2", "w@1"]

    assert backend.incr_and_sum("w@1", keys, 1, 2, TTL_MS)
    assert other.incr_and_sum("w@2", keys, 1, 2, TTL_MS)
    assert not backend.incr_and_sum("w@2", keys, 1, 2, TTL_MS)
    with pytest.raises(ValueError, match="last @"):
        backend.incr_and_sum("w@2", lambda: ["v@1"], 1, 2, TTL_MS)


def test_keys_expire_by_the_servers_clock() -> None:
    """A key is there for its time, which each change of it begins anew."""
    with MemoryTopics(start_ms=int(time.time() * 1000)) as topics:
        backend = TopicsRateLimiterBackend(client=topics.client)
        other = TopicsRateLimiterBackend(client=topics.client)
        assert backend.add("a", 1, 1000)
        topics.advance(ms=600)
        assert backend.incr("a", 1, 5, 1000)
        topics.advance(ms=600)
        assert not other.add("a", 1, 1000)
        topics.advance(ms=1000)
        assert other.add("a", 1, 1000)
        assert not backend.add("a", 1, 1000)


def test_counters_outlive_the_records_that_made_them(make: Make) -> None:
    """A process that remembers nothing begins with the counters that the newest record tells."""
    for _ in range(5):
        assert make().incr("a", 1, 5, TTL_MS)

    assert not make().incr("a", 1, 5, TTL_MS)


def test_one_of_many_at_once_is_granted(make: Make) -> None:
    """Two changes at once are one after the other in the log."""
    backends = [make() for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        granted = list(pool.map(lambda at: backends[at % 4].incr("a", 1, 5, TTL_MS), range(24)))

    assert sum(granted) == 5


def test_a_topic_that_was_deleted_begins_anew(make: Make) -> None:
    """What a process remembers of it is forgotten, after one error."""
    backend = make()
    for _ in range(3):
        backend.incr("a", 1, 5, TTL_MS)
    backend.client.delete_topic(backend.namespace)

    with pytest.raises(RuntimeError, match="lost"):
        backend.incr("a", 1, 5, TTL_MS)
    assert backend.add("b", 1, TTL_MS)


def test_limiters_of_dramatiq(make: Make) -> None:
    mutex = ConcurrentRateLimiter(make(), "one at a time", limit=1)
    window = WindowRateLimiter(make(), "a window", limit=2, window=3600)

    with mutex.acquire() as is_mine, mutex.acquire(raise_on_failure=False) as is_mine_too:
        assert (is_mine, is_mine_too) == (True, False)
    with mutex.acquire(raise_on_failure=False) as is_mine:
        assert is_mine
    granted = []
    for _ in range(4):
        with window.acquire(raise_on_failure=False) as is_granted:
            granted.append(is_granted)
    assert granted == [True, True, False, False]


def test_a_barrier_lets_all_go_at_once(make: Make) -> None:
    """Each party waits at the server until the last one has come."""
    assert Barrier(make(), "three").create(parties=3)
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(Barrier(make(), "three").wait, timeout=WAIT_MS) for _ in range(3)]

        assert [wait.result() for wait in waits] == [True, True, True]


def test_waiting_ends_in_time(make: Make) -> None:
    backend = make()

    assert not backend.wait("never@events", 1)
    backend.wait_notify("now@events", TTL_MS)
    assert backend.wait("now@events", None)


def test_old_counters_are_expired_ones() -> None:
    """Counters whose records are about to be gone are not replayed: each has expired by then."""
    with MemoryTopics(start_ms=1_000_000_000_000) as topics:
        TopicsRateLimiterBackend(client=topics.client).add("a", 1, TTL_MS)

        # The newest record is years old by this machine's clock.
        assert TopicsRateLimiterBackend(client=topics.client).incr("a", 1, 1, TTL_MS)
