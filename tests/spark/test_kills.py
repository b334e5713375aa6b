"""A driver that is killed again and again: afterwards every sink has each record once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench.flights import Server
from topics import Client, NewRecord

from . import driver
from .conftest import Reads

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FULL = 9000, 5
SAMPLE = 5000, 2
"""Records and kills.  A kill takes a driver of its own, half a minute of CPU."""
PATIENCE_S = 300.0


def planned(home: Path) -> int:
    """How many batches of the queries that write to topics have been planned."""
    found = [*home.glob("checkpoints/topic/offsets/*"), *home.glob("checkpoints/staged/offsets/*")]
    return sum(path.name.isdigit() for path in found)


class Driver:
    """`driver.py` in a process group of its own, with its JVM and its workers."""

    def __init__(self, server: Server, name: str, home: Path) -> None:
        self.home = home
        with (home / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", server.url, name, str(home)],
                cwd=Path(driver.__file__).parents[2],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_after(self, batches: int) -> bool:
        """SIGKILL to all of it once so many more batches were planned, at any moment of the last
        one; False: it had ended before, by a failure that is Spark's own."""
        until = planned(self.home) + batches
        deadline_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and planned(self.home) < until:
            assert time.monotonic() < deadline_s, self.words()
            time.sleep(0.01)
        was_running = self.process.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        assert was_running or (code and self.was_sparks()), self.words()
        return was_running

    def finish(self) -> bool:
        """Run to the end; False as for `kill_after`."""
        code = self.process.wait(PATIENCE_S)
        assert code == 0 or self.was_sparks(), self.words()
        return code == 0

    def was_sparks(self) -> bool:
        # The workers that came too late say more behind it.
        said = (self.home / "driver.log").read_text()
        return driver.TOO_BUSY in said or driver.COLLIDED in said

    def words(self) -> str:
        return (self.home / "driver.log").read_text()[-3000:]


@pytest.mark.long
def test_each_record_is_in_every_sink_once(
    reads: Reads, client: Client, server: Server, home: Path, name: str, is_full: bool
) -> None:
    """Kills in the middle of batches, five in full size, and then to the end: topic, staged topic,
    folder, Delta table and Spark's files have the records of the source, none twice and none
    missing."""
    chance = random.Random(7)
    records, wanted = FULL if is_full else SAMPLE
    client.append_many(name, [NewRecord({"n": n}, tag=f"t{n % 5}") for n in range(records)])
    kills = 0
    while kills < wanted:
        kills += Driver(server, name, home).kill_after(chance.randrange(2, 5))
    while not Driver(server, name, home).finish():
        pass

    expected = Counter((f"t{n % 5}", f'{{"n":{n}}}') for n in range(records))
    spark = reads.spark
    found = {
        "topic": reads(subscribe=f"{name}.copy"),
        "staged": reads(subscribe=f"{name}.staged"),
        "folder": spark.read.parquet(str(home / "folder")),
        "files": spark.read.parquet(str(home / "files")),
    }
    for sink, frame in found.items():
        counted = Counter(tuple(row) for row in frame.select("tag", "data").collect())
        assert counted == expected, sink
    in_delta = DeltaTable(str(home / "delta")).to_pyarrow_table(columns=["tag", "data"]).to_pylist()
    assert Counter((row["tag"], row["data"]) for row in in_delta) == expected
    assert list((home / "staging").rglob("*.chunks")) == []
