"""How a server starts, refuses to start, and stops (§0.2, §0.6, §8.2)."""

import json
import re
import shutil
import signal
import socket
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import xxhash

from .api import Api, dumps, tagged
from .server import Server, environment, refusal, until
from .wire import Http1, Http2, Wire, check

Start = Callable[..., Server]
JSON = {"content-type": "application/json"}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a directory with its bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def state_of(pid: int) -> str:
    """The state of a process and of all its threads, as a letter of proc(5); "" while they differ."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    states = {stat.rpartition(")")[2].split()[0] for stat in stats}
    return states.pop() if len(states) == 1 else ""


def assert_refuses(
    home: Path, code: int, *words: str, data: Path | None = None, **settings: object
) -> str:
    """A start over `data` ends with this code and one line that has these words."""
    known: dict[str, object] = {"port": 0, "data_dir": data or home / "data"}
    ended, told = refusal(environment(**(known | settings)), home)
    assert ended == code, told
    lines = told.splitlines()
    said = [line for line in lines if not _is_log(line)]
    assert len(said) == 1, told
    for word in words:
        assert word in said[0], told
    assert "Traceback" not in told
    return said[0]


def _is_log(line: str) -> bool:
    return line.startswith("{") and json.loads(line)["level"] in ("info", "warning")


# Starting.


def test_a_fresh_start_makes_what_it_needs(tmp_path: Path) -> None:
    """The data directory is created with its parents; only its owner can read it. (§12)"""
    data = tmp_path / "a" / "b" / "data"
    with Server(tmp_path / "home", data_dir=data) as server:
        Api(server.connect(Http1)).append("t", 1)
        assert re.fullmatch(r"127\.0\.0\.1:\d+\n?", (server.home / "port").read_text())
        assert server.stop() == 0

    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()} == {0o600}


BAD_SETTINGS: list[tuple[str, object]] = [
    ("port", "x"), ("port", -1), ("port", 65_536), ("max_topics", "many"), ("max_topics", -1),
    ("max_body_bytes", "64MB"), ("max_body_bytes", 0), ("max_batch_records", 1.5),
    ("max_record_bytes", "0x10"), ("max_meta_bytes", "-5"), ("max_tag_bytes", "256 bytes"),
    ("max_node_bytes", "nan"), ("max_limit", 0), ("max_watch_topics", "a"), ("max_claim", "1e3"),
    ("max_routers", "b"), ("max_schedules", "g"), ("max_watch_sessions", "c"), ("max_sse_connections", "d"),
    ("max_sse_connections_per_key", "e"), ("max_inflight_per_key", "f"), ("max_total_bytes", "1G"),
    ("flush_ms", "soon"), ("segment_max_records", 0), ("hot_max_bytes", "lots"),
    ("log_format", "xml"), ("allow_insecure_no_auth", "maybe"),
]  # fmt: skip


@pytest.mark.parametrize("at", [range(0, 9), range(9, 18), range(18, 26)], ids=str)
def test_a_setting_that_does_not_parse_is_named(tmp_path: Path, at: range) -> None:
    """Exit 2, one line with the variable; no file or socket was opened. (§0.2, §11)"""
    threads = [
        _Check(assert_refuses, tmp_path, 2, f"TOPICS_{name.upper()}", **{name: value})
        for name, value in BAD_SETTINGS[at.start : at.stop]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.finish()
    assert not (tmp_path / "data").exists()


class _Check(threading.Thread):
    """A check that runs beside others; `finish` raises its exception."""

    def __init__(self, check: Callable[..., object], *args: object, **named: object) -> None:
        super().__init__()
        self._call = partial(check, *args, **named)
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        self.join()
        if self._error is not None:
            raise self._error


def test_strangers_are_not_served_without_a_key(tmp_path: Path) -> None:
    """An address beyond loopback is refused, unless the setting that allows it is given. (§0.2)"""
    assert_refuses(tmp_path, 2, "TOPICS_ALLOW_INSECURE_NO_AUTH", host="0.0.0.0")
    assert not (tmp_path / "data").exists()
    with Server(tmp_path / "home", host="0.0.0.0", allow_insecure_no_auth=1) as server:
        assert server.is_ready()


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    """Exit 2, and the data directory is left alone."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_refuses(tmp_path, 2, str(port), port=port)


def test_a_port_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Exit 2 naming the setting, nothing left behind, and the data directory is left alone."""
    taken = tmp_path / "taken"
    taken.mkdir()
    for path in (taken, tmp_path / "absent" / "port"):
        assert_refuses(tmp_path, 2, f"TOPICS_PORT_FILE {path} cannot", port_file=path)
        assert list(tmp_path.iterdir()) == [taken]


def test_a_misspelt_setting_is_told(private: Start) -> None:
    """A warning of one line names the setting that may have been meant; the server starts."""
    server = private(datadir="/nowhere")
    lines = [line for line in server.log_text().splitlines() if "DATADIR" in line]
    assert len(lines) == 1
    assert "TOPICS_DATADIR (is it TOPICS_DATA_DIR?)" in json.loads(lines[0])["message"]


def test_a_second_server_on_the_same_data_is_refused(private: Start) -> None:
    """Exit 2 in one line that names the directory; the first server continues, its files
    unchanged."""
    server = private()
    api = Api(server.connect(Http1))
    api.append("t", 1)

    # While it stands still, whatever changes was changed by the other one.
    server.signal(signal.SIGSTOP)
    until("it is stopped", lambda: state_of(server.pid) == "T")
    before = tree(server.data)
    assert_refuses(server.home, 2, str(server.data))
    assert {name for name, text in tree(server.data).items() if before.get(name) != text} == set()
    assert before.keys() == tree(server.data).keys()

    server.signal(signal.SIGCONT)
    assert api.append("t", 2)["seqs"] == [2]


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Exit 2 for a directory of another program, unchanged, and for a file in its place."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "thesis.doc").write_text("x")
    before = tree(data)
    assert_refuses(tmp_path, 2, str(data))
    assert {k: v for k, v in tree(data).items() if v} == before
    said = assert_refuses(tmp_path, 2, "thesis.doc", data=data / "thesis.doc")
    assert said.endswith("not a directory")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after a clean stop: segments, checkpoints, a log."""
    with Server(tmp_path_factory.mktemp("stopped"), segment_max_records=50) as server:
        api = Api(server.connect(Http1))
        for i in range(20):
            api.append("t", *[tagged(f"t{j}", "payload" * 20) for j in range(10)], node=f"n{i}")
        assert server.stop() == 0
        assert server.start().stop() == 0
        return server.data


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after a kill: a log whose batches prove that those before them were
    durable."""
    with Server(tmp_path_factory.mktemp("killed")) as server:
        api = Api(server.connect(Http1))
        for i in range(20):
            api.append("t", "payload" * 50, i, config={"durability": "fsync"})
        server.kill()
        return server.data


def copied(source: Path, home: Path) -> Path:
    return Path(shutil.copytree(source, home / "data"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def test_a_newer_format_is_refused(stopped: Path, tmp_path: Path) -> None:
    """Exit 2, not 3: nothing is damaged, and nothing is changed."""
    data = copied(stopped, tmp_path)
    identity = bytearray((data / "topics.id").read_bytes())
    identity[8] += 1
    identity[-8:] = xxhash.xxh3_64_intdigest(identity[:-8]).to_bytes(8, "little")
    (data / "topics.id").write_bytes(identity)
    before = tree(data)

    assert_refuses(tmp_path, 2, "topics.id", "newer")
    assert tree(data) == before


def assert_corrupt(home: Path, data: Path, name: str) -> None:
    """Exit 3 with file and offset, and no existing file has changed."""
    before = tree(data)
    told = assert_refuses(home, 3, name)
    assert re.search(r"byte \d+", told)
    assert before.items() <= tree(data).items()


def test_a_damaged_log_is_refused(killed: Path, tmp_path: Path) -> None:
    """A durable record that does not verify is exit 3, whichever byte of it is damaged. (§0.10)"""
    log = max(killed.glob("*.wal"), key=lambda p: (p.name != "reserve.wal", p.stat().st_size))
    at = log.read_bytes().index(b"payload")
    for turn, offset in enumerate((at, at + 300, at - 200, 20)):
        home = tmp_path / str(turn)
        home.mkdir()
        data = copied(killed, home)
        flip(data / log.name, offset)
        assert_corrupt(home, data, log.name)


def test_damaged_checkpoints_are_refused(stopped: Path, tmp_path: Path) -> None:
    """When both checkpoints are damaged: exit 3."""
    data = copied(stopped, tmp_path)
    checkpoints = list(data.glob("*.ckpt"))
    assert len(checkpoints) == 2
    for path in checkpoints:
        flip(path, path.stat().st_size // 2)
    assert_corrupt(tmp_path, data, ".ckpt")


@pytest.mark.parametrize("offset", [8, 40, 520])
def test_a_damaged_segment_is_refused(stopped: Path, tmp_path: Path, offset: int) -> None:
    """Header and run table of a segment are checked at the start: exit 3."""
    data = copied(stopped, tmp_path)
    segment = min(data.glob("*.seg"))
    flip(segment, offset)
    assert_corrupt(tmp_path, data, segment.name)


def test_a_missing_file_is_corruption(stopped: Path, tmp_path: Path) -> None:
    """A segment that the log names and that does not exist: exit 3."""
    data = copied(stopped, tmp_path)
    segment = min(data.glob("*.seg"))
    segment.unlink()
    before = tree(data)
    assert_refuses(tmp_path, 3, segment.name)
    assert before.items() <= tree(data).items()


def test_a_damaged_payload_is_never_served(stopped: Path, tmp_path: Path) -> None:
    """Damage is detected by the read: that read fails and reports it, others continue. (§0.6)"""
    data = copied(stopped, tmp_path)
    segment = min(data.glob("*.seg"))
    flip(segment, segment.read_bytes().rindex(b"payload"))
    with Server(tmp_path) as server:
        wire = server.connect(Http1)
        wire.send("POST", "/v0/topics/t/diff", b'{"limit":1000}', JSON)
        answer = wire.receive()
        assert (answer.status, answer.code) == (500, "internal")
        assert answer.error["detail"]["reason"] == "corrupt"
        assert Api(wire).append("t", "new")["seqs"] == [201]
        assert Api(wire).seqs("t", 200) == [201]
        assert server.stop() == 0


def test_an_undamaged_copy_starts(stopped: Path, killed: Path, tmp_path: Path) -> None:
    """An undamaged copy starts, so the refusals above are caused by the flipped byte."""
    for source, seqs in ((stopped, 200), (killed, 40)):
        home = tmp_path / source.parent.name
        home.mkdir()
        copied(source, home)
        with Server(home) as server:
            assert Api(server.connect(Http1)).state("t")["count"] == seqs


# Stopping.


class Held:
    """A request whose head is complete and whose body is not: it keeps a server draining."""

    def __init__(self, server: Server) -> None:
        self.wire = server.connect(Http1)
        Api(self.wire).state("t")
        head = "POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 24\r\n"
        head += "Expect: 100-continue\r\nContent-Type: application/json\r\n\r\n"
        self.wire.send_raw("POST", head.encode())
        told = b""
        while not told.endswith(b"\r\n\r\n"):  # the server has the head, and waits for the body
            told += self.wire.socket.recv(1)
        assert told.startswith(b"HTTP/1.1 100")
        self.wire.send_more(b"{")

    def finish(self) -> Any:
        self.wire.send_more(b'"records":[{"data":1}]}')
        return check(self.wire.receive())


@pytest.mark.parametrize("wire", [Http1, Http2])
def test_while_it_stops_it_says_so(private: Start, wire: Callable[[int], Wire]) -> None:
    """`/ready` and new requests are 503 `shutting_down` with `Retry-After`, health and metrics are
    200, requests in flight are answered, and the exit code is 0. (§0.6, §8.2)"""
    server = private()
    api = Api(server.connect(wire))
    api.append("t", 1)
    held = Held(server)
    server.signal(signal.SIGTERM)

    until("draining", lambda: api.ask("GET", "/v0/ready").status == 503)
    told = [
        api.refused(*request)
        for request in (
            ("GET", "/v0/ready"), ("GET", "/readyz"), ("GET", "/v0/topics"), ("GET", "/v0/topics/t"),
            ("POST", "/v0/topics/t", {"records": [{"data": 1}]}), ("POST", "/v0/topics/t/diff", {}),
            ("GET", "/v0/topics/%20"), ("POST", "/v0/topics/t", b"not json"),
        )
    ]  # fmt: skip
    assert told == [(503, "shutting_down")] * len(told)
    assert api.refused("GET", "/v0/nothing") == (404, "not_found")
    assert api.refused("PATCH", "/v0/topics") == (405, "method_not_allowed")
    assert api.ok("GET", "/v0/health")["status"] == "ok"
    assert b"topics_ready 0\n" in api.ask("GET", "/v0/metrics").body
    answer = held.finish()
    assert answer.status in (200, 503)
    api.wire.reset()

    assert server.wait() == 0
    server.assert_log_is_quiet()


@pytest.mark.parametrize("wire", [Http1, Http2])
def test_who_waits_is_answered_at_the_end(private: Start, wire: Callable[[int], Wire]) -> None:
    """At a stop a long poll gets its page; its connection is not reset. (§3)"""
    server = private()
    api = Api(server.connect(wire))
    api.append("t", 1)
    other = server.connect(wire)
    assert Api(other).seqs("t") == [1]
    other.send("POST", "/v0/topics/t/diff", dumps({"from_seq": 1, "wait_ms": 30_000}), JSON)
    api.state("t")
    server.signal(signal.SIGTERM)

    answer = check(other.receive())
    assert answer.status in (200, 503)
    if answer.status == 200:
        assert (answer.json["records"], answer.json["caught_up"]) == ([], True)
    assert server.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_keeps_what_it_acknowledged(private: Start, number: int) -> None:
    """With writers active until the end, every acknowledged write is there after the restart.
    (§2)"""
    server = private()
    wires = [server.connect(Http1) for _ in range(4)]
    told: list[int] = []
    for wire in wires:
        for _ in range(50):
            wire.send("POST", "/v0/topics/t", b'{"records":[{"data":1}]}', JSON)
    server.signal(number)
    for wire in wires:
        for _ in range(50):
            try:
                answer = check(wire.receive())
            except Exception:
                break
            if answer.status != 503:
                told += answer.json["seqs"]
    assert server.wait() == 0
    server.start()

    api = Api(server.connect(Http1))
    names = [t["topic"] for t in api.ok("GET", "/v0/topics")["topics"]]
    found = set(api.seqs("t", limit=1000)) if names else set()
    assert set(told) <= found
    assert len(told) == len(set(told))


def test_a_stop_during_the_start_is_a_stop(tmp_path: Path) -> None:
    """A signal at any moment of the start gives exit code 0, and the next start finds no damage."""
    server = Server(tmp_path)
    for _ in range(3):
        server.start(ready=False)
        assert server.stop() == 0
    with server:
        Api(server.connect(Http1)).append("t", 1)
