"""One real server for the session, asked over HTTP/1.1 and over HTTP/2; private ones on request."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from .api import Api
from .server import Server
from .wire import Http1, Http2, Wire

PROTOCOLS: dict[str, Callable[[int], Wire]] = {"http1": Http1, "http2": Http2}
MAX_BODY_BYTES = 1 << 20

_names = count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that most tests share.  Whatever requests it got, its log has no error."""
    home = tmp_path_factory.mktemp("shared")
    with Server(home, max_body_bytes=MAX_BODY_BYTES, max_record_bytes=100_000) as shared:
        yield shared
        assert shared.stop() == 0
        shared.assert_log_is_quiet()


@pytest.fixture(scope="session", params=PROTOCOLS)
def wire(request: pytest.FixtureRequest, server: Server) -> Iterator[Wire]:
    wire = PROTOCOLS[request.param](server.port)
    yield wire
    wire.reset()


@pytest.fixture
def api(wire: Wire) -> Iterator[Api]:
    wire.reset()
    yield Api(wire)
    wire.reset()


@pytest.fixture
def wires(wire: Wire, server: Server) -> Iterator[Callable[[], Wire]]:
    """More connections of the same kind."""
    made: list[Wire] = []

    def another() -> Wire:
        made.append(PROTOCOLS["http1" if isinstance(wire, Http1) else "http2"](server.port))
        return made[-1]

    yield another
    for one in made:
        one.reset()


@pytest.fixture
def name() -> str:
    """The name of a topic that no other test uses."""
    return f"t{next(_names)}"


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers for one test only; they end with it."""
    servers: list[Server] = []

    def start(**settings: object) -> Server:
        servers.append(Server(tmp_path / f"server{len(servers)}", **settings).start())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)
