"""A real server for the session; a broker of its own for each test."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dramatiq
import pytest
from dramatiq import Worker

from bench.flights import Server
from topics.client import Client
from topics.integrations.dramatiq import TopicsBroker


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("dramatiq"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[Client]:
    """Of all backends; it keeps nothing of a topic."""
    with server.client() as client:
        yield client


@pytest.fixture
def namespace() -> str:
    """Of this test alone."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def broker(url: str, namespace: str) -> Iterator[TopicsBroker]:
    broker = TopicsBroker(url=url, namespace=namespace)
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def working() -> Callable[..., object]:
    """A worker in this process, as a context."""

    @contextmanager
    def working(broker: TopicsBroker, threads: int = 2) -> Iterator[Worker]:
        worker = Worker(broker, worker_timeout=100, worker_threads=threads)
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()

    return working
