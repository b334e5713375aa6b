"""The log of a cluster of real servers over a real broker is trimmed: by hand, and by the leader itself.
(§6 of the cluster)

One cluster for all stories of this module, which come in their order.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from tests import brokers, nodes
from tests.nodes import Answered, NodeServer, NodeServers
from topics.server.cluster.kafka.library import AdminClient, OffsetSpec, TopicPartition

pytestmark = pytest.mark.kafka

PATIENCE_SECONDS = 200
"""Bounds a hang."""
RETAIN_MS = 60_000
"""The least there may be."""


class Cluster:
    def __init__(self, bootstrap: str, servers: NodeServers) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    @property
    def start(self) -> int:
        """Where Kafka says that the log begins."""
        place = TopicPartition("topics.log", 0)
        [found] = self._admin.list_offsets({place: OffsetSpec.earliest()}).values()
        return int(found.result(PATIENCE_SECONDS).offset)

    def durable(self, node: NodeServer) -> int | None:
        """What a node said that it has on its disk, as the leader heard it last."""
        seen = self.servers.leader().ask("/v0/cluster")["nodes"]
        found: dict[str, int | None] = {each["url"]: each["durable"] for each in seen}
        return found[node.url]

    def followers(self) -> list[NodeServer]:
        leader = self.servers.leader()
        return [node for node in self.servers.alive if node is not leader]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    settings = {"TOPICS_CLUSTER_SESSION_MS": "2000", "TOPICS_CLUSTER_RETAIN_MS": str(RETAIN_MS)}
    with brokers.running() as kafka, nodes.running(kafka.bootstrap, **settings) as servers:
        yield Cluster(kafka.bootstrap, servers)


def until(holds: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < give_up, what
        time.sleep(0.2)


def append(node: NodeServer, *datas: object) -> str:
    """The position of the write."""
    body = {"records": [{"data": data} for data in datas]}
    return node.ask_with_headers("/v0/topics/t", body)[1]["x-topics-position"]


def datas(node: NodeServer, position: str) -> list[object]:
    headers = {"x-topics-position": position}
    body = {"from_seq": 0, "limit": 1000}
    page, _ = node.ask_with_headers("/v0/topics/t/diff", body, headers=headers)
    return [record["data"] for record in page["records"]]


def trim(node: NodeServer, **asked: object) -> dict[str, object]:
    found: dict[str, object] = node.ask("/v0/cluster/trim", asked)
    return found


def test_a_trim_moves_the_start_in_kafka_and_no_node_misses_it(cluster: Cluster) -> None:
    """Asked of a follower; every node is killed and started again behind it, and holds everything;
    what a live node needs is refused."""
    follower = cluster.followers()[0]
    for number in range(20):
        position = append(follower, number)

    def plan() -> int:
        found = trim(follower, now=True, dry_run=True)
        return int(str(found["records"]))

    until(lambda: plan() > 10, "the nodes do not get it on their disks")
    assert cluster.start == 0
    assert trim(follower, dry_run=True)["waits_for"] == "retention"
    with pytest.raises(Answered) as refused:
        trim(follower, before=1 << 40)
    assert refused.value.status == 409
    done = trim(follower, now=True)
    assert done["trimmed"]
    assert cluster.start == done["before"]

    for node in cluster.servers.nodes:
        node.kill()
    cluster.servers.start()
    position = append(cluster.followers()[0], "after")

    for node in cluster.servers.nodes:
        assert datas(node, position) == [*range(20), "after"]


def without(node: NodeServer, position: str) -> list[object]:
    """What was appended while one was away."""
    return [data for data in datas(node, position) if str(data).startswith("without")]


@pytest.mark.long
def test_the_leader_trims_by_itself_and_a_silent_node_is_not_waited_for(
    cluster: Cluster, is_full: bool
) -> None:
    """It is waited for until it was silent for the retention: then its place goes, and when it comes back it
    finds that out, takes a snapshot, and has all of it."""
    if not is_full:
        pytest.skip("the least retention is a minute: pytest -m long")
    silent = cluster.followers()[0]
    append(silent, "before")
    until(lambda: cluster.durable(silent) is not None, "what it has is not told")
    silent.kill()
    durable = cluster.durable(silent)
    assert durable is not None
    here = cluster.followers()[0]
    for number in range(20):
        position = append(here, f"without {number}")
    with pytest.raises(Answered) as refused:
        trim(here, before=durable + 1)
    detail = refused.value.document["error"]["detail"]
    assert detail["waits_for"] == "node"

    # What it had on its disk is somewhat more than it had said when it was killed.
    end = int(str(trim(here, dry_run=True)["log_end"]))

    def goes_past() -> bool:
        append(here, "time passes")
        return cluster.start > max(end, durable)

    until(goes_past, "the leader does not trim")
    until(lambda: here.ask("/v0/cluster")["trim"]["last_ms"], "a follower does not hear of it")

    silent.start()
    until(lambda: "a snapshot of node" in silent.out, "it takes no snapshot")

    def has_all() -> bool:
        try:
            return without(silent, position) == [f"without {n}" for n in range(20)]
        except (Answered, OSError):
            return False

    until(has_all, "it shows something else")
    assert without(here, append(here, "last")) == without(silent, position)
