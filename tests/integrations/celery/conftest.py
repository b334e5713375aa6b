"""A server for the tests of one file, and kombu's connections to it."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest
from contract.server import Server
from kombu import Connection

from topics.client import Client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        yield client


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Of the names of a test's topics, so that it shares none with another."""
    digest = sha256(request.node.name.encode()).hexdigest()[:8]
    return f"{request.node.originalname[:80]}.{digest}."


@pytest.fixture
def connect(server: Server, prefix: str) -> Iterator[Callable[..., Any]]:
    """Opens connections, which are closed at the end."""
    opened = []

    def connect(**options: Any) -> Connection:
        given = {"prefix": prefix, "wait_ms": 300, "retry_s": 1.0, **options}
        url = f"topics://127.0.0.1:{server.port}"
        opened.append(Connection(url, transport_options=given))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.release()
