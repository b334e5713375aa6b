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

from .conftest import Reads, settle

pytestmark = pytest.mark.spark
pytest.importorskip("grpc", reason='Spark Connect needs pip install "pyspark[connect]"')

PROGRAM = """
import json, sys
from topics.spark import session

path, url, topic, home = sys.argv[1:]
spark = session("connect")
spark.conf.set("spark.sql.shuffle.partitions", "1")
place = {"path": path, "subscribe": topic, "startingOffsets": "earliest"}
away = {**place, "url": url, "access": "remote"}
frame, remote = (spark.read.format("topics").options(**each).load() for each in (place, away))
query = (
    spark.readStream.format("topics").options(**place).load().select("seq").writeStream
    .format("parquet").option("path", f"{home}/files").option("checkpointLocation", f"{home}/mark")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
print(json.dumps({
    "kind": type(spark).__module__,
    "rows": [list(row) for row in frame.select("seq", "tag", "data").orderBy("seq").collect()],
    "remote": remote.exceptAll(frame).count() + remote.count(),
    "streamed": spark.read.parquet(f"{home}/files").count(),
}))

from topics.cli import main

main(["export", topic, "--path", path, "--to", f"{home}/lake", "--json"], standalone_mode=False)
"""


ALONE = """
from topics.spark import session

spark = session("connect")
place = {"path": %r, "subscribe": %r}
print(type(spark).__module__, spark.read.format("topics").options(**place).load().count())
"""


def run(program: str, remote: str, *arguments: object) -> str:
    """Standard output of a client that finds its server in the environment."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "SPARK_REMOTE": remote},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_over_spark_connect(reads: Reads, client: Client, home: Path, name: str) -> None:
    """A server in another process: found without a call that registers it, read by path and by URL,
    followed; and `topics export` takes the engine spark, because SPARK_REMOTE is set."""
    client.append_many(name, [NewRecord({"n": n}, tag="ab"[n % 2]) for n in range(100)])
    settle(reads.server)
    package = reads.spark._jvm.org.apache.spark.sql.connect.service
    service = getattr(getattr(package, "SparkConnectService$"), "MODULE$")
    url = f"sc://127.0.0.1:{service.localPort()}"

    said = run(PROGRAM, url, reads.server.data_dir, reads.server.url, name, home)

    lines: list[dict[str, Any]] = [
        json.loads(line) for line in said.splitlines() if line.startswith("{")
    ]
    found, *events = lines
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["rows"] == [
        [n + 1, "ab"[n % 2], json.dumps({"n": n}, separators=(",", ":"))] for n in range(100)
    ]
    assert found["remote"] == found["streamed"] == 100
    assert events[-1]["event"] == "done"
    # The engine direct would have made one.
    assert len(list((home / "lake").rglob("part-*.parquet"))) > 1


def test_a_server_of_its_own(client: Client, server: Server, name: str) -> None:
    """`SPARK_REMOTE=local[2]`: the client starts the server, with the Python of this process."""
    client.append_many(name, [NewRecord(n) for n in range(100)])
    settle(server)

    kind, count = run(ALONE % (str(server.data_dir), name), "local[2]").split()[-2:]

    assert kind.startswith("pyspark.sql.connect")
    assert count == "100"
