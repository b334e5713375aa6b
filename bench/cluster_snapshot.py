"""How long a node without data takes to have that of another one: a snapshot of a million records.

    .venv/bin/python -m bench.cluster_snapshot             a broker and three nodes on this machine
    .venv/bin/python -m bench.cluster_snapshot --records 100000 --bytes 1000

One node is away while records are written, and its directory is empty.  Then it starts, with Kafka's log
whole, and takes a snapshot of a follower.  What is told is the snapshot itself, as `/v0/cluster` has it
(`taken_ms`: asked for, copied, verified, in its place), and beside it `cp -r` of the same store with a
sync, in the same run: the least that moving those bytes takes here.  Needs Java, as `make cluster` does.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import brokers, nodes
from tests.nodes import NodeServer, NodeServers

ROUNDS = 3
BATCH = 1000


def fill(node: NodeServer, records: int, size_bytes: int) -> None:
    text = "x" * size_bytes
    for _ in range(0, records, BATCH):
        node.ask("/v0/topics/bench", {"records": [{"data": text}] * BATCH})


def taken_ms(node: NodeServer) -> int:
    """A start of this node with an empty directory, until it serves."""
    node.kill()
    shutil.rmtree(node.data_dir, ignore_errors=True)
    node.start()
    node.wait_ready()
    snapshot = node.ask("/v0/cluster")["snapshot"]
    assert snapshot["taken"] == 1, snapshot
    return int(snapshot["taken_ms"])


def copied_ms(store: Path) -> int:
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        begun = time.monotonic()
        shutil.copytree(store, Path(folder) / "copy")
        os.sync()
        return int((time.monotonic() - begun) * 1000)


def measure(servers: NodeServers, records: int, size_bytes: int) -> None:
    away = next(node for node in servers.nodes if node is not servers.leader())
    away.kill()
    giver = next(node for node in servers.nodes if node is not away)
    fill(giver, records, size_bytes)
    rounds = [(taken_ms(away), copied_ms(away.data_dir / "store")) for _ in range(ROUNDS)]
    stored = sum(each.stat().st_size for each in (away.data_dir / "store").iterdir())
    taken, copied = min(each[0] for each in rounds), min(each[1] for each in rounds)
    print(f"{records:,} records of {size_bytes} bytes, a store of {stored / 1e6:,.0f} MB")
    print(f"snapshot      {taken:,} ms   of {[each[0] for each in rounds]}")
    print(f"cp -r, sync   {copied:,} ms   of {[each[1] for each in rounds]}")
    print(f"ratio         {taken / max(copied, 1):.1f}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_snapshot", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=64, dest="size_bytes")
    given = parser.parse_args(arguments)
    try:
        with brokers.running() as kafka, nodes.running(kafka.bootstrap) as servers:
            measure(servers, given.records, given.size_bytes)
    except brokers.NoBrokers as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
