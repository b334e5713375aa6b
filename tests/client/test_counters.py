"""Counters that several processes change at once, over the engine in memory."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from topics.client import Client, Record
from topics.client.counters import Counters
from topics.testing import MemoryTopics

TTL_MS = 600_000
DAY_MS = 86_400_000

Make = Callable[[], Counters]


@pytest.fixture
def make(memory_topics: MemoryTopics) -> Make:
    """Counters of one topic, each as a process of its own would have it."""
    return lambda: Counters(memory_topics.client.session, "limits", lambda: memory_topics.now_ms)


def test_every_process_has_the_same_counters(make: Make) -> None:
    """Whether it remembers some or begins with those that the newest record tells. (§3)"""
    one = make()
    granted = [one.increment("a", maximum=5, ttl_ms=TTL_MS) for _ in range(2)]
    granted += [make().increment("a", 2, maximum=5, ttl_ms=TTL_MS) for _ in range(2)]
    granted += [one.decrement("a", 4, ttl_ms=TTL_MS), one.decrement("a", ttl_ms=TTL_MS)]

    assert granted == [True, True, True, False, True, False]


def test_a_lock_is_a_key_that_is_added(make: Make) -> None:
    """One process has it, until its time is over or it is given back."""
    assert make().add("lock", ttl_ms=TTL_MS)
    assert not make().add("lock", ttl_ms=TTL_MS)
    assert make().add("other", 3, ttl_ms=TTL_MS)


def test_keys_expire_by_the_servers_clock(make: Make, memory_topics: MemoryTopics) -> None:
    """Each granted change begins the time of its key anew."""
    one, other = make(), make()
    assert one.add("a", ttl_ms=1000)
    memory_topics.advance(ms=600)
    assert one.increment("a", maximum=5, ttl_ms=1000)
    memory_topics.advance(ms=600)
    assert not other.add("a", ttl_ms=1000)
    memory_topics.advance(ms=1000)
    assert other.add("a", ttl_ms=1000)


def test_a_sum_of_keys_is_limited(make: Make) -> None:
    """Of keys of one family, which are changed in one order."""
    one, other, keys = make(), make(), ["w@1", "w@2"]

    assert one.increment("w@1", maximum=2, ttl_ms=TTL_MS, sum_of=keys)
    assert other.increment("w@2", maximum=2, ttl_ms=TTL_MS, sum_of=keys)
    assert not one.increment("w@2", maximum=2, ttl_ms=TTL_MS, sum_of=keys)
    with pytest.raises(ValueError, match="last @"):
        one.increment("w@2", maximum=2, ttl_ms=TTL_MS, sum_of=["v@1"])


def test_a_topic_that_was_deleted_begins_anew(make: Make, memory_topics: MemoryTopics) -> None:
    """What a process remembers of it is forgotten, after one error."""
    counters = make()
    for _ in range(3):
        counters.increment("a", maximum=5, ttl_ms=TTL_MS)
    memory_topics.client.delete_topic("limits")

    with pytest.raises(RuntimeError, match="lost"):
        counters.increment("a", maximum=5, ttl_ms=TTL_MS)
    assert counters.add("b", ttl_ms=TTL_MS)


def test_records_that_were_evicted_are_told(make: Make, memory_topics: MemoryTopics) -> None:
    """A replay needs all changes since its base. (§3.3)"""
    client, one, other = memory_topics.client, make(), make()
    assert one.increment("a", maximum=5, ttl_ms=TTL_MS)
    for _ in range(3):
        assert other.increment("a", maximum=9, ttl_ms=TTL_MS)
    client.configure_topic("limits", cap_records=1)

    with pytest.raises(RuntimeError, match="lost"):
        one.increment("a", maximum=5, ttl_ms=TTL_MS)


def test_old_counters_are_expired_ones(memory_topics: MemoryTopics) -> None:
    """Counters whose records are about to be gone are not replayed: each has expired by then."""
    client = memory_topics.client
    Counters(client.session, "limits", lambda: memory_topics.now_ms).add("a", ttl_ms=TTL_MS)

    years_later = Counters(client.session, "limits", lambda: memory_topics.now_ms + 900 * DAY_MS)

    assert years_later.increment("a", maximum=1, ttl_ms=TTL_MS)


def test_waiting_for_a_key(make: Make) -> None:
    """A key that is there, and a key that does not come in time. (§3)"""
    counters = make()
    assert not counters.wait("go", 0.05)
    counters.add("go", ttl_ms=TTL_MS)

    assert make().wait("go", 0.05)
    assert counters.wait("go")


def test_an_event_loop(memory_topics: MemoryTopics) -> None:
    """The same, awaited; a task waits while another one counts."""

    async def story() -> list[Any]:
        async with memory_topics.async_client() as client:
            counters = client.counters("limits")
            waiting = asyncio.ensure_future(counters.wait("go"))
            granted = [await counters.increment("a", maximum=1, ttl_ms=TTL_MS) for _ in range(2)]
            # The clock in memory is another than the machine's: a key that outlives both.
            granted.append(await counters.add("go", ttl_ms=100 * 365 * DAY_MS))
            return [*granted, await waiting]

    assert asyncio.run(story()) == [True, False, True, True]


def test_a_change_is_a_record_that_can_be_read(make: Make, memory_topics: MemoryTopics) -> None:
    """Its tag is the family, and what it asks for is its data. (docs/client.md)"""
    make().increment("logins@17", maximum=5, ttl_ms=TTL_MS)

    client: Client = memory_topics.client
    found = client.latest("limits", "logins", record_type=Record[dict[str, Any]])
    assert (found.data["op"], found.data["key"], found.data["amount"]) == ("incr", "logins@17", 1)
    assert client.topic("limits").config.ttl_ms >= DAY_MS
