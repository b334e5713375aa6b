"""Sandboxes that forbid system calls: a server does without, or names the call when it starts, and calls
nothing corrupt that it could not read."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from contract.api import Api
from contract.hosts import Host
from contract.server import DEADLINE_S, Server, environment, until
from contract.wire import Http1, ask

from topics.store.files import OsFiles
from topics.store.inspect import inspect

from . import sandbox

PROGRAM = Path(sandbox.__file__)
SPARED = (
    *("preadv", "preadv2", "pwritev", "pwritev2", "fallocate", "fadvise64", "fdatasync", "madvise"),
    *("fstatfs", "sched_getaffinity", "sched_setaffinity", "getrlimit", "setrlimit", "prlimit64"),
    *("getrusage", "memfd_create", "prctl", "clock_gettime"),
)
"""For which there is a plain way, or which are worth having and not needed."""

pytestmark = pytest.mark.skipif(
    not sandbox.is_possible(), reason="no filter of system calls by these numbers here"
)


def words(number: int, *calls: str) -> tuple[str, ...]:
    return sys.executable, str(PROGRAM), str(number), ",".join(calls), "serve"


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_what_has_a_plain_way_is_done_without(tmp_path: Path, number: int) -> None:
    """All at once: the server starts, with readers, writes, seals and reads again; an erasure is answered,
    and the next start has all of it."""
    host = Host("sandboxed", lambda _: words(number, *SPARED), has_port_file=True)
    with Server(tmp_path, host, readers=1, wal_file_bytes=65_536) as server:
        api = Api(server.connect(Http1))
        api.put("t", durability="fsync")
        for _ in range(5):
            api.append("t", *["x" * 4000] * 10)
        until("a reader", lambda: b'topics_reader_up{reader="0"} 1' in metrics(server))
        wire = server.connect(Http1)
        body = orjson.dumps({"before_seq": 11, "erase": True})
        assert ask(wire, "POST", "/v0/topics/t/delete", body).json["deleted"] == 10
        assert len([each for each in api.walk("t", limit=1000) if "$seq" in each]) == 40
        assert server.stop() == 0

        server.start()
        api = Api(server.connect(Http1))
        assert len([each for each in api.walk("t", limit=1000) if "$seq" in each]) == 40
        assert server.stop() == 0
        assert "corrupt" not in server.log_text()
        assert "disk is full" not in server.log_text()


def metrics(server: Server) -> bytes:
    return ask(server.connect(Http1), "GET", "/v0/metrics").body


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a record."""
    home = tmp_path_factory.mktemp("stored")
    with Server(home) as server:
        Api(server.connect(Http1)).append("t", 1)
        server.stop()
    return home / "data"


def refused(data: Path, number: int, *calls: str, readers: int = 0) -> str:
    """What a server says that does not start."""
    ended = subprocess.run(
        words(number, *calls),
        env=environment(port=0, data_dir=data, readers=readers),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "corrupt" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("calls", "said", "number"),
    [
        (("flock",), "flock", errno.EPERM),
        (("mmap:shared",), "mmap", errno.EPERM),
        (("ftruncate",), "ftruncate", errno.ENOSYS),
        (("fsync", "fdatasync"), "sync", errno.EPERM),
        (("pwrite64",), "pwrite64", errno.ENOSYS),
        (("rename", "renameat", "renameat2"), "renameat", errno.EPERM),
    ],
)
def test_what_has_none_is_named_when_the_server_starts(
    tmp_path: Path, stored: Path, calls: tuple[str, ...], said: str, number: int
) -> None:
    """Exit 2, with the call and what to do; the data is not called corrupt, nor the disk full, and is as
    good as before."""
    data = tmp_path / "data"
    shutil.copytree(stored, data)

    line = refused(data, number, *calls)

    assert f"{said}: {os.strerror(number)}" in line
    assert "sandbox" in line
    assert inspect(OsFiles(data)).ok


def test_a_new_directory_is_refused_in_the_same_way(tmp_path: Path) -> None:
    assert "flock: " in refused(tmp_path / "data", errno.ENOSYS, "flock")


def test_readers_that_cannot_be_had_are_named(tmp_path: Path) -> None:
    """Without them the server starts: the line says so."""
    line = refused(tmp_path / "data", errno.EPERM, "socketpair:seqpacket", readers=1)

    assert "TOPICS_READERS" in line
    assert "socketpair" in line
