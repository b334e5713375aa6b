"""Spark Connect: the same reads, streams and exports where the session is a client of a server.

The session is one of a process of its own, because a process has either kind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.flights import Server
from topics import Client, NewRecord

from .conftest import settle

pytestmark = pytest.mark.spark
pytest.importorskip("grpc", reason='Spark Connect needs pip install "pyspark[connect]"')

PROGRAM = """
import json, sys
from topics.spark import session

path, topic, home = sys.argv[1:]
spark = session("connect")
spark.conf.set("spark.sql.shuffle.partitions", "1")
place = {"path": path, "subscribe": topic, "startingOffsets": "earliest"}
frame = spark.read.format("topics").options(**place).load()
query = (
    spark.readStream.format("topics").options(**place).load().select("seq").writeStream
    .format("parquet").option("path", f"{home}/files").option("checkpointLocation", f"{home}/mark")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
print(json.dumps({
    "kind": type(spark).__module__,
    "rows": [list(row) for row in frame.select("seq", "tag", "data").orderBy("seq").collect()],
    "streamed": spark.read.parquet(f"{home}/files").count(),
}))

from topics.cli import main

main(["export", topic, "--path", path, "--to", f"{home}/lake", "--json"], standalone_mode=False)
"""


def test_over_spark_connect(client: Client, server: Server, home: Path, name: str) -> None:
    """Found without a call that registers it, read, followed; and `topics export` takes the engine
    spark, because SPARK_REMOTE is set."""
    client.append_many(name, [NewRecord({"n": n}, tag="ab"[n % 2]) for n in range(100)])
    settle(server)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(server.data_dir), name, str(home)],
        env={**os.environ, "SPARK_REMOTE": "local[2]"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]
    found, *events = lines
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["rows"] == [
        [n + 1, "ab"[n % 2], json.dumps({"n": n}, separators=(",", ":"))] for n in range(100)
    ]
    assert found["streamed"] == 100
    assert events[-1]["event"] == "done"
    # The engine direct would have made one.
    assert len(list((home / "lake").rglob("part-*.parquet"))) > 1
