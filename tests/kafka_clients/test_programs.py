"""Programs of others, unchanged: kcat, Kafka's own tools, and clients in Go and JavaScript."""

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests import brokers

from .conftest import HERE, run

COUNT = 30
RECORDS = [f"{at} k {at}" for at in range(COUNT)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_kcat(bootstrap: str, topic: str, codec: str, http: httpx.Client) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("needs kcat")
    lines = "".join(f"k:{at}\n" for at in range(COUNT))
    run(kcat, "-b", bootstrap, "-P", "-t", topic, "-K:", "-z", codec, stdin=lines)
    line = (kcat, "-b", bootstrap, "-C", "-t", topic, "-e", "-q", "-o", "beginning")
    assert run(*line, "-f", "%o %k %s\n").splitlines() == RECORDS
    assert http.get(f"topics/{topic}").json()["count"] == COUNT


@pytest.mark.parametrize("name", ["franz", "sarama", "segment"])
def test_clients_in_go(go: Callable[[str], Path], bootstrap: str, topic: str, name: str) -> None:
    assert run(go(name), bootstrap, topic, COUNT).splitlines() == RECORDS


def test_kafkajs(kafkajs: Path, bootstrap: str, http: httpx.Client) -> None:
    """It creates, writes with and without compression, asks for offsets, and changes a config."""
    program = HERE / "programs" / "js" / "client.js"
    found = run("node", program, bootstrap, "of-js", COUNT, NODE_PATH=str(kafkajs))
    assert found.splitlines() == [f"0 {COUNT}", "retention.ms 700000"]
    records = http.post("topics/of-js/diff", json={"include_tags": True}).json()["records"]
    assert [(each["$tag"], each["data"]) for each in records] == [("k", at) for at in range(COUNT)]


def tool(name: str, *arguments: object, stdin: str = "") -> str:
    try:
        java, jars = brokers.java(), brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    flags = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*")
    package = "kafka.admin" if name == "ConfigCommand" else "org.apache.kafka.tools"
    return run(java, *flags, f"{package}.{name}", *arguments, stdin=stdin)


@pytest.mark.kafka
def test_tools_of_kafka(bootstrap: str, topic: str) -> None:
    """The console's producer and consumer, the one that measures, and the one that lists."""
    server = ("--bootstrap-server", bootstrap)
    lines = "".join(f"{at}\n" for at in range(COUNT))
    tool("ConsoleProducer", *server, "--topic", topic, stdin=lines)
    read = ("--topic", topic, "--partition", 0, "--offset", "earliest", "--max-messages", COUNT)
    found = tool("consumer.ConsoleConsumer", *server, *read, "--timeout-ms", 30_000)
    assert found.split() == [str(at) for at in range(COUNT)]
    perf = ("--num-records", 5000, "--record-size", 100, "--throughput", -1)
    props = ("--command-property", f"bootstrap.servers={bootstrap}")
    assert "5000 records sent" in tool("ProducerPerformance", "--topic", topic, *perf, *props)
    assert topic in tool("TopicCommand", *server, "--list").split()
    assert "PartitionCount: 1" in tool("TopicCommand", *server, "--describe", "--topic", topic)
    made = ("--create", "--topic", f"{topic}-made", "--config", "retention.ms=60000")
    assert "Created topic" in tool("TopicCommand", *server, *made)
    offsets = tool("GetOffsetShell", *server, "--topic", topic)
    assert offsets.strip() == f"{topic}:0:{COUNT + 5000}"


@pytest.mark.kafka
def test_tools_of_administrators(bootstrap: str, topic: str) -> None:
    """Tools that show and change configs, or tell of directories, producers and reassignments. (§8)"""
    server = ("--bootstrap-server", bootstrap)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    tool("ConsoleProducer", *server, "--topic", topic, stdin="1\n")
    added = "retention.ms=700000,cleanup.policy=[compact,delete],topics.durability=fsync"
    tool("ConfigCommand", *server, *of_topic, "--alter", "--add-config", added)
    tool("ConfigCommand", *server, *of_topic, "--alter", "--delete-config", "retention.ms")
    found = tool("ConfigCommand", *server, *of_topic, "--describe")
    shown = [line.split()[0] for line in found.splitlines() if line.startswith("  ")]
    assert shown == ["cleanup.policy=compact,delete", "topics.durability=fsync"]
    broker = ("--entity-type", "brokers", "--entity-name", 1, "--describe", "--all")
    assert "num.partitions=1" in tool("ConfigCommand", *server, *broker)
    directories = tool("LogDirsCommand", *server, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in directories
    transactions = ("describe-producers", "--topic", topic, "--partition", 0)
    (_, producer) = tool("TransactionsCommand", *server, *transactions).splitlines()
    assert producer.split()[1:4] == ["0", "-1", "0"]
    moved = tool("reassign.ReassignPartitionsCommand", *server, "--list")
    assert moved.strip() == "No partition reassignments found."
    assert "IncrementalAlterConfigs(44): 0 to 1" in tool("BrokerApiVersionsCommand", *server)


@pytest.mark.kafka
def test_tools_for_groups_and_partitions(bootstrap: str, topic: str) -> None:
    """Partitions are added, a group reads them, is shown, set back, and forgotten. (§5, §8)"""
    server = ("--bootstrap-server", bootstrap)
    tool("TopicCommand", *server, "--alter", "--topic", topic, "--partitions", 2)
    lines = "".join(f"{at}:{at}\n" for at in range(COUNT))
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("ConsoleProducer", *server, "--topic", topic, *keyed, stdin=lines)
    read = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", COUNT)
    found = tool("consumer.ConsoleConsumer", *server, *read, "--timeout-ms", 60_000)
    assert sorted(map(int, found.split())) == list(range(COUNT))

    def groups(*arguments: str) -> list[list[str]]:
        """The rows of a table, below its head."""
        named = ("--group", topic, *arguments)
        printed = tool("consumer.group.ConsumerGroupCommand", *server, *named)
        return [line.split() for line in printed.splitlines() if topic in line]

    def lag() -> int:
        rows = groups("--describe")
        assert [row[1:3] for row in rows] == [[topic, "0"], [topic, "1"]]
        return sum(int(row[5]) for row in rows)

    assert lag() == 0
    (state,) = groups("--describe", "--state")
    assert state[-2:] == ["Empty", "0"]
    moved = groups("--reset-offsets", "--topic", f"{topic}:1", "--to-earliest", "--execute")
    assert moved == [[topic, topic, "1", "0"]]
    assert 0 < lag() < COUNT
    deleted = groups("--delete-offsets", "--topic", topic)
    assert [row[1:] for row in deleted if row[0] == topic] == [
        ["0", "Successful"],
        ["1", "Successful"],
    ]
    groups("--delete")
    assert topic not in tool("consumer.group.ConsumerGroupCommand", *server, "--list").split()


@pytest.mark.kafka
@pytest.mark.parametrize("codec", CODECS)
def test_java_reads_what_is_left_of_a_batch(
    bootstrap: str, topic: str, codec: str, http: httpx.Client
) -> None:
    """Records that HTTP deleted out of compressed batches: the rest is compressed anew, as Java takes it. (§3)"""
    lines = "".join(f"{'even' if at % 2 == 0 else 'odd'}:{at} {'x' * 2000}\n" for at in range(200))
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    packed = ("--compression-codec", codec, "--batch-size", 500_000, "--timeout", 1000)
    tool("ConsoleProducer", *server, *keyed, *packed, stdin=lines)
    assert http.post(f"topics/{topic}/delete", json={"match": "odd"}).json()["deleted"] == 100
    read = ("--partition", 0, "--offset", "earliest", "--max-messages", 100)
    found = tool("consumer.ConsoleConsumer", *server, *read, "--timeout-ms", 30_000)
    assert [line.split()[0] for line in found.splitlines()] == [str(at) for at in range(0, 200, 2)]
