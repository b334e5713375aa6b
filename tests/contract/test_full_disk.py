"""A full disk: appends are refused, reads and deletes served, and writes resume without a restart
(§11)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .api import Api, tagged
from .server import Server, until
from .wire import Http1


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system for this test; ext4 gives out space in its own way, and keeps some."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    where = tmp_path / "disk"
    where.mkdir()
    size_mib = 64 if request.param == "wide tmpfs" else 8
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(where)]
    if request.param == "ext4":
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(14 << 20)  # its journal takes 4 MiB
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        mount = ["mount", "-o", "loop", str(image), str(where)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no {request.param} may be mounted here: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


SPACE = "there is space on the disk again"


def filled(api: Api) -> list[int]:
    """Write until the disk is full; returns what was acknowledged."""
    told: list[int] = []
    for size in (20_000, 1):
        for i in range(20_000):  # maintenance may find some room meanwhile
            record = tagged(f"t{i}", "x" * size)
            answer = api.write("POST", "/v0/topics/t", {"records": [record]})
            if answer.status == 429:
                break
            told += answer.json["seqs"]
        assert answer.error["detail"]["limit"] == "disk"
    return told


def in_turn(log: str) -> bool:
    """Whether the log has one line for the full disk, and one for each time that there is space
    again."""
    lines = [line for line in log.splitlines() if '"the disk is full: ' in line or SPACE in line]
    told = [SPACE in line for line in lines]
    assert told == [i % 2 == 1 for i in range(len(told))], lines
    return bool(told) and told[-1]


def refused_topic(api: Api) -> str:
    """The name of a topic that could not be created for want of space."""
    for i in range(20_000):
        answer = api.write("PUT", f"/v0/topics/new{i}", {})
        if answer.status == 429:
            assert answer.error["detail"]["limit"] == "disk"
            return f"new{i}"
    raise AssertionError("they all fit on a full disk")


@pytest.mark.parametrize(
    ("disk", "durability"), [("tmpfs", "disk"), ("ext4", "fsync")], indirect=["disk"]
)
def test_a_full_disk(disk: Path, tmp_path: Path, durability: str) -> None:
    """Appends and new topics are 429 `disk`, reads and deletes continue, a restart finds everything
    that was acknowledged, and writes resume when there is space."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    settings = {"data_dir": disk / "data", "reserve_bytes": 1 << 20, "wal_file_bytes": 1 << 20}
    with Server(tmp_path / "home", **settings) as server:
        api = Api(server.connect(Http1))
        api.put("t", durability=durability)
        api.append("small", 1)
        told = filled(api)
        assert told
        assert api.refused("GET", f"/v0/topics/{refused_topic(api)}") == (404, "topic_not_found")
        assert [r["$seq"] for r in api.walk("t")] == told
        gone = api.delete("t", match="t0")["deleted"]
        assert api.delete("small", before_seq=2)["deleted"] == 1
        assert api.ok("GET", "/v0/health")["status"] == "ok"
        ballast.unlink()
        body = {"records": [{"data": "again"}]}
        until("room", lambda: api.ask("POST", "/v0/topics/t", body).status == 200)
        until("word of it", lambda: in_turn(server.log_text()))
        found = [r["$seq"] for r in api.walk("t")]
        assert found[:-1] == [seq for seq in told if seq in found]
        assert len(found) == len(told) - gone + 1
        server.kill()
        server.start()
        api = Api(server.connect(Http1))
        assert [r["$seq"] for r in api.walk("t")] == found
        assert api.state("small")["count"] == 0
        assert server.stop() == 0


FILL = """
import os, sys
path = sys.argv[1]
while True:
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass
    print("full", flush=True)
    os.unlink(path)
"""
"""Another program: it fills the disk and gives everything back, for ever."""


@pytest.mark.parametrize("disk", ["wide tmpfs"], indirect=True)
def test_another_program_fills_the_disk_meanwhile(disk: Path, tmp_path: Path) -> None:
    """A batch is promised what is allocated: whatever takes the space between the promise and the
    write, it is in the log or 429 `disk`, and the log never becomes read-only.  What was acknowledged
    is there after a kill."""
    settings = {"data_dir": disk / "data", "reserve_bytes": 64 << 10, "wal_file_bytes": 2 << 20}
    with Server(tmp_path / "home", **settings) as server:
        api = Api(server.connect(Http1))
        api.put("t", discard="old", cap_records=6)
        command = [sys.executable, "-c", FILL, str(disk / "ballast")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as filler:
            told = []
            try:
                for i in range(40):
                    body = {"records": [{"data": [i, "x" * 1_000_000]}] * (1 + i % 3)}
                    answer = api.ask("POST", "/v0/topics/t", body | {"disable_backpressure": True})
                    if answer.status == 429:
                        # Without a limit: the small log is full for now, and takes in no more.
                        assert answer.error["detail"].get("limit", "disk") == "disk"
                    else:
                        assert answer.status == 200, answer
                        told.append(answer.json["last_seq"])
            finally:
                filler.kill()
        (disk / "ballast").unlink(missing_ok=True)
        assert api.ok("GET", "/v0/ready")
        body = {"records": [{"data": "x" * 1_000_000}] * 4}
        until("room", lambda: api.ask("POST", "/v0/topics/t", body).status == 200)
        assert "read-only" not in server.log_text()
        last = api.state("t")["head_seq"]
        assert last >= max(told, default=0) + 4
        server.kill()
        server.start()
        api = Api(server.connect(Http1))
        assert api.state("t")["head_seq"] == last
        assert [r["$seq"] for r in api.walk("t") if "$seq" in r] == list(range(last - 5, last + 1))
