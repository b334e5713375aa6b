"""Brokers of Kafka on this machine, for tests and for a try: started, killed, paused, started again.

    python -m tests.brokers --count 3      prints the bootstrap servers, and runs until it is stopped

Kafka comes from Maven Central, once, into `build/kafka`, and needs a Java of 17 or more.  Each broker is
a process that is a controller as well (KRaft), listens on loopback, and keeps its data in a folder of
its own.  A broker that was killed starts again with its port and its data.
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final
from uuid import uuid4

from tests.ports import unused_ports

VERSION: Final = "4.3.1"
ROOT: Final = Path(__file__).parents[1]
CACHE: Final = ROOT / "build" / "kafka"
HEAP_MB: Final = 384
START_SECONDS: Final = 90

CONNECTOR_VERSION: Final = "4.2.0"
"""Of Spark's source for Kafka, as Maven Central has it; Spark 4.3 runs it, too."""

POM: Final = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>topics</groupId><artifactId>brokers</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""


def _of_kafka(*artifacts: str) -> str:
    return "".join(
        f"""\
<dependency>
  <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{VERSION}</version>
</dependency>
"""
        for artifact in artifacts
    )


KAFKA: Final = _of_kafka("kafka_2.13", "kafka-tools")
PROGRAMS: Final = _of_kafka("kafka-streams", "connect-runtime", "connect-file")
# All that it needs and PySpark does not bring, by name: what Spark's jars ask for themselves is a
# second Hadoop, from repositories beside Central.
CONNECTOR: Final = "".join(
    f"""\
<dependency>
  <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency>
"""
    for group, artifact, version in (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", CONNECTOR_VERSION),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.13.1"),
    )
)


class NoBrokers(Exception):
    """Brokers cannot be had here: one line that says what is missing."""


def java() -> str:
    """Raises NoBrokers."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise NoBrokers("Kafka needs Java: apt-get install openjdk-17-jre-headless")
    return found


def jars() -> Path:
    """The folder of Kafka's jars; downloaded when asked for the first time.

    Raises:
        NoBrokers: Without Maven, or without a way to Maven Central.
    """
    return _fetched(f"{VERSION}-tools", KAFKA)


def program_jars() -> Path:
    """The folder of the jars of Kafka Streams and Kafka Connect.

    Raises:
        NoBrokers: As `jars`.
    """
    return _fetched(f"{VERSION}-programs", PROGRAMS)


def connector_jars() -> Path:
    """The folder of the jars by which Spark reads Kafka: `spark.sql(f"ADD JAR '{jar}'")` for each.

    Raises:
        NoBrokers: As `jars`.
    """
    return _fetched(f"spark-{CONNECTOR_VERSION}", CONNECTOR)


def _fetched(name: str, dependencies: str) -> Path:
    folder = CACHE / name
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise NoBrokers("Kafka comes by Maven: apt-get install maven")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pom, libs = Path(scratch) / "pom.xml", Path(scratch) / "libs"
        pom.write_text(POM.format(dependencies))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), *goal],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines()
            raise NoBrokers(f"Maven did not get Kafka: {lines[0] if lines else 'no reason given'}")
        # Renamed once it is whole: a download that was cut off is not taken for one.
        with contextlib.suppress(FileExistsError, OSError):
            libs.rename(folder)
    return folder


class Broker:
    """One process.

    Attributes:
        number: Its `node.id`, from 1.
        port: Where clients reach it, on 127.0.0.1.
    """

    flags: ClassVar[Sequence[str]] = (
        f"-Xmx{HEAP_MB}m",
        "-XX:+UseSerialGC",
        # The small compiler: a broker of a test lives for a minute, of which the other one takes half.
        "-XX:TieredStopAtLevel=1",
    )
    """Of Java."""

    def __init__(self, folder: Path, number: int, port: int, properties: str) -> None:
        self.number, self.port, self.folder = number, port, folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        self._properties = folder / "server.properties"
        self._properties.write_text(properties)

    def format(self, cluster: str) -> None:
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties))

    def _command(self, name: str, *arguments: str) -> list[str]:
        return [java(), *self.flags, "-cp", f"{jars()}/*", name, *arguments]

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(name, *arguments),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise NoBrokers(f"{name} failed: {(done.stdout + done.stderr).strip()[-400:]}")

    def start(self) -> None:
        """Does not wait: `Brokers.wait` does."""
        assert self._process is None
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)), stdout=out, stderr=out
            )

    @property
    def pid(self) -> int:
        """Of a broker that was started."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_started(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGTERM: it hands its partitions over."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
            self.kill()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def is_open(self) -> bool:
        """Whether it takes connections.

        Raises:
            NoBrokers: It has ended by itself.
        """
        if self._process is not None and self._process.poll() is not None:
            tail = (self.folder / "out").read_text(errors="replace")[-600:]
            raise NoBrokers(f"broker {self.number} ended: {tail}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Brokers:
    """A cluster of brokers in a folder.

    Attributes:
        brokers: By their numbers less one.
        bootstrap: What a client is given.
    """

    def __init__(self, folder: Path, count: int = 1, properties: str = "") -> None:
        ports = unused_ports(2 * count)
        clients, controllers = ports[:count], ports[count:]
        voters = ",".join(f"{at}@127.0.0.1:{port}" for at, port in enumerate(controllers, start=1))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in clients)
        self.brokers = [
            Broker(
                folder / f"broker-{at}",
                at,
                port,
                _properties(folder, at, port, controller, voters, count) + properties,
            )
            for at, (port, controller) in enumerate(zip(clients, controllers, strict=True), start=1)
        ]
        cluster = uuid4().hex[:22]
        for broker in self.brokers:
            broker.format(cluster)

    def start(self) -> None:
        """Start those that do not run, and wait for all."""
        for broker in self.brokers:
            if not broker.is_started:
                broker.start()
        self.wait()

    def wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        for broker in self.brokers:
            while broker.is_started and not broker.is_open():
                if time.monotonic() > until:
                    raise NoBrokers(f"broker {broker.number} does not take connections")
                time.sleep(0.1)

    def stop(self) -> None:
        for broker in self.brokers:
            broker.kill()


def _properties(
    folder: Path, number: int, port: int, controller: int, voters: str, count: int
) -> str:
    copies = min(count, 3)
    lines = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / f"broker-{number}" / "data",
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        # Seconds after which a broker that is dead is known as such; 9 by default.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


@contextlib.contextmanager
def running(count: int = 1, properties: str = "") -> Iterator[Brokers]:
    """Brokers in a folder of their own, killed and removed at the end.

    Raises:
        NoBrokers: There is no Java, or no Kafka.
    """
    java()
    jars()
    with tempfile.TemporaryDirectory(prefix="topics-kafka-") as folder:
        brokers = Brokers(Path(folder), count, properties)
        try:
            brokers.start()
            yield brokers
        finally:
            brokers.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.brokers", description=__doc__)
    parser.add_argument("--count", type=int, default=1, choices=(1, 3))
    count = parser.parse_args(arguments).count
    # SIGTERM ends as Ctrl-C does: no broker outlives this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running(count) as brokers:
            print(brokers.bootstrap, flush=True)
            signal.pause()
    except NoBrokers as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
