"""Real servers for the session, over HTTP/1.1 and over HTTP/2; private ones on request.

Every test runs over our own server.  Those marked `every_server` run over it with reader processes,
and over stock servers, too: one of each part of the contract that a server could carry wrongly.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from .api import Api
from .hosts import HOSTS, OWN, READERS, STOCK, Host
from .keyed import ENTRIES, FULL, INNER, OTHER, Desk, prepared
from .server import Server
from .streams import Sse2, Ws2
from .wire import Http1, Http2, Wire

PROTOCOLS: dict[str, Callable[[int], Wire]] = {"http1": Http1, "http2": Http2}
HTTP2: tuple[object, ...] = ("http2", Http2, Sse2, Ws2)
"""What a parameter is where a test speaks HTTP/2."""
MAX_BODY_BYTES = 1 << 20

_names = count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over the servers and the protocols that it is for."""
    is_for_all = metafunc.definition.get_closest_marker("every_server") is not None
    hosts = (OWN, READERS, *STOCK) if is_for_all else (OWN,)
    given = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "wire" in metafunc.fixturenames and "wire" not in given:
        ways = [(host, each) for host in hosts for each in PROTOCOLS if _can(host, each)]
        ids = [each if host is OWN else f"{host.name}-{each}" for host, each in ways]
        wires = [(host.name, each) for host, each in ways]
        if "server" in metafunc.fixturenames:
            both = [(wire[0], wire) for wire in wires]
            metafunc.parametrize(("server", "wire"), both, indirect=True, ids=ids)
        else:
            metafunc.parametrize("wire", wires, indirect=True, ids=ids)
    elif is_for_all:
        for fixture in ("server", "private"):
            if fixture in metafunc.fixturenames:
                metafunc.parametrize(fixture, [host.name for host in hosts], indirect=True)


def _can(host: Host, protocol: str) -> bool:
    return host.is_http2 or protocol == "http1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of HTTP/2 for a server without it, and tests that are not true of a
    server."""
    left_out = [item for item in items if not _is_for(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_for(item: pytest.Item) -> bool:
    if any(item.name in host.left_out for host in HOSTS.values()):
        return False
    values = list(getattr(getattr(item, "callspec", None), "params", {}).values())
    hosts = [HOSTS[value] for value in values if isinstance(value, str) and value in HOSTS]
    return all(host.is_http2 for host in hosts) or not any(value in HTTP2 for value in values)


class Shared:
    """Servers that live as long as the session, and connections to them."""

    def __init__(self, make_home: Callable[[str], Path]) -> None:
        self._make_home = make_home
        self._servers: dict[str, Server] = {}
        self._wires: dict[tuple[str, str], Wire] = {}

    def server(self, host: Host) -> Server:
        if host.name not in self._servers:
            home = self._make_home(f"shared-{host.name}")
            # Large bodies go to every parser: what bounds them otherwise is another bound.
            settings = {
                "max_body_bytes": MAX_BODY_BYTES,
                "max_command_bytes": MAX_BODY_BYTES,
                "max_record_bytes": 100_000,
            }
            self._servers[host.name] = Server(home, host, **settings).start()
        return self._servers[host.name]

    def wire(self, host: Host, protocol: str) -> Wire:
        if (host.name, protocol) not in self._wires:
            self._wires[host.name, protocol] = PROTOCOLS[protocol](self.server(host).port)
        return self._wires[host.name, protocol]

    def stop(self) -> None:
        """Whatever requests the tests sent, they stop, and their logs have no error."""
        for wire in self._wires.values():
            wire.reset()
        for server in self._servers.values():
            assert server.stop() == 0
            server.assert_log_is_quiet()

    def kill(self) -> None:
        for server in self._servers.values():
            server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory.mktemp)
    try:
        yield made
        made.stop()
    finally:
        made.kill()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, shared: Shared) -> Server:
    """The server that most tests share."""
    return shared.server(HOSTS[getattr(request, "param", OWN.name)])


@pytest.fixture(scope="session")
def wire(request: pytest.FixtureRequest, shared: Shared) -> Wire:
    host, protocol = request.param
    return shared.wire(HOSTS[host], protocol)


@pytest.fixture
def api(wire: Wire) -> Iterator[Api]:
    wire.reset()
    yield Api(wire)
    wire.reset()


@pytest.fixture
def wires(wire: Wire) -> Iterator[Callable[[], Wire]]:
    """More connections of the same kind."""
    made: list[Wire] = []

    def another() -> Wire:
        made.append(PROTOCOLS["http1" if isinstance(wire, Http1) else "http2"](wire.port))
        return made[-1]

    yield another
    for one in made:
        one.reset()


@pytest.fixture
def name() -> str:
    """The name of a topic that no other test uses."""
    return f"t{next(_names)}"


@pytest.fixture
def private(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers for one test only; they end with it."""
    make = partial(Server, under=HOSTS[getattr(request, "param", OWN.name)])
    servers: list[Server] = []

    def start(**settings: object) -> Server:
        servers.append(make(tmp_path / f"server{len(servers)}", **settings).start())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Host], Server]]:
    """Servers with the keys of `ENTRIES`; whatever they were sent, their logs hold no secret."""
    servers: dict[str, Server] = {}

    def start(host: Host) -> Server:
        if host.name not in servers:
            home = tmp_path_factory.mktemp(f"keyed-{host.name}")
            servers[host.name] = Server(home, host, api_keys=",".join(ENTRIES)).start()
        return servers[host.name]

    try:
        yield start
        for server in servers.values():
            assert server.stop() == 0
            server.assert_log_is_quiet()
            for secret in (FULL, OTHER, INNER):
                assert secret not in server.log_text()
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)


@pytest.fixture(params=sorted(PROTOCOLS))
def desk(request: pytest.FixtureRequest, keyed: Callable[[Host], Server]) -> Iterator[Desk]:
    server = keyed(OWN)
    wire = PROTOCOLS[request.param](server.port)
    yield prepared(server, wire)
    wire.reset()
