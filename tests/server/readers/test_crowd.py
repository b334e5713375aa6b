"""A crowd of writers: when there is one, and what clients see while readers parse what it writes."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract.server import until
from contract.wire import Ended, Http1, ask, check

from topics.server.readers.crowd import CALM_TICKS, FEW_WRITERS, WRITERS, WRITES_MIN, Crowd
from topics.server.readers.pool import patience

from .served import WithReaders, append, kill, put, read

JSON = {"content-type": "application/json"}
EACH = 8
"""Writes of a client in a volley."""


def ticked(crowd: Crowd, writes: int, turns: int, writers: int = 100) -> bool:
    """Whether there is a crowd after a tick of these."""
    before = crowd.is_here
    crowd.came(writes, writers)
    for _ in range(turns):
        crowd.turn()
    assert crowd.tick() is (crowd.is_here is not before)
    return crowd.is_here


def test_many_that_write_at_once_are_a_crowd() -> None:
    """Few that write much, many whose writes come one by one, and those that seldom write are none; a
    pause of a moment does not end it."""
    crowd = Crowd()
    assert not ticked(crowd, 5000, 5000)
    assert not ticked(crowd, 5000, 100, WRITERS - 1)
    assert not ticked(crowd, WRITES_MIN - 1, 1)
    assert not ticked(crowd, 0, 0)
    assert ticked(crowd, 200, 100, WRITERS)
    for _ in range(CALM_TICKS - 1):
        assert ticked(crowd, 0, 0)
    assert ticked(crowd, 300, 100)
    for _ in range(CALM_TICKS - 1):
        assert ticked(crowd, 1000, 900)
    assert ticked(crowd, 300, 100, FEW_WRITERS)
    for _ in range(CALM_TICKS - 1):
        assert ticked(crowd, 1000, 100, FEW_WRITERS - 1)
    assert not ticked(crowd, 1000, 900)
    assert not ticked(crowd, 1000, 900)
    assert crowd.ticks == 30


def test_a_connection_that_a_crowd_gave_is_given_again_at_once() -> None:
    """Also where it did not arrive, since the reader had ended by then."""
    assert [patience(returns) for returns in (-2, -1, 0)] == [0, 0, 0]
    assert patience(1) > 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WithReaders]]:
    servers: list[WithReaders] = []

    def start(**settings: object) -> WithReaders:
        servers.append(WithReaders(tmp_path / f"server{len(servers)}", **settings))
        return servers[-1].start_all()

    yield start
    for server in servers:
        server.__exit__(None, None, None)


class Writers:
    """Many clients of HTTP/1.1 that write at once, each to its own end of one topic."""

    def __init__(self, server: WithReaders, clients: int = 32) -> None:
        self.server = server
        self.wires = [server.http() for _ in range(clients)]
        self.seqs: list[list[int]] = [[] for _ in range(clients)]

    def volley(self) -> None:
        """Each writes eight times, and all of that comes while the engine's process stands still: its next
        turns take what they wrote together, however busy the machine is."""
        os.kill(self.server.pid, signal.SIGSTOP)
        for number, wire in enumerate(self.wires):
            for at in range(EACH):
                body = b'{"records": [{"data": {"of": %d, "at": %d}}]}' % (number, at)
                wire.send("POST", "/v0/topics/crowd", body, JSON)
        os.kill(self.server.pid, signal.SIGCONT)
        for wire, seqs in zip(self.wires, self.seqs, strict=True):
            for _ in range(EACH):
                found = check(wire.receive())
                assert found.status == 200, found.body
                seqs.append(found.json["first_seq"])

    def until_carried(self) -> None:
        """Write until readers parse what all of them write."""

        def is_carried() -> bool:
            self.volley()
            return self.server.metric("topics_reader_connections") >= len(self.wires)

        until("the crowd is carried by readers", is_carried)


def test_a_crowd_is_carried_by_readers_until_it_is_over(start: Callable[..., WithReaders]) -> None:
    """All is there once, in the order of each connection; refusals are the engine's, byte for byte; what
    was acknowledged is read at once on any connection; a lone client is the engine's again. (§0.10)"""
    server = start()
    alone = server.http()
    put(alone, "crowd")
    put(alone, "jobs", type="queue")
    writers = Writers(server)
    writers.until_carried()
    for _ in range(3):
        writers.volley()

    seqs = [seq for seqs in writers.seqs for seq in seqs]
    assert sorted(seqs) == list(range(1, len(seqs) + 1))
    assert all(each == sorted(each) for each in writers.seqs)
    page = read(alone, "crowd", from_seq=len(seqs) - 1).json
    assert page["head_seq"] == len(seqs)
    for method, path, body in (
        ("POST", "/v0/topics/crowd", b'{"records": ['),
        ("POST", "/v0/topics/crowd", b'{"records": []}'),
        ("POST", "/v0/topics/crowd/claim", b'{"node": "w"}'),
        ("POST", "/v0/topics/none/ack", b'{"node": "w", "seqs": [1]}'),
        ("DELETE", "/v0/topics/none?if_empty=x", b""),
    ):
        writers.volley()
        here, there = ask(writers.wires[0], method, path, body), ask(alone, method, path, body)
        assert (here.status, here.json["error"]) == (there.status, there.json["error"]), path
    keyed = [append(wire, "crowd", 1, idempotency_key="k").json for wire in writers.wires[:3]]
    assert [each.get("deduped", False) for each in keyed] == [False, True, True]
    worker = writers.wires[1]
    append(worker, "jobs", "work")
    [job] = ask(worker, "POST", "/v0/topics/jobs/claim", b'{"node": "w"}').json["claimed"]
    acked = ask(worker, "POST", "/v0/topics/jobs/ack", b'{"node": "w", "seqs": [%d]}' % job["$seq"])
    assert acked.json["acked"] == 1

    def is_back() -> bool:
        for wire in (*writers.wires, alone):
            append(wire, "after", 1)
        return server.metric("topics_reader_connections") == 0

    until("the engine carries who writes alone", is_back)
    assert server.stop() == 0
    server.assert_log_is_quiet()


def test_a_crowd_outlives_a_reader(start: Callable[..., WithReaders]) -> None:
    """Clients of a reader that is killed lose their connection, and what was acknowledged is there."""
    server = start()
    put(server.http(), "crowd")
    writers = Writers(server, 16)
    writers.until_carried()
    kill(server.reader_pids()[0])
    for wire, seqs in zip(writers.wires, writers.seqs, strict=True):
        try:
            found = append(wire, "crowd", 1)
            seqs.append(found.json["first_seq"])
        except Ended:
            wire.reset()
            seqs.append(append(wire, "crowd", 2).json["first_seq"])
    known = {seq for seqs in writers.seqs for seq in seqs}
    found = set[int]()
    reader: Http1 = server.http()
    while True:
        page = read(reader, "crowd", from_seq=max(found, default=0), limit=1000).json
        if not page["records"]:
            break
        found |= {record["$seq"] for record in page["records"]}
    assert known <= found
