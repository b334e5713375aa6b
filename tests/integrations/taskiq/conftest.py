"""A real server for the session."""

import uuid
from collections.abc import Iterator

import pytest

from bench.flights import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("taskiq"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.fixture
def namespace() -> str:
    """Of this test alone."""
    return f"t{uuid.uuid4().hex[:12]}"
