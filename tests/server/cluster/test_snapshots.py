"""Another node's store in the place of this one's, over real servers and a real broker. (§6)"""

import shutil
import time
from collections.abc import Iterator

import pytest

from tests import brokers, nodes
from tests.nodes import NodeServer, NodeServers
from topics.server.cluster.kafka.library import AdminClient, OffsetSpec, TopicPartition

from .test_node import append, datas

pytestmark = pytest.mark.kafka

PATIENCE_SECONDS = 20
"""Bounds a hang."""
TEXT = "x" * 8000


@pytest.fixture(scope="module")
def servers() -> Iterator[NodeServers]:
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    session = {"TOPICS_CLUSTER_SESSION_MS": "2000"}
    with brokers.running() as kafka, nodes.running(kafka.bootstrap, **session) as found:
        yield found


def trim(servers: NodeServers) -> int:
    """Let the log begin at its last record, which the nodes know it by; returns that offset."""
    bootstrap = servers.nodes[0]._environment["TOPICS_CLUSTER_KAFKA"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_offsets({TopicPartition("topics.log", 0): OffsetSpec.latest()})
    [end] = [found.result(PATIENCE_SECONDS).offset for found in asked.values()]
    partition = TopicPartition("topics.log", 0, end - 1)
    for result in admin.delete_records([partition]).values():
        result.result(PATIENCE_SECONDS)
    return int(end - 1)


def wait_for(node: NodeServer, name: str) -> None:
    """Until this stands in the node's directory."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (node.data_dir / name).exists():
        assert time.monotonic() < until, (node.ask("/v0/cluster"), node.out)
        time.sleep(0.001)


def test_a_node_joins_behind_a_log_that_was_trimmed(servers: NodeServers) -> None:
    """It takes a snapshot of a node that goes on running, however often it is killed meanwhile, and
    serves what was in the log and what follows."""
    third: NodeServer = servers.nodes[2]
    third.kill()
    shutil.rmtree(third.data_dir)
    written = [f"{number}{TEXT}" for number in range(4000)]
    for at in range(0, len(written), 100):
        append(servers.nodes[0], "t", *written[at : at + 100])
    trim(servers)

    third.start()
    wait_for(third, "store.copies")
    third.kill()
    third.start()
    wait_for(third, "store.coming")
    third.kill()
    third.start()
    third.wait_ready()

    position = append(servers.nodes[0], "t", "last")["x-topics-position"]
    assert datas(third, "t", **{"x-topics-position": position}) == [*written, "last"]
    assert not list(third.data_dir.glob("store.*"))
    print(third.out)
