"""What is done to the processes of a cluster: killed with kill -9, or paused, nodes and brokers.

A blow strikes one process or several, lets the clients of the load go on for a while, and mends what it
broke.  Which blows come in which order is drawn from a seed; each kind comes once before one comes twice.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from tests.brokers import Broker, Brokers
from tests.nodes import NodeServer, NodeServers
from topics.server.cluster.kafka.library import AdminClient, TopicCollection

from .load import Load

BROKER_GONE_S: Final = 5.0
"""After 3 s a broker that says nothing counts as dead (`tests.brokers`)."""
SHORT_S: Final = 1.5
"""Shorter than any session."""


@dataclass
class Outage:
    """How long after a blow nothing was acknowledged; seconds."""

    blow: str
    seconds: float


@dataclass
class Cluster:
    """What is struck, and what is known of it.

    Attributes:
        strikes: Processes that were killed or paused so far.
        struck: When the last one was; ns.
    """

    brokers: Brokers
    servers: NodeServers
    load: Load
    rng: random.Random
    session_s: float
    strikes: int = 0
    struck: int = 0
    outages: list[Outage] = field(default_factory=list)

    def kill(self, process: NodeServer | Broker) -> None:
        self.strikes += 1
        self.struck = time.monotonic_ns()
        process.kill()

    def pause(self, process: NodeServer | Broker) -> None:
        self.strikes += 1
        self.struck = time.monotonic_ns()
        process.pause()

    def leader(self) -> NodeServer:
        return self.servers.leader()

    def follower(self) -> NodeServer:
        leader = self.leader()
        return self.rng.choice([node for node in self.servers.alive if node is not leader])

    def broker(self) -> Broker:
        return self.rng.choice(self.brokers.brokers)

    def log_leader(self) -> Broker:
        """The broker that leads the log's partition."""
        admin = AdminClient({"bootstrap.servers": self.brokers.bootstrap, "log_level": 3})
        [found] = admin.describe_topics(TopicCollection(["topics.log"])).values()
        return self.brokers.brokers[found.result().partitions[0].leader.id - 1]

    def mend(self) -> None:
        """All processes run again; nodes are waited for, and it is known who leads."""
        self.brokers.start()
        for node in self.servers.nodes:
            if node.is_paused:
                node.resume()
        self.servers.start()

    def wait_for_write(self, since: int) -> None:
        self.load.until(
            "a write is acknowledged", lambda: self.load.first_write_after(since) is not None
        )

    def wait_s(self, seconds: float) -> None:
        """A pause of a process, which is what is tried out."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.load.check_alive()
            time.sleep(0.05)

    @property
    def long_s(self) -> float:
        return 1.3 * self.session_s + 1


Blow: TypeAlias = Callable[[Cluster], None]


def kill_leader(cluster: Cluster) -> None:
    cluster.kill(cluster.leader())


def kill_follower(cluster: Cluster) -> None:
    cluster.kill(cluster.follower())


def kill_follower_in_its_start(cluster: Cluster) -> None:
    node = cluster.follower()
    cluster.kill(node)
    node.start()
    cluster.wait_s(cluster.rng.uniform(0, 3))
    cluster.kill(node)


def lose_follower(cluster: Cluster) -> None:
    """Its disk with it: the node that comes in its place has nothing."""
    node = cluster.follower()
    cluster.kill(node)
    shutil.rmtree(node.data_dir)


def kill_two_nodes(cluster: Cluster) -> None:
    follower = cluster.follower()
    cluster.kill(cluster.leader())
    cluster.kill(follower)


def kill_all_nodes(cluster: Cluster) -> None:
    for node in cluster.servers.nodes:
        cluster.kill(node)
    for node in cluster.servers.nodes:
        node.start()


def pause_node(cluster: Cluster, *, leads: bool, is_long: bool) -> None:
    node = cluster.leader() if leads else cluster.follower()
    cluster.pause(node)
    cluster.wait_s(cluster.long_s if is_long else SHORT_S)
    node.resume()


def kill_the_next_leader_too(cluster: Cluster) -> None:
    """The first one is paused meanwhile, and goes on as if it led."""
    first = cluster.leader()
    cluster.pause(first)
    cluster.wait_for_write(time.monotonic_ns())
    cluster.kill(cluster.leader())
    first.resume()


def kill_broker(cluster: Cluster, *, leads: bool) -> None:
    cluster.kill(cluster.log_leader() if leads else cluster.broker())
    if len(cluster.brokers.brokers) == 1:
        cluster.brokers.start()


def pause_broker(cluster: Cluster, *, is_long: bool) -> None:
    broker = cluster.log_leader()
    cluster.pause(broker)
    cluster.wait_s(BROKER_GONE_S if is_long else SHORT_S)
    broker.resume()


def kill_leader_and_broker(cluster: Cluster) -> None:
    broker = cluster.log_leader()
    cluster.kill(cluster.leader())
    cluster.kill(broker)


LEADER_DIES: Final = "kill -9 of the leader"
WITH_ANY: Final[dict[str, Blow]] = {
    LEADER_DIES: kill_leader,
    "kill -9 of a follower": kill_follower,
    "the leader paused for longer than the session": partial(pause_node, leads=True, is_long=True),
    "kill -9 of the broker that leads the log": partial(kill_broker, leads=True),
    "the leader paused for a moment": partial(pause_node, leads=True, is_long=False),
    "kill -9 of a follower in its start": kill_follower_in_its_start,
    "kill -9 of a follower, and its disk lost": lose_follower,
    "the broker that leads the log paused for a moment": partial(pause_broker, is_long=False),
}
"""One broker is enough for these."""
WITH_THREE: Final[dict[str, Blow]] = {
    **WITH_ANY,
    "a follower paused for longer than the session": partial(pause_node, leads=False, is_long=True),
    "the leader paused, kill -9 of the next one": kill_the_next_leader_too,
    "kill -9 of two nodes": kill_two_nodes,
    "kill -9 of all nodes": kill_all_nodes,
    "the broker that leads the log paused until another one does": partial(
        pause_broker, is_long=True
    ),
    "kill -9 of any broker": partial(kill_broker, leads=False),
    "kill -9 of the leader and of the broker that leads the log": kill_leader_and_broker,
}


def order(rng: random.Random, kinds: dict[str, Blow]) -> Iterator[tuple[str, Blow]]:
    """Without an end."""
    while True:
        names = list(kinds)
        rng.shuffle(names)
        yield from ((name, kinds[name]) for name in names)


def deal(cluster: Cluster, name: str, blow: Blow) -> None:
    """Under load: writes before it, a write after it, and all processes back."""
    load = cluster.load
    enough = load.acknowledged + cluster.rng.randrange(20, 200)
    load.until("writes before a blow", lambda: load.acknowledged >= enough)
    blow(cluster)
    cluster.wait_for_write(cluster.struck)
    acknowledged = load.first_write_after(cluster.struck)
    assert acknowledged is not None
    cluster.outages.append(Outage(name, (acknowledged - cluster.struck) / 1e9))
    load.blows += 1
    print(f"{cluster.strikes:3} {cluster.outages[-1].seconds:6.1f} s  {name}", flush=True)
    cluster.mend()
