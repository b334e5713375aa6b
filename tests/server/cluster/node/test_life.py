"""A cluster of real servers over a real broker: `topics serve`, three times. (§8.2 of the cluster)

One cluster for all stories of this module, which come in their order.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest

from tests import brokers, nodes
from tests.nodes import Answered, NodeServer, NodeServers
from topics.server.cluster.kafka.heartbeats import Beat

pytestmark = pytest.mark.kafka

PATIENCE_SECONDS = 60
"""Bounds a hang."""


@pytest.fixture(scope="module")
def servers() -> Iterator[NodeServers]:
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    # A short session: a test waits for a leader's death to be noticed.
    session = {"TOPICS_CLUSTER_SESSION_MS": "2000"}
    with brokers.running() as kafka, nodes.running(kafka.bootstrap, **session) as found:
        yield found


def append(node: NodeServer, topic: str, *datas: object, key: str = "") -> dict[str, str]:
    """The headers of the answer."""
    also = {"idempotency_key": key} if key else {}
    body = {"records": [{"data": data} for data in datas], **also}
    return node.ask_with_headers(f"/v0/topics/{topic}", body)[1]


def datas(node: NodeServer, topic: str, **headers: str) -> list[object]:
    """All of them."""
    found: list[object] = []
    seq, is_there = 0, True
    while is_there:
        body = {"from_seq": seq, "limit": 1000}
        page, _ = node.ask_with_headers(f"/v0/topics/{topic}/diff", body, headers=headers)
        found += [record["data"] for record in page["records"]]
        is_there = bool(page["records"]) and page["records"][-1]["$seq"] < page["head_seq"]
        seq = page["records"][-1]["$seq"] if page["records"] else seq
    return found


def test_what_is_written_at_any_node_is_read_at_every_one(servers: NodeServers) -> None:
    """The write goes to the leader, whom the answer names; a read that brings the write's position
    sees it, wherever it comes to. (§5)"""
    leader = servers.leader()

    for number, node in enumerate(servers.nodes):
        headers = append(node, "a", number)
        assert ("x-topics-leader" in headers) == (node is not leader)
        for reader in servers.nodes:
            position = {"x-topics-position": headers["x-topics-position"]}
            assert datas(reader, "a", **position)[-1] == number

    assert {str(datas(node, "a")) for node in servers.nodes} == {"[0, 1, 2]"}


def test_a_stream_at_one_node_has_what_is_written_at_another(servers: NodeServers) -> None:
    """Its session is one node's, and the stream is taken from another one. (§5)"""
    first, second, third = servers.nodes
    session = first.ask("/v0/watch", {"topics": {"a": {"tail": True}}})
    with urlopen(second.url + session["stream_url"], timeout=PATIENCE_SECONDS) as stream:
        append(third, "a", "watched")
        lines = iter(stream.readline, b"")
        found = next(line for line in lines if b"watched" in line)

    assert json.loads(found.removeprefix(b"data: "))["records"][0]["data"] == "watched"


def test_a_job_is_claimed_once(servers: NodeServers) -> None:
    """Whichever node is asked; its lease is of the leader's term. (§4)"""
    term = servers.leader().ask("/v0/cluster")["term"]
    servers.nodes[1].ask("/v0/topics/q", {"type": "queue"}, method="PUT")
    append(servers.nodes[0], "q", "x", "y")

    claims = [node.ask("/v0/topics/q/claim", {"node": "w"})["claimed"] for node in servers.nodes]

    jobs = [job for claimed in claims for job in claimed]
    assert sorted(job["data"] for job in jobs) == ["x", "y"]
    for job in jobs:
        assert int(job["lease_id"].removeprefix("lease_"), 16) >> 40 == term


def test_a_result_is_given_at_one_node_and_read_at_another(servers: NodeServers) -> None:
    """Every node has heard that all of them know results. (§10.4)"""
    servers.nodes[0].ask("/v0/topics/r", {"type": "queue"}, method="PUT")
    append(servers.nodes[0], "r", *range(len(servers.nodes)))
    for node in servers.nodes:
        claimed = node.ask("/v0/topics/r/claim", {"node": "w"})["claimed"]
        for job in claimed:
            ack = {"node": "w", "seqs": [job["$seq"]], "result": node.url}
            headers = node.ask_with_headers("/v0/topics/r/ack", ack)[1]
            for reader in servers.nodes:
                position = {"x-topics-position": headers["x-topics-position"]}
                shown, _ = reader.ask_with_headers(
                    f"/v0/topics/r/jobs/{job['$seq']}", headers=position
                )
                assert (shown["state"], shown["result"]) == ("done", node.url)


def test_a_node_says_who_is_there_and_not_the_clusters_id(servers: NodeServers) -> None:
    """The id is what nodes know one another by. (§5)"""
    for node in servers.nodes:
        status = node.ask("/v0/cluster")
        assert [one["role"] for one in status["nodes"]].count("leader") == 1
        assert len(status["nodes"]) == len(servers.nodes)
        secret = json.loads((node.data_dir / "node.json").read_text())["cluster"][16:]
        with urlopen(f"{node.url}/v0/metrics", timeout=PATIENCE_SECONDS) as metrics:
            shown = metrics.read().decode()
        assert "topics_cluster_has_leader 1" in shown
        assert secret not in shown + json.dumps(status) + node.out


class Writers:
    """Clients of all nodes that write until they are stopped, each record under a key of its own, and
    write it again where the outcome is not known."""

    def __init__(self, servers: NodeServers, topic: str) -> None:
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._topic = topic
        self._threads = [
            threading.Thread(target=self._write, args=(node,)) for node in servers.nodes
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, node: NodeServer) -> None:
        number = 0
        while not self._stop.is_set():
            data = f"{node.number}-{number}"
            try:
                append(node, self._topic, data, key=data)
            except (Answered, OSError):
                self._stop.wait(0.05)
            else:
                self.acknowledged.append(data)
                number += 1

    def wait_for(self, more: int) -> None:
        """Until so many more are acknowledged."""
        until, count = time.monotonic() + PATIENCE_SECONDS, len(self.acknowledged) + more
        while len(self.acknowledged) < count:
            assert time.monotonic() < until, "no write is acknowledged any more"
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_nothing_acknowledged_is_lost_with_the_leader(servers: NodeServers) -> None:
    """kill -9 under load, and the next leader is stopped with SIGTERM: every acknowledged write is on
    every node, once; those that come back have it, too. (§2, §3)"""
    writers = Writers(servers, "load")
    try:
        writers.wait_for(100)
        killed = servers.leader()
        killed.kill()
        writers.wait_for(100)
        killed.start()
        killed.wait_ready()
        second = servers.leader()
        assert second is not killed
        assert second.stop() == 0
        writers.wait_for(100)
        second.start()
        second.wait_ready()
        writers.wait_for(100)
    finally:
        writers.stop()

    position = append(servers.leader(), "load", "last")["x-topics-position"]
    found = [datas(node, "load", **{"x-topics-position": position}) for node in servers.nodes]

    assert found[0] == found[1] == found[2]
    assert set(writers.acknowledged) <= set(map(str, found[0]))
    assert len(set(map(str, found[0]))) == len(found[0])


def refusal(data_dir: Path, **environment: str) -> str:
    """What a server says that does not start."""
    command = [sys.executable, "-m", "topics", "serve", "--port", "0", "--data-dir", str(data_dir)]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2, ran.stderr
    return next(line for line in ran.stderr.splitlines() if line.startswith("topics: "))


def test_a_directory_is_served_by_its_own_kind_only(servers: NodeServers, tmp_path: Path) -> None:
    """Each refusal is one sentence and exit code 2. (§6)"""
    node = servers.nodes[0]
    cluster = {
        name: value for name, value in node._environment.items() if name.startswith("TOPICS_CL")
    } | {"TOPICS_CLUSTER_URL": "http://127.0.0.1:1"}

    assert "TOPICS_CLUSTER_KAFKA is not set" in refusal(node.data_dir)
    assert "TOPICS_CLUSTER_KAFKA is not set" in refusal(node.data_dir / "store")
    assert "another process" in refusal(node.data_dir, **cluster)
    other = {**cluster, "TOPICS_CLUSTER_NAME": "other"}
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    text = json.loads((node.data_dir / "node.json").read_text())
    (stranger / "node.json").write_text(json.dumps({**text, "cluster": "00" * 16}))
    assert 'of cluster "topics"' in refusal(stranger, **other)
    assert "the data of this node are of cluster" in refusal(stranger, **cluster)


def test_a_node_whose_number_is_anothers_is_refused(servers: NodeServers, tmp_path: Path) -> None:
    """CRC-32 gives these two names one number, by which alone clients of Kafka know a node. (128)"""
    from confluent_kafka import Producer

    cluster = {
        name: value
        for name, value in servers.nodes[0]._environment.items()
        if name.startswith("TOPICS_CL")
    }
    producer = Producer({"bootstrap.servers": cluster["TOPICS_CLUSTER_KAFKA"]})
    known = Beat(node="plumless", process="0" * 32, url="http://127.0.0.1:1", needs_log=False)
    said = {"topic": "topics.nodes", "key": known.node}
    producer.produce(**said, value=msgspec.json.encode(known))
    assert producer.flush(30) == 0
    text = json.loads((servers.nodes[0].data_dir / "node.json").read_text())
    (tmp_path / "node.json").write_text(json.dumps({**text, "node": "buckeroo"}))

    found = refusal(tmp_path, **cluster, TOPICS_CLUSTER_URL="http://127.0.0.1:1")

    producer.produce(**said, value=None)
    assert producer.flush(30) == 0
    assert "node buckeroo has the number of node plumless for Kafka's clients" in found


def test_a_start_without_brokers_ends_with_a_sentence(tmp_path: Path) -> None:
    """After `TOPICS_CLUSTER_START_MS`; the directory is as it was. (§6)"""
    path = tmp_path / "new"
    said = refusal(
        path,
        TOPICS_CLUSTER_KAFKA="127.0.0.1:1",
        TOPICS_CLUSTER_START_MS="500",
        TOPICS_CLUSTER_URL="http://127.0.0.1:1",
    )
    assert "did not answer for 500 ms" in said
    assert not list(path.iterdir())
