"""Clients at once on a real server that is killed again and again: each call took effect at one
moment, all of it or nothing, and what was acknowledged is there.  (F1, F25, F30)

Six kills by default, sixty with `TOPICS_TESTS_KILLS=60` as CI has it, and as many as there is time
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

from .checker import check_log, check_queue
from .clients import LEASE_MS, LOGS, QUEUE, Client, Run, drain, read_all
from .history import ENDLESS, Append, LogHistory

KILLS: Final = int(os.environ.get("TOPICS_TESTS_KILLS", "6"))
CLIENTS: Final = 8


def lived(home: Path, *, kills: int, seed: int) -> Run:
    """A run of eight clients over so many kills, and its histories.

    Files are small, so that kills meet rotations, seals, checkpoints and recoveries.
    """
    rng = random.Random(seed)
    settings = {
        "wal_file_bytes": 1 << 20,
        "segment_max_records": 256,
        "hot_max_bytes": 1 << 20,
    }
    with Server(home, **settings) as server:
        run = Run(server)
        api = Api(server.connect(Http1))
        for name in LOGS:
            api.put(name, durability=name)
        api.put(QUEUE, type="queue", lease_ms=LEASE_MS, leases_durable=True)
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
        drain(run, last)
        read_all(run, last)
        assert server.stop() == 0
        server.assert_log_is_quiet()
    return run


def has_failed(clients: list[Client]) -> bool:
    return any(client.failure is not None for client in clients)


def is_answered(append: Append) -> bool:
    return append.returned < ENDLESS


@pytest.mark.timeout(1800)
def test_concurrent_clients_and_kills(tmp_path: Path) -> None:
    """Nothing acknowledged is missing, nothing is doubled or comes back, no batch is in part there,
    and no call shows what another could not have left. (F1, F25)"""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {KILLS} kills")

    run = lived(tmp_path, kills=KILLS, seed=seed)

    for name, history in run.logs.items():
        assert check_log(history) == [], (name, seed)
        assert sum(map(is_answered, history.appends)) > KILLS
        assert any(delete.deleted for delete in history.deletes)
        lose_one_record(history)
        assert check_log(history), "a loss from a real history is not seen"
    assert check_queue(run.queue) == [], seed
    assert sum(ack.is_done is True for ack in run.queue.acks) > KILLS


def lose_one_record(history: LogHistory) -> None:
    """Take the newest record out of the last read that has any."""
    at = max(i for i, read in enumerate(history.reads) if read.records)
    read = history.reads[at]
    history.reads[at] = replace(read, records=read.records[:-1])
