"""A real server at the limits that the kernel sets to a process: descriptors, memory, file sizes.

The limits are set while it runs, so that they are met in the middle of its work.  (F27, F28)
"""

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from contract.api import Api, dumps
from contract.server import Server, until
from contract.wire import Ended, Http1

JSON = {"content-type": "application/json"}


class Tally:
    """Appends to one topic, and what came of them: seq -> text of those that were acknowledged."""

    def __init__(self, server: Server, durability: str) -> None:
        self.acked: dict[int, str] = {}
        self.tried: set[str] = set()
        self.statuses: list[int] = []
        self.wire = server.connect(Http1)
        Api(self.wire).put("t", durability=durability)

    def append(self, size: int) -> int:
        """The status of one append; 0 where there was no answer."""
        text = f"{len(self.tried)}:".ljust(size, "x")
        self.tried.add(text)
        try:
            self.wire.send("POST", "/v0/topics/t", dumps({"records": [{"data": text}]}), JSON)
            answer = self.wire.receive()
        except (Ended, OSError):
            self.wire.reset()
            self.statuses.append(0)
            return 0
        if answer.status in (200, 201):
            (seq,) = answer.json["seqs"]
            assert seq not in self.acked
            self.acked[seq] = text
        self.statuses.append(answer.status)
        return answer.status

    def assert_kept(self, api: Api) -> None:
        """Everything that was acknowledged is there, and nothing that was not tried."""
        walked = api.walk("t", limit=1000)
        # After a failed write a start reports what may be lost, also where nothing is.
        found = {each["$seq"]: each["data"] for each in walked if "$seq" in each}
        assert self.acked.items() <= found.items()
        assert set(found.values()) <= self.tried


@contextmanager
def limited(server: Server, which: int, most: int) -> Iterator[None]:
    """A soft limit of the server's process, for a while."""
    before = resource.prlimit(server.pid, which)
    resource.prlimit(server.pid, which, (most, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have ended of it
            resource.prlimit(server.pid, which, before)


def assert_takes_writes(api: Api) -> None:
    """It does once the log has room: what was written before may have to be sealed first."""
    body = {"records": [{"data": "again"}]}
    until("a write", lambda: api.ask("POST", "/v0/topics/t", body).status == 200)


def restarted(server: Server) -> Api:
    server.kill()
    return Api(server.start().connect(Http1))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(**settings: object) -> Server:
        servers.append(Server(tmp_path / "home", **settings).start())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_no_descriptor_is_left(start: Callable[..., Server], durability: str) -> None:
    """New connections wait, those that are open go on writing through rotations and seals or are
    refused before anything is applied, and all is well again when descriptors are free. (F27)"""
    server = start(wal_file_bytes=1 << 20, segment_max_records=64)
    tally = Tally(server, durability)
    tally.append(10)
    used = max(int(each.name) for each in Path(f"/proc/{server.pid}/fd").iterdir()) + 1
    waiting = []
    with limited(server, resource.RLIMIT_NOFILE, used + 2):
        for _ in range(12):
            waiting.append(socket.create_connection(("127.0.0.1", server.port)))
        for _ in range(120):
            tally.append(30_000)
        assert set(tally.statuses) <= {200, 201, 429}
    for each in waiting:
        each.close()

    until("a write", lambda: tally.append(10) == 200)
    until("a new connection", server.is_ready)
    lines = [line for line in server.log_text().splitlines() if "descriptor" in line.lower()]
    assert len(lines) < 20, lines[:20]
    tally.assert_kept(Api(server.connect(Http1)))
    tally.assert_kept(restarted(server))
    assert len(tally.acked) > 10


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_no_file_may_grow(start: Callable[..., Server], durability: str) -> None:
    """No byte of a file may lie behind the first 512 KiB: what needs one is refused, or the log becomes
    read-only and says so; what was acknowledged is there after a restart without the limit. (F6,
    F8)"""
    server = start(wal_file_bytes=8 << 20, segment_max_records=512)
    tally = Tally(server, durability)
    with limited(server, resource.RLIMIT_FSIZE, 512 << 10):
        for _ in range(200):
            tally.append(30_000)
        assert set(tally.statuses) <= {200, 201, 429, 500, 503}
        assert tally.statuses.count(500) <= 1, "after a failed write none is tried"
        refused = [status for status in tally.statuses if status in (429, 500, 503)]
        assert refused, "nothing met the limit"
        tally.assert_kept(Api(server.connect(Http1)))

    tally.assert_kept(restarted(server))
    assert len(tally.acked) > 10
    assert_takes_writes(Api(server.connect(Http1)))


def address_space_bytes(pid: int) -> int:
    """VmSize of a process (proc(5))."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmSize:")
    )
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_no_memory_is_left(start: Callable[..., Server], durability: str) -> None:
    """With 24 MiB of address space left, large batches are refused or fail as a whole, also where
    the process ends; what was acknowledged is there. (F28)"""
    server = start(wal_file_bytes=1 << 20, max_record_bytes=16 << 20)
    tally = Tally(server, durability)
    tally.append(100)
    met = False
    with limited(server, resource.RLIMIT_AS, address_space_bytes(server.pid) + (24 << 20)):
        for size in (1 << 20, 4 << 20, 8 << 20, 12 << 20) * 3:
            met |= tally.append(size) not in (200, 201)
            tally.append(100)
            if server.has_ended:
                break
        assert met, "nothing met the limit"
        assert set(tally.statuses) <= {0, 200, 201, 413, 429, 500, 503}

    if server.has_ended:
        server.wait_for_code()
        api = Api(server.start().connect(Http1))
    else:
        api = restarted(server)
    tally.assert_kept(api)
    assert_takes_writes(api)
