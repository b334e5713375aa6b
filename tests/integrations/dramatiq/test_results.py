"""Results: stored, waited for, expired."""

import threading
import uuid
from collections.abc import Callable
from typing import Any

import dramatiq
import pytest
from dramatiq import Message, PickleEncoder, group
from dramatiq.results import ResultFailure, ResultMissing, Results, ResultTimeout

from topics.client import Client
from topics.integrations.dramatiq import TopicsBackend, TopicsBroker, TopicsRateLimiterBackend

WAIT_MS = 100_000
A_DAY_MS = 86_400_000


@pytest.fixture
def backend(client: Client) -> TopicsBackend:
    return TopicsBackend(client=client, namespace=f"r{uuid.uuid4().hex[:12]}")


def message(name: str = "add") -> "Message[Any]":
    return Message("default", name, (), {}, {})


def test_a_result_comes_back(backend: TopicsBackend) -> None:
    sent = message()
    backend.store_result(sent, {"sum": 3}, A_DAY_MS)

    assert backend.get_result(sent) == {"sum": 3}
    assert backend.get_result(sent, block=True) == {"sum": 3}


def test_a_missing_result_is_said_to_be(backend: TopicsBackend) -> None:
    with pytest.raises(ResultMissing):
        backend.get_result(message())
    with pytest.raises(ResultTimeout):
        backend.get_result(message(), block=True, timeout=1)


def test_a_caller_waits_for_its_result_alone(backend: TopicsBackend) -> None:
    """Results of other messages do not end the wait. (§3)"""
    sent, got = message(), []
    waiting = threading.Thread(
        target=lambda: got.append(backend.get_result(sent, block=True, timeout=WAIT_MS))
    )
    waiting.start()

    backend.store_result(message(), "other", A_DAY_MS)
    backend.store_result(sent, "own", A_DAY_MS)
    waiting.join(WAIT_MS)

    assert got == ["own"]


def test_an_exception_is_a_failure(backend: TopicsBackend) -> None:
    sent = message()
    backend.store_exception(sent, ValueError("no"), A_DAY_MS)

    with pytest.raises(ResultFailure, match="no"):
        backend.get_result(sent)


def test_a_result_is_gone_after_its_time(backend: TopicsBackend) -> None:
    """Each result has its own, whatever the topic keeps."""
    sent = message()
    backend.store_result(sent, 1, 0)

    with pytest.raises(ResultMissing):
        backend.get_result(sent)


def test_the_topic_keeps_records_for_as_long_as_the_longest(backend: TopicsBackend) -> None:
    """Its `ttl_ms` is raised and not lowered (§0.10)."""

    def kept_ms() -> int:
        return backend.client.topic(backend.namespace).config.ttl_ms

    backend.store_result(message(), 1, 1000)
    assert kept_ms() == A_DAY_MS
    backend.store_result(message(), 1, 3 * A_DAY_MS)
    assert kept_ms() == 3 * A_DAY_MS
    backend.store_result(message(), 1, 2 * A_DAY_MS)
    assert kept_ms() == 3 * A_DAY_MS


def test_a_topic_that_keeps_all_stays_so(client: Client) -> None:
    name = f"r{uuid.uuid4().hex[:12]}"
    client.put_topic(name, ttl_ms=0)
    backend = TopicsBackend(client=client, namespace=name)

    backend.store_result(message(), 1, 3 * A_DAY_MS)

    assert client.topic(name).config.ttl_ms == 0


def test_any_encoder_will_do(client: Client) -> None:
    backend = TopicsBackend(
        client=client, namespace=f"r{uuid.uuid4().hex[:12]}", encoder=PickleEncoder()
    )
    sent = message()

    backend.store_result(sent, {1, 2}, A_DAY_MS)

    assert backend.get_result(sent) == {1, 2}


def test_keys_may_be_longer_than_tags(client: Client) -> None:
    """A tag has at most 256 bytes (§2)."""
    backend = TopicsBackend(
        client=client, namespace=f"r{uuid.uuid4().hex[:12]}", use_namespace_prefix_keys=True
    )
    sent = message("a" * 300)

    backend.store_result(sent, 1, A_DAY_MS)

    assert backend.get_result(sent) == 1


def test_pipelines_and_groups(
    broker: TopicsBroker, backend: TopicsBackend, client: Client, working: Callable[..., Any]
) -> None:
    """A pipeline hands on results; a group's callback is called once, after the last of it."""
    limits = TopicsRateLimiterBackend(client=client, namespace=f"l{uuid.uuid4().hex[:12]}")
    broker.add_middleware(Results(backend=backend))
    broker.add_middleware(dramatiq.middleware.GroupCallbacks(limits))
    done: list[str] = []

    @dramatiq.actor(store_results=True)
    def add(one: int, other: int) -> int:
        return one + other

    @dramatiq.actor
    def all_done() -> None:
        done.append("done")

    pipe = add.message(1, 2) | add.message(3)
    sums = group(add.message(number, number) for number in range(4))
    sums.add_completion_callback(all_done.message())
    pipe.run()
    sums.run()
    with working(broker):
        assert pipe.get_result(block=True, timeout=WAIT_MS) == 6
        assert list(sums.get_results(block=True, timeout=WAIT_MS)) == [0, 2, 4, 6]
        broker.join("default", timeout=WAIT_MS)

    assert done == ["done"]
