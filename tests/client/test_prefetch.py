"""Jobs of several queues that come ahead of their use, over a real server."""

from collections.abc import Iterator
from itertools import count
from queue import SimpleQueue
from typing import Any

import pytest

from bench.flights import Server
from topics.client import Client, HeldJob, Prefetch, Retry, TopicNotFound, Unreachable

DEADLINE_S = 60.0
"""What anything may take before a test gives up on it; nothing is measured against it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


_names = count()


@pytest.fixture
def queues(client: Client) -> list[str]:
    names = [f"q{next(_names)}" for _ in range(2)]
    for name in names:
        client.put_topic(name, type="queue")
    return names


class Stock:
    """What a prefetch brought, jobs and errors; fails where `get` waits in vain."""

    def __init__(self) -> None:
        self.put = (items := SimpleQueue[Any]()).put
        self._items = items

    def get(self) -> Any:
        return self._items.get(timeout=DEADLINE_S)

    @property
    def is_empty(self) -> bool:
        return self._items.empty()


def test_jobs_of_all_queues_come(client: Client, queues: list[str]) -> None:
    """Also those that are appended while the claims wait. (§10.2)"""
    stock = Stock()
    with client.lease_keeper(capacity=10) as keeper, Prefetch(keeper) as prefetch:
        for queue in queues:
            prefetch.add(queue, stock.put, on_error=stock.put)
        for n in range(3):
            for queue in queues:
                client.append(queue, n)
                job = stock.get()
                assert (job.queue, job.data, job.ack()) == (queue, n, True)

    assert [client.topic(queue).count for queue in queues] == [0, 0]


def test_no_more_are_claimed_than_fit(client: Client, queues: list[str]) -> None:
    """All queues share the room, and each comes in turn. (§10.2)"""
    for queue in queues:
        client.append(queue, *range(5))
    stock, seen = Stock(), list[HeldJob[Any]]()
    with client.lease_keeper(capacity=1) as keeper, Prefetch(keeper) as prefetch:
        for queue in queues:
            prefetch.add(queue, stock.put, on_error=stock.put)
        for _ in range(10):
            seen.append(stock.get())
            in_flight = [client.topic(queue).queue for queue in queues]
            assert sum(counts.in_flight for counts in in_flight if counts) == 1
            assert stock.is_empty
            seen[-1].ack()

    assert sorted((job.queue, job.data) for job in seen) == [
        (queue, n) for queue in queues for n in range(5)
    ]
    assert {job.deliveries for job in seen} == {1}


def test_a_queue_without_jobs_keeps_no_room(client: Client, queues: list[str]) -> None:
    """A queue beside it gets on, though there is room for one job only."""
    idle, busy = queues
    stock = Stock()
    with client.lease_keeper(capacity=1) as keeper, Prefetch(keeper, wait_ms=30_000) as prefetch:
        prefetch.add(idle, stock.put, on_error=stock.put)
        prefetch.add(busy, stock.put, on_error=stock.put)
        for n in range(5):
            client.append(busy, n)
            job = stock.get()
            assert job.data == n
            job.ack()


def test_a_capacity_may_change(client: Client, queues: list[str]) -> None:
    """With more of it more jobs come."""
    queue, _ = queues
    client.append(queue, *range(3))
    stock = Stock()
    with client.lease_keeper(capacity=1) as keeper, Prefetch(keeper) as prefetch:
        prefetch.add(queue, stock.put, on_error=stock.put)
        stock.get()
        keeper.capacity = 3
        assert {stock.get().data, stock.get().data} == {1, 2}


def test_a_queue_that_is_stopped_brings_no_more(client: Client, queues: list[str]) -> None:
    """What a claim under way brings goes back. (§10.5)"""
    queue, _ = queues
    stock = Stock()
    with client.lease_keeper() as keeper, Prefetch(keeper, wait_ms=200) as prefetch:
        intake = prefetch.add(queue, stock.put, on_error=stock.put)
        intake.stop()
        client.append(queue, "a")
        intake.join()

        assert stock.is_empty
        assert client.claim(queue, node="other").jobs[0].data == "a"


def test_a_queue_that_is_missing(client: Client, queues: list[str]) -> None:
    """The program may make it; else it is an error."""
    missing, stock = f"{queues[0]}-missing", Stock()

    def make() -> None:
        client.put_topic(missing, type="queue")
        client.append(missing, "a")

    with client.lease_keeper() as keeper, Prefetch(keeper) as prefetch:
        prefetch.add(f"{missing}-too", stock.put, on_error=stock.put)
        assert isinstance(stock.get(), TopicNotFound)
        prefetch.add(missing, stock.put, on_error=stock.put, on_missing=make)
        assert stock.get().data == "a"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_jobs_that_the_program_does_not_take_go_back(client: Client, queues: list[str]) -> None:
    """The queue's thread ends with what `deliver` raised. (§10.5)"""
    queue, _ = queues
    client.append(queue, *range(3))

    def deliver(job: HeldJob[Any]) -> None:
        raise ValueError(job.data)

    with client.lease_keeper() as keeper:
        Prefetch(keeper).add(queue, deliver, on_error=lambda _error: None).join(DEADLINE_S)

        assert keeper.held == []
        assert len(client.claim(queue, node="other", max=3).jobs) == 3


def test_a_server_that_is_away_is_told() -> None:
    """Once for each queue, and nothing more is claimed."""
    stock = Stock()
    with Client("http://127.0.0.1:1", retry=Retry(for_s=0)) as client:
        keeper = client.lease_keeper()
        intake = Prefetch(keeper).add("jobs", stock.put, on_error=stock.put)

        assert isinstance(stock.get(), Unreachable)
        intake.join(DEADLINE_S)


def test_a_client_that_is_closed_ends_it(client: Client, server: Server, queues: list[str]) -> None:
    """Quietly: there is nothing more to claim, and nobody to tell."""
    stock = Stock()
    own = server.client()
    keeper = own.lease_keeper()
    intake = Prefetch(keeper, wait_ms=100).add(queues[0], stock.put, on_error=lambda _error: None)
    client.append(queues[0], "a")
    stock.get()

    own.close()
    intake.join(DEADLINE_S)

    assert stock.is_empty
