"""A server whose disk had no space at a write or sync opens its data anew when there is some, by itself;
after any other failure it stays read-only until a restart. (§0.5, §11)"""

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from contract.api import Api
from contract.hosts import Host
from contract.server import until
from contract.wire import Answer, Ended, Http1, ask

from .readers.served import Sse, WithReaders, append, children, put

PROGRAM = Path(__file__).with_name("full_disk.py")


class Disk:
    """What the disk of a server says."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def fails(self, number: int) -> None:
        draft = self._file.with_suffix(".tmp")
        draft.write_text(str(number))
        draft.replace(self._file)

    def fails_after_trials(self, number: int) -> None:
        """A file that is not named yet can be written."""
        self.fails(-number)

    def works(self) -> None:
        self._file.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "says")


@pytest.fixture(params=["own", "hypercorn"])
def under(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WithReaders]]:
    made: list[WithReaders] = []

    def begin(under: str = "own", **settings: Any) -> WithReaders:
        words = (
            sys.executable,
            "-P",
            str(PROGRAM),
            str(tmp_path / "says"),
            "serve",
            "--server",
            under,
        )
        host = Host(under, lambda _: words, has_port_file=True)
        made.append(WithReaders(tmp_path / "home", host, **settings))
        return made[-1].start()

    yield begin
    for server in made:
        server.__exit__(None, None, None)


def ready(port: int) -> Answer:
    wire = Http1(port)
    try:
        return ask(wire, "GET", "/v0/ready")
    finally:
        wire.reset()


def is_ready(port: int) -> bool:
    with suppress(OSError, Ended):
        return ready(port).status == 200
    return False


def fails(server: WithReaders) -> tuple[int, str]:
    """The answer to an append whose write fails: its status, and what is known of it."""
    wire = Http1(server.port)
    wire.send(
        "POST", "/v0/topics/t", b'{"records":[{"data":2}]}', {"content-type": "application/json"}
    )
    answer = wire.receive()
    wire.reset()
    return answer.status, answer.error["detail"]["outcome"]


def datas(port: int, topic: str) -> list[Any]:
    """What a reader finds, whatever may have been lost between."""
    wire = Http1(port)
    found = [each["data"] for each in Api(wire).walk(topic, limit=1000) if "data" in each]
    wire.reset()
    return found


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_room_that_ends_at_the_write_comes_back_by_itself(
    start: Callable[..., WithReaders], disk: Disk, durability: str, number: int, under: str
) -> None:
    """The write's outcome is unknown, later writes and `/ready` say what is missing, reads go on; once
    there is space, the same process serves all that was acknowledged, and takes writes."""
    server = start(under)
    wire = server.http()
    put(wire, "t", durability=durability)
    assert append(wire, "t", 1).status == 200

    disk.fails(number)
    assert fails(server) == (500, "unknown")
    until("read-only", lambda: append(server.http(), "t", 3).status == 503)
    refused = append(server.http(), "t", 4)
    assert refused.error["code"] == "not_ready"
    assert refused.error["detail"] == {"reason": "read_only", "limit": "disk"}
    assert ready(server.port).error["detail"] == refused.error["detail"]
    assert datas(server.port, "t") == [1]

    pid = server.pid
    disk.works()
    until("ready again", lambda: is_ready(server.port))
    assert append(server.http(), "t", 5).status == 200
    found = datas(server.port, "t")
    assert (found[0], found[-1]) == (1, 5)
    assert set(found) <= {1, 2, 5}
    assert server.pid == pid
    assert server.stop() == 0


def test_a_disk_that_broke_is_read_only_until_a_restart(
    start: Callable[..., WithReaders], disk: Disk
) -> None:
    """EIO does not pass by itself: what the kernel dropped is not known. (§0.5)"""
    server = start()
    wire = server.http()
    put(wire, "t")
    disk.fails(errno.EIO)
    assert fails(server)[0] == 500
    disk.works()

    refused = append(server.http(), "t", 2)
    assert (refused.status, refused.error["detail"]) == (503, {"reason": "read_only"})
    assert "anew" not in server.log_text()


def test_streams_leases_and_memory_end_as_with_a_crash(
    start: Callable[..., WithReaders], disk: Disk
) -> None:
    """Streams end with 503 and go on from their last id; a job that was leased can be claimed at once;
    an `ephemeral` topic is empty; readers start anew. (§10.1)"""
    server = start(readers=2)
    until("readers", lambda: server.metric("topics_reader_up") == 2)
    before = children(server.pid)
    wire = server.http()
    put(wire, "t")
    put(wire, "gone", durability="ephemeral")
    put(wire, "q", type="queue")
    append(wire, "t", 1)
    append(wire, "gone", 1)
    append(wire, "q", "job")
    claim = orjson.dumps({"node": "w", "lease_ms": 3_600_000})
    assert len(ask(wire, "POST", "/v0/topics/q/claim", claim).json["claimed"]) == 1
    wid = ask(wire, "POST", "/v0/watch", b'{"topics": {"t": {"from_seq": 0}}}').json["wid"]
    stream = Sse(server.port, wid)
    assert stream.seqs(1) == [1]

    disk.fails(errno.ENOSPC)
    assert fails(server)[0] == 500
    disk.works()
    assert stream.last_error()["code"] == 503
    stream.reset()
    until("ready again", lambda: is_ready(server.port))

    wire = server.http()
    assert len(ask(wire, "POST", "/v0/topics/q/claim", claim).json["claimed"]) == 1
    assert datas(server.port, "gone") == []
    until("readers again", lambda: server.metric("topics_reader_up") == 2)
    assert not set(before) & set(children(server.pid))
    assert server.stop() == 0


def test_a_signal_ends_a_server_that_waits_for_space(
    start: Callable[..., WithReaders], disk: Disk
) -> None:
    """It is read-only, and a supervisor stops it: exit 0, and the next start has what was
    acknowledged."""
    server = start()
    put(server.http(), "t")
    append(server.http(), "t", 1)
    disk.fails(errno.ENOSPC)
    assert fails(server)[0] == 500
    assert server.stop() == 0
    disk.works()

    server.start()
    assert datas(server.port, "t")[0] == 1


def test_space_that_is_gone_again_is_waited_for(
    start: Callable[..., WithReaders], disk: Disk, under: str
) -> None:
    """The start that follows finds no space either: it is tried again, and the process does not end."""
    server = start(under)
    put(server.http(), "t")
    append(server.http(), "t", 1)
    for _ in range(2):
        disk.fails(errno.ENOSPC)
        assert fails(server)[0] == 500
        disk.fails_after_trials(errno.ENOSPC)
        until("an attempt", lambda: "cannot be opened anew yet" in server.log_text())
        disk.works()
        until("ready again", lambda: is_ready(server.port))
        assert datas(server.port, "t")[0] == 1
    assert server.log_text().count("the data is opened anew") == 2
    assert server.stop() == 0
