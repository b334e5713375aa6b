"""Clients at once on a real server that is killed again and again: each call took effect at one
moment, all of it or nothing, and what was acknowledged is there.  (F1, F25, F30)

Six kills by default, thirty with `TOPICS_TESTS_KILLS=30` as CI has it, and as many as there is time
for by hand.
"""

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from contract.api import Api
from contract.server import Server, until
from contract.wire import Http1

from .checker import check_log, check_ordered, check_queue, check_urgent
from .clients import (
    LEASE_MS,
    LOGS,
    ORDERED,
    PRIORITIES,
    QUEUES,
    URGENT,
    Client,
    Run,
    drain,
    prepare,
    read_all,
)
from .history import ALL, ENDLESS, Append, LogHistory, QueueHistory

KILLS: Final = int(os.environ.get("TOPICS_TESTS_KILLS", "6"))
CLIENTS: Final = 8


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """In all processes of a server a turn looks at few runs, so that a filtered read and a delete by tag
    take many."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("short_turns")))


def lived(home: Path, *, kills: int, seed: int, readers: int = 0) -> Run:
    """A run of eight clients over so many kills, and its histories.

    Files are small, so that kills meet rotations, seals, checkpoints and recoveries.
    """
    rng = random.Random(seed)
    settings = {
        "wal_file_bytes": 1 << 20,
        "segment_max_records": 64,
        "hot_max_bytes": 1 << 20,
        "readers": readers,
    }
    with Server(home, **settings) as server:
        run = Run(server)
        api = Api(server.connect(Http1))
        for name in LOGS:
            api.put(name, durability=name)
        for queue, config in QUEUES.items():
            api.put(queue, type="queue", lease_ms=LEASE_MS, leases_durable=True, **config)
        prepare(run, server.connect(Http1))
        clients = [Client(run, n) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            for _ in range(kills):
                run.is_up.set()
                enough = run.calls + rng.randrange(500)
                until("some calls", lambda n=enough: run.calls >= n or has_failed(clients))
                run.is_up.clear()
                server.kill()
                if rng.random() < 0.2:
                    # Killed in the middle of its start, too, at whatever point that is.
                    server.start(ready=False)
                    server.kill()
                server.start()
                wire = server.connect(Http1)
                read_all(run, wire)
            run.is_up.set()
            enough = run.calls + 100
            until("the last calls", lambda: run.calls >= enough or has_failed(clients))
        finally:
            run.is_over.set()
            run.is_up.set()
            for client in clients:
                client.join()
        for client in clients:
            if client.failure is not None:
                raise client.failure
        last = server.connect(Http1)
        for name in QUEUES:
            drain(run, last, name)
        read_all(run, last)
        assert server.stop() == 0
        server.assert_log_is_quiet()
    return run


def has_failed(clients: list[Client]) -> bool:
    return any(client.failure is not None for client in clients)


def is_answered(append: Append) -> bool:
    return append.returned < ENDLESS


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("readers", [0, 2])
def test_concurrent_clients_and_kills(tmp_path: Path, readers: int) -> None:
    """Nothing acknowledged is missing, nothing is doubled or comes back, no batch is in part there,
    and no call shows what another could not have left: reads with filters and deletes by tag
    included, which take several turns. Jobs of a group are given one after another, and urgent ones first.
    (F1, F25, §10.2)"""
    seed, kills = random.randrange(1 << 32), max(KILLS // 2, 1)
    print(f"seed {seed}, {kills} kills, {readers} readers")

    run = lived(tmp_path, kills=kills, seed=seed, readers=readers)

    for name, history in run.logs.items():
        assert check_log(history) == [], (name, seed)
        assert sum(map(is_answered, history.appends)) > kills
        assert any(delete.deleted for delete in history.deletes)
        assert any(read.filter != ALL and read.records for read in history.reads)
        lose_one_record(name, history)
        assert check_log(history), "a loss from a real history is not seen"
    for name, queue in run.queues.items():
        assert check_queue(queue) == [], (name, seed)
        assert sum(ack.is_done is True for ack in queue.acks) > kills
    ordered, urgent = run.queues[ORDERED], run.queues[URGENT]
    assert check_ordered(ordered) == [], seed
    assert check_urgent(urgent) == [], seed
    lose_an_ack(ordered)
    assert check_ordered(ordered), "a real history of which an ack is taken out is not seen"
    assert {grant.priority for claim in urgent.claims for grant in claim.grants} == {*PRIORITIES}


def lose_an_ack(history: QueueHistory) -> None:
    """Take out that a job was done of which a later one of the group was given."""
    last: dict[str, int] = {}
    for claim in history.claims:
        for grant in claim.grants:
            last[grant.group] = max(last.get(grant.group, 0), grant.seq)
    before = {
        grant.seq
        for claim in history.claims
        for grant in claim.grants
        if grant.seq < last[grant.group]
    }
    history.acks = [ack for ack in history.acks if ack.seq != min(before)]


def lose_one_record(topic: str, history: LogHistory) -> None:
    """Take a record that nobody deletes out of the last read that shows one."""
    for at in reversed(range(len(history.reads))):
        read = history.reads[at]
        kept = tuple(one for one in read.records if not one[1].startswith(f"{topic}/"))
        if kept != read.records:
            history.reads[at] = replace(read, records=kept)
            return
    raise AssertionError("no read shows such a record")
