"""One session of Spark and one server for all tests of this folder that are marked `spark`."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.flights import Server
from topics import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pyspark = pytest.importorskip("pyspark", reason="needs the extra spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark and its client warn of things of their own: sockets, pandas, deprecations."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("default"))


def without_archive(home: Path) -> Path:
    """A directory of Spark's that lacks the archive of PySpark's modules.

    Nothing in an archive is compiled beforehand, and Spark puts it before all else in the path of
    every Python process that it starts: half a second of CPU each.  Without it they import the same
    modules as pip installed them.
    """
    installed = Path(pyspark.__file__).parent
    for name in ("bin", "jars"):
        (home / name).symlink_to(installed / name)
    return home


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Started once: the first row takes 20 s."""
    from topics.spark.errors import SparkFailure
    from topics.spark.sessions import session

    # Every JVM of these tests lives for moments: neither a second compiler nor threads for garbage
    # pay for themselves, nor does the verification of Spark's own classes.  A session begins with
    # three fifths of the CPU that it takes without these.
    os.environ.setdefault(
        "JDK_JAVA_OPTIONS",
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    )
    if "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(without_archive(tmp_path_factory.mktemp("home")))
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "1",
        # A server of Spark Connect in the same JVM, at a port of its own choice.
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    try:
        found = session("tests", master="local[2,4]", settings=settings)
    except SparkFailure as missing:
        pytest.skip(str(missing))
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server process; tests have topics of their own in it."""
    server = Server(tmp_path_factory.mktemp("spark"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest, client: Client) -> str:
    """A topic of this test's own."""
    words = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80].strip("-")
    return words.lower()


class Reads:
    """Reads of one topic of the server, by path or by URL."""

    def __init__(self, spark: "SparkSession", server: Server, name: str) -> None:
        self.spark, self.server, self.name = spark, server, name

    def options(self, how: str, **more: Any) -> dict[str, str]:
        place = {"path": str(self.server.data_dir)} if how == "path" else {"url": self.server.url}
        named = {} if {"subscribe", "subscribePattern"} & more.keys() else {"subscribe": self.name}
        return {k: str(v) for k, v in {**place, **named, **more}.items()}

    def __call__(self, how: str = "url", schema: str | None = None, **more: Any) -> "DataFrame":
        reader = self.spark.read.format("topics").options(**self.options(how, **more))
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, how: str = "url", schema: str | None = None, **more: Any) -> "DataFrame":
        reader = self.spark.readStream.format("topics").options(**self.options(how, **more))
        return (reader.schema(schema) if schema else reader).load()


@pytest.fixture
def reads(spark: "SparkSession", server: Server, name: str) -> Reads:
    return Reads(spark, server, name)


def settle(server: Server) -> None:
    """What was acknowledged is durable, and a path shows it: the server is started anew."""
    port = server.url.rsplit(":", 1)[1]
    server.stop()
    server.start(port)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)
