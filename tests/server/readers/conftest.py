"""Real servers with reader processes, for the tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .served import WithReaders


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WithReaders]]:
    """Starts servers with readers, which end with the test."""
    servers: list[WithReaders] = []

    def start(readers: int = 2, **settings: object) -> WithReaders:
        servers.append(WithReaders(tmp_path / f"server{len(servers)}", **settings))
        return servers[-1].start_all(readers)

    yield start
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithReaders]:
    """A server with readers that most tests of a file share; it ends well, and its log is quiet."""
    server = WithReaders(tmp_path_factory.mktemp("shared")).start_all()
    try:
        yield server
        assert server.stop() == 0
        server.assert_log_is_quiet()
    finally:
        server.__exit__(None, None, None)
