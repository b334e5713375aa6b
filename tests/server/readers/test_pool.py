"""Reader processes of a real server: what clients see of them, in life, at their end, and when they
are killed."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from attacks.attacker import answer, connected, post
from contract.hosts import OWN
from contract.server import environment, until
from contract.streams import Ended as StreamEnded
from contract.streams import Sse2
from contract.wire import Answer, Ended, Http1, Http2, ask

from topics.server.access.key_ring import KeyRing
from topics.server.access.keys import source_of
from topics.server.readers.messages import Borrow, Keys, Lent
from topics.server.readers.pool import Pool
from topics.server.readers.process import ReaderPhase, ReaderProcess

from .served import Sse, WithReaders, append, is_alive, kill, put, read

JSON = {"content-type": "application/json"}


def requests(server: WithReaders) -> float:
    return server.metric("topics_reader_requests_total")


def test_what_was_acknowledged_is_read_on_any_connection(served: WithReaders) -> None:
    """A write, and a delete, that was answered is honoured by the next read, in whichever process:
    the page is stored before anybody is answered. (§0.10)"""
    writer, readers = served.http(), [served.http() for _ in range(4)]
    for durability in ("disk", "memory", "fsync"):
        topic = f"ryw-{durability}"
        put(writer, topic, durability=durability)
        for turn in range(1, 60):
            append(writer, topic, turn)
            page = read(readers[turn % 4], topic, from_seq=turn - 1).json
            assert [turn] == [record["data"] for record in page["records"]]
            assert page["head_seq"] == turn
        deleted = ask(writer, "POST", f"/v0/topics/{topic}/delete", b'{"before_seq": 40}')
        assert deleted.json["deleted"] == 39
        for reader in readers:
            assert read(reader, topic).json["earliest_seq"] == 40
    until("counted", lambda: requests(served) >= 3 * 59)


def test_a_page_for_caches_is_the_engines_byte_for_byte(served: WithReaders) -> None:
    """Pages, their tags, 304, HEAD and refusals are the same from a reader as from the engine's
    process, which alone decodes a name; so a cache may ask either. (§3.4)"""
    writer, engine, reader = served.http(), served.http(), served.http()
    put(writer, "cached", cap_records=60)
    for turn in range(70):
        append(writer, "cached", {"turn": turn})
    ask(writer, "POST", "/v0/topics/cached/delete", b'{"before_seq": 15}')
    told = requests(served)
    asks = "", "from_seq=3", "from_seq=20&limit=7", "from_seq=69", "from_seq=70", "from_seq=900"
    shown = "include_tags=true&limit=3", "include_meta=false", "max_batch_bytes=100", "epoch=x-1"
    for query in (*asks, *shown):
        path, engines = (f"/v0/topics/{name}/records?{query}" for name in ("cached", "%63ached"))
        for method in ("GET", "HEAD"):
            there, here = ask(engine, method, engines), ask(reader, method, path)
            assert (here.status, here.body) == (there.status, there.body), path
            for name in ("etag", "cache-control", "content-type", "content-length"):
                assert here.headers.get(name) == there.headers.get(name), (path, name)
        known = {"if-none-match": there.headers["etag"]}
        assert ask(engine, "GET", engines, b"", known).status == 304
        assert ask(reader, "GET", path, b"", known).status == 304
    for query in ("limit=x", "from_seq=-1"):
        path, engines = (f"/v0/topics/{name}/records?{query}" for name in ("cached", "%63ached"))
        assert ask(reader, "GET", path).json["error"] == ask(engine, "GET", engines).json["error"]
    until("counted", lambda: requests(served) >= told + 3 * len(asks + shown))


def test_a_cached_page_is_not_confirmed_once_a_record_of_it_was_deleted(
    served: WithReaders,
) -> None:
    """A delete that was acknowledged changes the tag for the next request, in every process. (§3.4)"""
    writer, readers = served.http(), [served.http() for _ in range(4)]
    put(writer, "retagged")
    append(writer, "retagged", *range(40))
    path = "/v0/topics/retagged/records?limit=30"
    for turn in range(1, 20):
        tags = {ask(wire, "GET", path).headers["etag"] for wire in readers}
        assert len(tags) == 1
        body = orjson.dumps({"before_seq": turn + 1})
        assert ask(writer, "POST", "/v0/topics/retagged/delete", body).json["deleted"] == 1
        for wire in readers:
            answer = ask(wire, "GET", path, b"", {"if-none-match": tags.copy().pop()})
            assert answer.status == 200
            assert answer.json["records"][0]["$seq"] == turn + 1


def test_a_topic_that_was_just_made_is_there_and_one_deleted_is_gone(served: WithReaders) -> None:
    """Creating, configuring and deleting a topic is seen by readers once it is answered. (§1)"""
    writer, reader = served.http(), served.http()
    put(writer, "lasting")
    read(reader, "lasting")
    for turn in range(20):
        put(writer, f"made{turn}")
        assert read(reader, f"made{turn}").status == 200
        ask(writer, "DELETE", f"/v0/topics/made{turn}")
        assert read(reader, f"made{turn}").code == "topic_not_found"


def test_a_connection_changes_its_process_between_requests(served: WithReaders) -> None:
    """One connection reads, writes and reads, in one order, whichever process carries it; so do
    requests that come in one piece."""
    wire = served.http()
    put(wire, "mixed")
    for turn in range(1, 40):
        assert read(wire, "mixed").json["head_seq"] == turn - 1
        assert append(wire, "mixed", turn).json["head_seq"] == turn
    other = served.http()
    body = orjson.dumps({"from_seq": 0})
    sent = {"content-type": "application/json"}
    for turn in range(40, 50):
        other.send("POST", "/v0/topics/mixed/diff", body, sent)
        other.send("POST", "/v0/topics/mixed", orjson.dumps({"records": [{"data": turn}]}), sent)
        other.send("POST", "/v0/topics/mixed/diff", body, sent)
        heads = [other.receive().json["head_seq"] for _ in range(3)]
        assert heads == [turn - 1, turn, turn]


def test_a_large_write_behind_a_read_is_whole(served: WithReaders) -> None:
    """The bytes that came with a request that is not the reader's go with the connection."""
    wire = served.http()
    put(wire, "large")
    assert read(wire, "large").status == 200
    answer = append(wire, "large", "x" * 700_000)
    assert answer.json["head_seq"] == 1
    found = read(served.http(), "large", limit=1).json
    assert found["records"][0]["data"] == "x" * 700_000


def test_what_is_not_in_the_log_is_read_from_the_engine(served: WithReaders) -> None:
    """Records of an `ephemeral` topic, and copies of routers, are there for the next read. (§0.10,
    §6)"""
    writer, reader = served.http(), served.http()
    put(writer, "quick", durability="ephemeral")
    put(writer, "source")
    put(writer, "copy")
    route = orjson.dumps({"source": "source", "dest": "copy"})
    assert ask(writer, "PUT", "/v0/routers/flow", route).status in (200, 201)
    for turn in range(1, 20):
        append(writer, "quick", turn)
        assert read(reader, "quick").json["head_seq"] == turn
        append(writer, "source", turn)
        assert read(served.http(), "copy").json["head_seq"] == turn
    put(writer, "quick", durability="disk")
    append(writer, "quick", 20)
    assert len(read(served.http(), "quick").json["records"]) == 20


@pytest.mark.parametrize("source", ["disk", "ephemeral", "fsync"])
def test_a_destination_shows_what_was_written_to_its_source(
    served: WithReaders, source: str
) -> None:
    """A reader asks for the copies, and shows them; over a connection that comes to it, and over one
    that stays. (§6)"""
    writer = served.http()
    put(writer, f"from-{source}", durability=source)
    asks = orjson.dumps({"source": f"from-{source}", "dest": f"to-{source}"})
    assert ask(writer, "PUT", f"/v0/routers/route-{source}", asks).status == 201
    readers = [served.http(), served.connect(Http2)]
    before = requests(served)
    for turn in range(60):
        append(writer, f"from-{source}", *["x" * 100 * turn] * 5)
        for reader in readers:
            found = read(reader, f"to-{source}", from_seq=5 * turn).json["records"]
            assert [each["$seq"] for each in found] == [5 * turn + n for n in range(1, 6)]
    until("reads in readers", lambda: requests(served) - before > 100)


def test_a_list_is_the_engines_whoever_asks(
    start: Callable[..., WithReaders], tmp_path: Path
) -> None:
    """Pages, cursors, HEAD, refusals, headers and what a key may see are the same from a reader as
    from the engine's process, which serves a target in absolute form; whatever the topics are.
    (§0.2, §1.3, §6.3)"""
    keys = tmp_path / "keys"
    one, two, three = "k" * 24, "m" * 24, "n" * 24
    keys.write_text(f"{one}\n{two}:read+write:a|c:\n{three}:write\n")
    keys.chmod(0o600)
    server = WithReaders(tmp_path / "listed", api_keys_file=keys, readers=2)
    try:
        server.start()
        full = {"authorization": f"Bearer {one}"}
        engine, writer = server.http(), server.http()

        def metric(name: str) -> float:
            text = ask(writer, "GET", "/v0/metrics", b"", full).body.decode()
            lines = [line.split() for line in text.splitlines() if line.startswith(name + "{")]
            return sum(float(value) for _, value in lines)

        until("readers", lambda: metric("topics_reader_up") == 2)
        for name, config in (
            ("a:jobs", {"type": "queue", "dead_letter": "b:dead", "lease_ms": 60_000}),
            ("a:log", {}),
            ("b:dead", {"priority": 7}),
            ("b:quick", {"durability": "ephemeral"}),
            ("b:sure", {"durability": "fsync"}),
            ("c:copy", {}),
            ("c:short", {"ttl_ms": 3_600_000}),
        ):
            ask(writer, "PUT", f"/v0/topics/{name}", orjson.dumps(config), full)
            records = orjson.dumps({"records": [{"data": turn} for turn in range(4)]})
            ask(writer, "POST", f"/v0/topics/{name}", records, full)
        route = orjson.dumps({"source": "a:log", "dest": "c:copy"})
        ask(writer, "PUT", "/v0/routers/a:flow", route, full)
        claim = orjson.dumps({"node": "w", "max": 2})
        ask(writer, "POST", "/v0/topics/a:jobs/claim", claim, full)
        ask(writer, "GET", "/v0/topics/a:log", b"", full)

        paths = ["/v0/topics", "/v0/topics?page_size=3", "/v0/topics?prefix=b", "/v0/routers"]
        paths += [
            "/v0/topics?cursor=nonsense",
            "/v0/topics?page_size=x",
            "/v0/routers?source=a:log",
        ]
        cursor = ask(writer, "GET", "/v0/topics?page_size=3", b"", full).json["next_cursor"]
        paths.append(f"/v0/topics?page_size=2&cursor={cursor}")
        wires = {key: server.http() for key in (one, two, three, "")}
        for method in ("GET", "HEAD"):
            for path in paths:
                for key, wire in wires.items():
                    sent = {"authorization": f"Bearer {key}"} if key else {}
                    there = ask(engine, method, f"http://127.0.0.1{path}", b"", sent)
                    here = ask(wire, method, path, b"", sent)
                    assert here.status == there.status, (path, key)
                    for header in ("content-type", "cache-control", "etag", "vary"):
                        assert here.headers.get(header) == there.headers.get(header)
                    if method == "GET":
                        shown, known = here.json, there.json
                        for each in (shown, known):
                            each.pop("performance")
                            for topic in each.get("topics", ()):
                                # It falls with the time between two requests.
                                assert 0 <= topic.pop("effective_priority") <= 1000
                        assert shown == known, (path, key)
        # With a key that may read, and a question that is one.
        least = 2 * 2 * (len(paths) - 2)
        until("counted", lambda: metric("topics_reader_requests_total") >= least)
        assert server.stop() == 0
    finally:
        server.__exit__(None, None, None)


def test_a_new_reader_knows_what_a_key_has_in_flight(tmp_path: Path) -> None:
    """A key that waits in the engine's process for as many answers as it may is refused by a reader
    that has just begun to serve. (§11)"""
    keys, one, two = tmp_path / "keys", "k" * 24, "m" * 24
    keys.write_text(f"{one}\n{two}\n")
    keys.chmod(0o600)
    server = WithReaders(tmp_path / "busy", api_keys_file=keys, readers=1, max_inflight_per_key=2)
    try:
        server.start()
        full, other = ({"authorization": f"Bearer {each}"} for each in (one, two))

        def up() -> bool:
            text = ask(server.http(), "GET", "/v0/metrics", b"", other).body.decode()
            return 'topics_reader_up{reader="0"} 1' in text

        def listed() -> Answer:
            return ask(server.http(), "GET", "/v0/topics", b"", full)

        def is_counted(polls: list[Http1]) -> bool:
            """Otherwise one poll more: a list that was over a moment ago may have refused the last."""
            if listed().status == 429:
                return True
            polls.append(server.http())
            polls[-1].send("POST", "/v0/topics/e/diff", b'{"wait_ms":60000}', full | JSON)
            return False

        until("a reader", up)
        ask(server.http(), "PUT", "/v0/topics/e", b'{"durability":"ephemeral"}', other)
        for _ in range(3):
            polls: list[Http1] = []
            until("counted", partial(is_counted, polls))
            kill(*server.reader_pids())
            until("noticed", lambda: not up())
            until("another", up)
            for _ in range(5):
                assert listed().code == "throttled"
            for poll in polls:
                poll.reset()
            until("over", lambda: listed().status == 200)
        assert server.stop() == 0
    finally:
        server.__exit__(None, None, None)


def test_a_list_has_what_was_read_in_a_reader_before(served: WithReaders) -> None:
    """A read through a reader makes a topic hot in the next list on that connection. (§0.10)"""
    wire = served.http()
    put(wire, "heated")
    append(wire, "heated", 1)
    other = served.http()
    assert ask(other, "GET", "/v0/topics?prefix=heated").json["topics"][0]["count"] == 1
    told = requests(served)
    read(other, "heated")
    listed = ask(other, "GET", "/v0/topics?prefix=heated").json["topics"]
    assert listed[0]["effective_priority"] > 900
    until("counted", lambda: requests(served) >= told + 1)


def test_lists_are_whole_while_topics_come_and_go(served: WithReaders) -> None:
    """A topic that was acknowledged before a list was asked for is in it, and one that was deleted
    is not; pages of a walk hold each name once. (§1.3)"""
    writer, lister = served.http(), served.http()
    for turn in range(30):
        put(writer, f"walk-{turn:02d}")
        if turn >= 10:
            ask(writer, "DELETE", f"/v0/topics/walk-{turn - 10:02d}")
        names, cursor = [], ""
        while cursor is not None:
            path = f"/v0/topics?prefix=walk-&page_size=4{cursor and '&cursor='}{cursor}"
            page = ask(lister, "GET", path).json
            names += [topic["topic"] for topic in page["topics"]]
            cursor = page.get("next_cursor")
        assert names == [f"walk-{each:02d}" for each in range(max(turn - 9, 0), turn + 1)]


def test_a_long_poll_in_a_reader_is_answered_by_the_next_write(served: WithReaders) -> None:
    """A read that waits is answered with what comes, and at its time with nothing. (§3.4)"""
    writer = served.http()
    put(writer, "polled")
    polls = [served.http() for _ in range(5)]
    for poll in polls:
        asks = orjson.dumps({"from_seq": 0, "wait_ms": 60_000})
        poll.send("POST", "/v0/topics/polled/diff", asks, {"content-type": "application/json"})
    until("carried", lambda: served.metric("topics_reader_connections") >= 5)
    append(writer, "polled", "news")
    for poll in polls:
        assert poll.receive().json["records"][0]["data"] == "news"
    assert read(polls[0], "polled", from_seq=1, wait_ms=50).json["records"] == []


def test_a_stopped_server_answers_those_who_wait_in_readers(
    start: Callable[..., WithReaders],
) -> None:
    """SIGTERM: a long poll in a reader is answered, and every process ends. (§12)"""
    server = start()
    writer, poll = server.http(), server.http()
    put(writer, "t")
    asks = orjson.dumps({"from_seq": 0, "wait_ms": 60_000})
    poll.send("POST", "/v0/topics/t/diff", asks, {"content-type": "application/json"})
    until("carried", lambda: server.metric("topics_reader_connections") == 1)
    pids = server.reader_pids()
    answers = []
    waiting = Thread(target=lambda: answers.append(poll.receive()))
    waiting.start()
    server.signal(signal.SIGTERM)
    waiting.join()
    assert answers[0].status == 200
    assert server.wait() == 0
    until("ended", lambda: not any(map(is_alive, pids)))
    server.assert_log_is_quiet()


def test_a_reader_that_is_killed_is_replaced(start: Callable[..., WithReaders]) -> None:
    """A reader's end ends its connections and nothing else; another one takes its place."""
    server = start()
    writer, reader = server.http(), server.http()
    put(writer, "t")
    append(writer, "t", 1)
    assert read(reader, "t").json["head_seq"] == 1
    pids = server.reader_pids()
    for pid in pids:
        kill(pid)
    with pytest.raises((Ended, OSError)):
        read(reader, "t")
    until("noticed", lambda: server.metric("topics_reader_restarts_total") == 2)
    append(writer, "t", 2)
    assert read(server.http(), "t").json["head_seq"] == 2
    until("replaced", lambda: server.metric("topics_reader_up") == 2)
    assert not set(pids) & set(server.reader_pids())
    append(writer, "t", 3)
    assert read(server.http(), "t").json["head_seq"] == 3


def test_a_reader_that_hangs_is_replaced(start: Callable[..., WithReaders]) -> None:
    """A reader that stands still while the log goes on is killed, so that its clients come again."""
    server = start(1)
    writer, reader = server.http(), server.http()
    put(writer, "t")
    append(writer, "t", 1)
    read(reader, "t")
    (pid,) = server.reader_pids()
    os.kill(pid, signal.SIGSTOP)
    append(writer, "t", 2)
    with pytest.raises((Ended, OSError)):
        read(reader, "t")
    until("replaced", lambda: server.metric("topics_reader_up") == 1)
    assert not is_alive(pid)
    assert read(server.http(), "t").json["head_seq"] == 2


def test_readers_that_are_stopped_end_with_the_engine(start: Callable[..., WithReaders]) -> None:
    """They cannot hear of it, and would answer from its state when they go on, beside the next server.
    So the kernel ends them."""
    server = start()
    writer, reader = server.http(), server.http()
    put(writer, "t")
    append(writer, "t", 1)
    read(reader, "t")
    pids = server.reader_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    server.kill()

    until("ended", lambda: not any(map(is_alive, pids)))


def test_readers_end_with_the_engine(start: Callable[..., WithReaders]) -> None:
    """Where the engine's process is killed, no reader goes on showing what it showed; the next
    server has the port and the data."""
    server = start()
    writer, reader = server.http(), server.http()
    put(writer, "t")
    append(writer, "t", 1)
    read(reader, "t")
    pids = server.reader_pids()
    assert len(pids) == 2
    server.kill()
    until("ended", lambda: not any(map(is_alive, pids)))
    server.start_all()
    assert read(server.http(), "t").json["head_seq"] == 1


def test_a_second_server_on_the_port_is_refused(start: Callable[..., WithReaders]) -> None:
    """The port belongs to the engine's process alone. (§12)"""
    server = start(1)
    ended = subprocess.run(
        OWN.command(0),
        env=environment(port=server.port, data_dir=server.home / "other", readers=1),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2


@pytest.mark.parametrize(
    ("turns", "times", "wal_bytes"), [(30, 500, 1 << 16), (10, 3000, 1 << 16), (8, 40_000, 1 << 22)]
)
def test_an_erasure_waits_until_readers_have_let_go(
    start: Callable[..., WithReaders], turns: int, times: int, wal_bytes: int
) -> None:
    """After a delete with `erase` is answered, no process holds a file with the erased bytes: not the
    log either, in which a reader refers to large text. (§5)"""
    server = start(wal_file_bytes=wal_bytes, segment_max_age_ms=1)
    writer, reader = server.http(), server.http()
    put(writer, "t")
    put(writer, "watched")
    wid = watching(server, "watched")
    stream = server.connect(lambda port: Sse(port, wid))
    append(writer, "watched", "x" * 20_000)
    assert stream.seqs(1) == [1]  # its frame stays, for streams to come
    readers = server.reader_pids()
    for turn in range(turns):
        text = f"secret-{turn}" * times
        # A log of such small files takes in no more for now on a slow disk: 429.
        until("written", lambda text=text: append(writer, "t", text).status == 200)
        assert read(reader, "t", from_seq=turn).json["head_seq"] == turn + 1
        read(reader, "t", from_seq=0, limit=3)
    asks = orjson.dumps({"before_seq": turns - 1, "erase": True})
    answer = ask(writer, "POST", "/v0/topics/t/delete", asks)
    assert answer.status == 200, answer
    for pid in server.reader_pids():
        held = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
        assert not [each for each in held if "deleted" in each and str(server.data) in each]
        assert str(server.data) not in "".join(
            line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "deleted" in line
        )
    assert len(read(server.http(), "t").json["records"]) == 2
    assert "holds erased files" not in server.log_text()
    until("written", lambda: append(writer, "watched", "more").status == 200)
    if server.reader_pids() == readers:  # else one was starved by the machine, and called hanging
        assert stream.seqs(1) == [2]
    stream.reset()


def test_keys_hold_in_readers(start: Callable[..., WithReaders], tmp_path: Path) -> None:
    """A reader asks for keys as the engine does, and a key that is removed is refused after
    SIGHUP. (§0.2)"""
    keys = tmp_path / "keys"
    one, two = "k" * 24, "m" * 24
    keys.write_text(f"{one}\n{two}\n")
    keys.chmod(0o600)
    server = WithReaders(tmp_path / "keyed", api_keys_file=keys)
    try:
        server._settings["readers"] = 2
        server.start()
        first = {"authorization": f"Bearer {one}"}
        second = {"authorization": f"Bearer {two}"}
        until("readers", lambda: len(server.reader_pids()) == 2)
        ask(server.http(), "PUT", "/v0/topics/t", b"{}", first)
        wires = [server.http() for _ in range(4)]
        path = "/v0/topics/t/diff"
        for wire in wires:
            until("served", lambda wire=wire: ask(wire, "POST", path, b"{}", second).status == 200)
        assert ask(server.http(), "POST", "/v0/topics/t/diff", b"{}").status == 401
        keys.write_text(f"{one}\n")
        server.signal(signal.SIGHUP)
        for wire in wires:
            until("refused", lambda wire=wire: ask(wire, "POST", path, b"{}", second).status == 401)
            assert ask(wire, "POST", path, b"{}", first).status == 200
        assert server.stop() == 0
    finally:
        server.__exit__(None, None, None)


def test_a_reader_has_the_keys_in_force_and_not_those_of_the_file(tmp_path: Path) -> None:
    """An edit of the file counts in no process before SIGHUP, and one that cannot be used in none at all;
    a reader that begins meanwhile is no exception. (§0.2)"""
    keys = tmp_path / "keys"
    one, two, three = ("k" * 24, "m" * 24, "n" * 24)
    keys.write_text(f"{one}\n{two}\n")
    keys.chmod(0o600)
    server = WithReaders(tmp_path / "keyed", api_keys_file=keys)
    path = "/v0/topics/t/diff"

    def statuses() -> list[int]:
        """What a reader says to each key, on connections of their own."""
        said = [
            ask(server.http(), "POST", path, b"{}", {"authorization": f"Bearer {key}"}).status
            for key in (one, two, three)
        ]
        return said

    def restarted() -> None:
        (pid,) = server.reader_pids()
        kill(pid)
        until("another", lambda: server.reader_pids() not in ([], [pid]))
        until("it serves", serves)

    def serves() -> bool:
        wire = server.http()
        token = {"authorization": f"Bearer {one}"}
        ask(wire, "POST", path, b"{}", token)
        told = ask(wire, "GET", "/v0/metrics", b"", token).body.decode()
        return 'topics_reader_up{reader="0"} 1' in told

    try:
        server._settings["readers"] = 1
        server.start()
        ask(server.http(), "PUT", "/v0/topics/t", b"{}", {"authorization": f"Bearer {one}"})
        until("it serves", serves)
        assert statuses() == [200, 200, 401]

        keys.write_text(f"{one}\n{three}\n")
        restarted()
        assert statuses() == [200, 200, 401]

        keys.write_text(f"{one}\n{one}\n")
        server.signal(signal.SIGHUP)
        restarted()
        assert statuses() == [200, 200, 401]

        keys.write_text(f"{one}\n{three}\n")
        server.signal(signal.SIGHUP)
        until("read again", lambda: statuses() == [200, 401, 200])
        assert server.stop() == 0
    finally:
        server.__exit__(None, None, None)


def test_a_reader_that_starts_while_keys_are_read_again_is_told_of_them() -> None:
    """It may have been told of those before; else it would know a key that is gone. (§0.2)"""
    ring = KeyRing(())
    processes = [ReaderProcess(0), ReaderProcess(1)]
    pool: Any = SimpleNamespace(
        _is_begun=True, _exchange=SimpleNamespace(keys=ring), _processes=processes
    )
    pool._tell_keys = partial(Pool._tell_keys, pool)
    told: list[Any] = []
    processes[0].standing = ReaderPhase.STARTING
    processes[0].channel = cast(Any, SimpleNamespace(send=told.append))

    source = source_of("k" * 24, None)
    assert source is not None
    ring.replace(source.read())
    Pool.reload(pool)

    assert told == [Keys(list(source.read()))]


def test_readers_end_once_the_log_is_read_only() -> None:
    """They would read text again from a log that a failed write or sync may have damaged; the engine has
    it in memory. (§0.10)"""
    ended: list[str] = []
    engine = SimpleNamespace(read_only=True)
    pool: Any = SimpleNamespace(
        _is_ending=False,
        _runtime=SimpleNamespace(engine=engine),
        drain=lambda: ended.append("drained"),
    )

    Pool._tick(pool)

    assert ended == ["drained"]


def test_bytes_that_are_no_request_are_answered_as_ever(served: WithReaders) -> None:
    """A connection in a reader that goes on with something else has the answer of the engine's
    process; one that closes is closed."""
    wire = served.http()
    put(wire, "odd")
    for nonsense in (b"\r\n\r\nNONSENSE\r\n\r\n", b"GET /v0/topics/odd HTTP/9.9\r\n\r\n"):
        with connected(served) as raw:
            raw.sendall(post("/v0/topics/odd/diff", b'{"from_seq":0}'))
            assert answer(raw)[0] == 200
            raw.sendall(nonsense)
            assert answer(raw)[0] in (400, 505)


def watching(server: WithReaders, *topics: str, **fields: object) -> str:
    """The id of a new watch session."""
    asks = orjson.dumps({"topics": {topic: {"from_seq": 0} for topic in topics}, **fields})
    return str(ask(server.http(), "POST", "/v0/watch", asks).json["wid"])


def test_a_stream_in_a_reader_shows_what_is_written(served: WithReaders) -> None:
    """A stream of a session is carried by a reader, whose session it is meanwhile; what is written
    comes in order, and the session goes on where its stream ended. (§7.3)"""
    writer = served.http()
    put(writer, "watched")
    append(writer, "watched", 1, 2)
    wid = watching(served, "watched")
    stream = served.connect(lambda port: Sse(port, wid))
    assert stream.seqs(2) == [1, 2]
    until("carried", lambda: served.metric("topics_reader_connections") >= 1)
    for turn in range(3, 30):
        append(writer, "watched", turn)
        assert stream.seqs(1) == [turn]
    stream.reset()
    append(writer, "watched", 30)
    again = served.connect(lambda port: Sse(port, wid))
    assert again.seqs(1) == [30]


@pytest.mark.parametrize("source", ["disk", "ephemeral", "fsync"])
def test_a_stream_of_a_destination_is_a_readers(
    start: Callable[..., WithReaders], source: str
) -> None:
    """Copies come as they are made, and none of what was acknowledged before comes after `caught-up`.
    (§6, §7.3)"""
    server = start(2)
    writer = server.http()
    way = ["from", "a", "b", "c", "to"]
    put(writer, "from", durability=source)
    for source, dest in pairwise(way):
        route = orjson.dumps({"source": source, "dest": dest})
        assert ask(writer, "PUT", f"/v0/routers/to-{dest}", route).status == 201
    wid = watching(server, "to")
    stream = server.connect(lambda port: Sse(port, wid))
    assert stream.seqs_before_caught_up() == []
    until("carried", lambda: server.metric("topics_reader_connections") == 1)
    late = [watching(server, "to") for _ in range(10)]
    for turn, each in enumerate(late, 1):
        append(writer, "from", *range(300))
        another = server.connect(lambda port, wid=each: Sse(port, wid))
        assert another.seqs_before_caught_up() == list(range(1, 300 * turn + 1))
        another.reset()
    assert stream.seqs(3000) == list(range(1, 3001))


def test_a_stream_of_a_destination_that_takes_no_more_has_caught_up(
    start: Callable[..., WithReaders],
) -> None:
    """Copies that a full destination refuses are not waited for. (§6)"""
    server = start(1)
    writer = server.http()
    put(writer, "from")
    put(writer, "full", cap_records=2, discard="reject")
    route = orjson.dumps({"source": "from", "dest": "full"})
    assert ask(writer, "PUT", "/v0/routers/route", route).status == 201
    append(writer, "from", *range(5))
    until("blocked", lambda: server.metric("topics_router_blocked") == 1)
    wid = watching(server, "full")
    stream = server.connect(lambda port: Sse(port, wid))
    assert stream.seqs_before_caught_up() == [1, 2]
    until("carried", lambda: server.metric("topics_reader_connections") == 1)
    asks = orjson.dumps({"before_seq": 3})
    assert ask(writer, "POST", "/v0/topics/full/delete", asks).status == 200
    assert stream.seqs(2) == [3, 4]


def test_another_stream_of_a_session_takes_over(served: WithReaders) -> None:
    """The first stream ends with 409 in whichever process it is. (§7.3)"""
    put(served.http(), "taken")
    wid = watching(served, "taken")
    first = served.connect(lambda port: Sse(port, wid))
    first.caught_up()
    second = served.connect(lambda port: Sse(port, wid))
    second.caught_up()
    assert first.last_error()["code"] == 409
    append(served.http(), "taken", 1)
    assert second.seqs(1) == [1]


def test_a_stream_over_http2_takes_over_from_a_reader(served: WithReaders) -> None:
    """The first stream ends with 409 wherever it is, and the session goes to the reader of the second,
    where it goes on from what the client remembers. (§7.3)"""
    writer = served.http()
    put(writer, "crossed")
    append(writer, "crossed", 1, 2)
    wid = watching(served, "crossed")
    first = served.connect(lambda port: Sse(port, wid))
    assert first.seqs(2) == [1, 2]
    first.caught_up()
    second = served.connect(lambda port: Sse(port, wid, first.last_id, kind=Sse2))
    second.caught_up()
    assert first.last_error()["code"] == 409
    append(writer, "crossed", 3)
    assert second.seqs(1) == [3]
    second.reset()
    append(writer, "crossed", 4)
    third = served.connect(lambda port: Sse(port, wid, second.last_id))
    assert third.seqs(1) == [4]


def test_watchers_resume_after_their_reader_was_killed(start: Callable[..., WithReaders]) -> None:
    """A stream that ends with its reader goes on from the client's last id, and misses nothing."""
    server = start()
    writer = server.http()
    put(writer, "t")
    append(writer, "t", 1, 2, 3)
    wid = watching(server, "t")
    stream = server.connect(lambda port: Sse(port, wid))
    assert stream.seqs(3) == [1, 2, 3]
    last = stream.last_id
    for pid in server.reader_pids():
        kill(pid)
    with pytest.raises((StreamEnded, OSError)):
        stream.seqs(1)
    # A connection that is on its way to a process that dies ends with it, and its client comes again.
    until("noticed", lambda: server.metric("topics_reader_restarts_total") == 2)
    append(writer, "t", 4)
    again = server.connect(lambda port: Sse(port, wid, last))
    assert again.seqs(1) == [4]
    until("replaced", lambda: server.metric("topics_reader_up") == 2)


def test_partitions_that_joined_in_a_reader_that_was_killed(
    start: Callable[..., WithReaders],
) -> None:
    """The engine's process had not looked for them: the client's id names them, and nothing is missing. (§7.4)"""
    server = start()
    writer = server.http()
    put(writer, "t", partitions=2)
    wid = watching(server, "t")
    stream = server.connect(lambda port: Sse(port, wid))
    stream.caught_up()
    put(writer, "t", partitions=4)
    to_last = [{"data": n, "partition": 3} for n in range(3)]
    ask(writer, "POST", "/v0/topics/t", orjson.dumps({"records": to_last}))
    assert stream.seqs(3) == [1, 2, 3]
    last = stream.last_id
    for pid in server.reader_pids():
        kill(pid)
    with pytest.raises((StreamEnded, OSError)):
        stream.seqs(1)
    until("noticed", lambda: server.metric("topics_reader_restarts_total") == 2)
    put(writer, "t", partitions=5)
    more = [{"data": 3, "partition": 3}, *({"data": n, "partition": 4} for n in range(2))]
    ask(writer, "POST", "/v0/topics/t", orjson.dumps({"records": more}))

    again = server.connect(lambda port: Sse(port, wid, last))
    assert sorted(again.seqs(3)) == [1, 2, 4]
    again.reset()

    third = server.connect(lambda port: Sse(port, wid, again.last_id))
    ask(writer, "POST", "/v0/topics/t", orjson.dumps({"records": to_last[:1]}))
    assert third.seqs(1) == [5]


def test_a_stream_goes_on_in_another_reader_where_its_client_is(
    start: Callable[..., WithReaders],
) -> None:
    """The session knows only where it was lent; what came since comes once. (§7.4)"""
    server = start(readers=1)
    writer = server.http()
    put(writer, "t")
    wid = watching(server, "t")
    stream = server.connect(lambda port: Sse(port, wid))
    append(writer, "t", 1, 2, 3)
    assert stream.seqs(3) == [1, 2, 3]
    last = stream.last_id
    kill(*server.reader_pids())
    until("noticed", lambda: server.metric("topics_reader_restarts_total") == 1)
    until("a reader", lambda: server.metric("topics_reader_up") == 1)
    append(writer, "t", 4)
    again = server.connect(lambda port: Sse(port, wid, last))
    assert again.seqs(1) == [4]


def test_a_stream_in_a_reader_ends_with_a_last_frame(start: Callable[..., WithReaders]) -> None:
    """SIGTERM: the client is told that the server stops. (§12)"""
    server = start(1)
    put(server.http(), "t")
    wid = watching(server, "t")
    stream = server.connect(lambda port: Sse(port, wid))
    stream.caught_up()
    until("carried", lambda: server.metric("topics_reader_connections") == 1)
    server.signal(signal.SIGTERM)
    assert stream.last_error()["code"] == 503
    assert server.wait() == 0


def test_a_topic_that_leaves_the_readers_takes_its_streams_along(served: WithReaders) -> None:
    """A topic that becomes `ephemeral` is the engine's: its stream in a reader ends, and goes on
    with the same session. (§0.10)"""
    writer = served.http()
    put(writer, "moving")
    append(writer, "moving", 1)
    wid = watching(served, "moving")
    stream = served.connect(lambda port: Sse(port, wid))
    assert stream.seqs(1) == [1]
    put(writer, "moving", durability="ephemeral")
    assert stream.last_error()["code"] == 503
    append(writer, "moving", 2)
    again = served.connect(lambda port: Sse(port, wid))
    assert again.seqs(1) == [2]


def test_a_client_that_closes_its_half_is_answered_all_the_same(served: WithReaders) -> None:
    """Requests that came before the end are answered, in whichever process."""
    put(served.http(), "half")
    raw = socket.create_connection(("127.0.0.1", served.port))
    kind = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    read_it, write_it = b'{"from_seq":0}', b'{"records":[{"data":1}]}'
    raw.sendall(
        b"POST /v0/topics/half/diff HTTP/1.1\r\n"
        + kind % (len(read_it), read_it)
        + b"POST /v0/topics/half HTTP/1.1\r\n"
        + kind % (len(write_it), write_it)
    )
    raw.shutdown(socket.SHUT_WR)
    came = b""
    while data := raw.recv(65536):
        came += data
    raw.close()
    assert came.count(b"HTTP/1.1 200") == 2
    assert read(served.http(), "half").json["head_seq"] == 1


def test_a_session_is_not_lent_to_a_reader_that_has_ended_meanwhile() -> None:
    """It may come back from another reader only then; the process that replaced the one that asked
    knows nothing of it. (§7.3)"""
    owners = {"w": SimpleNamespace(name="")}
    lent = Lent(6, number=1)
    recalled: list[Callable[[], None]] = []
    pool: Any = SimpleNamespace(
        _is_ending=False,
        _streams=SimpleNamespace(owner_of=owners.get, is_open=lambda wid: False),
        _lent_sessions=SimpleNamespace(
            recall=lambda _, then: recalled.append(then), lend=lambda *_: lent
        ),
    )
    process = ReaderProcess(0)
    delivered: list[Any] = []
    process.channel = cast(Any, SimpleNamespace(send=delivered.append))
    for wid, key in (("w", "another"), ("none", "")):
        Pool._lend(pool, process, Borrow(5, wid, key))
    assert delivered == [Lent(5), Lent(5)]
    Pool._lend(pool, process, Borrow(6, "w", ""))
    recalled.pop()()
    assert delivered.pop() is lent
    Pool._lend(pool, process, Borrow(7, "w", ""))
    process.channel = cast(Any, SimpleNamespace(send=delivered.append))
    recalled.pop()()
    assert delivered == [Lent(5), Lent(5)]
