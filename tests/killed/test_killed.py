"""Real brokers and three nodes under load, whose processes are killed and paused. (§8.2 of the cluster)

`pytest -m long tests/killed` has a sample, with one broker and a short session (`-k sample`), and the
whole run: three brokers and settings as by default, of which `TOPICS_TESTS_KILLS` (60) processes are
killed or paused.  `TOPICS_TESTS_SEED` repeats an order of blows; nothing repeats the clients' timing.
"""

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from linearizability.history import Append

from tests import brokers
from tests.brokers import Brokers
from tests.nodes import NodeServer, NodeServers

from .agreement import copy_of, verdict
from .blows import LEADER_DIES, WITH_ANY, WITH_THREE, Blow, Cluster, deal, order
from .load import (
    AGING,
    CONFIG,
    COPIES,
    KEPT,
    QUEUE,
    WAKE,
    Deleter,
    Load,
    Pulse,
    Reader,
    Worker,
    Writer,
)
from .watchers import LAST, Watcher, watchers

pytestmark = pytest.mark.kafka

KILLS: Final = int(os.environ.get("TOPICS_TESTS_KILLS", "60"))
SEED: Final = int(os.environ.get("TOPICS_TESTS_SEED", random.randrange(1 << 32)))
SESSION_MS: Final = 10_000
"""The default of `TOPICS_CLUSTER_SESSION_MS`."""
TAKEOVER_S: Final = 15.0
"""A leader that is killed alone is replaced within this, at default settings. (§8.2)"""


def lived(
    home: Path, *, count: int, kills: int, session_ms: int, kinds: dict[str, Blow]
) -> Cluster:
    """A run, in which nothing was wrong."""
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    print(f"TOPICS_TESTS_SEED={SEED}, {kills} kills and pauses, in {home}")
    kafka = Brokers(home / "kafka", count)
    servers: NodeServers | None = None
    try:
        kafka.start()
        session = {"TOPICS_CLUSTER_SESSION_MS": str(session_ms)}
        (home / "nodes").mkdir()
        servers = NodeServers(home / "nodes", kafka.bootstrap, count, **session)
        servers.start()
        prepare(servers)
        rng = random.Random(SEED)
        load = Load(servers, 4 * session_ms)
        cluster = Cluster(kafka, servers, load, rng, session_ms / 1000)
        watching = watchers(cluster.load, rng)
        work(cluster, watching, kills, kinds)
        wrong = judge(cluster, watching)
        wrong += [what for node in servers.nodes for what in ended(node)]
    finally:
        if servers is not None:
            servers.stop()
        kafka.stop()
    print(totals(cluster, watching))
    (home / "wrong").write_text("\n".join(wrong))
    assert wrong == [], f"TOPICS_TESTS_SEED={SEED}; all of it is in {home / 'wrong'}"
    return cluster


def prepare(servers: NodeServers) -> None:
    node = servers.leader()
    for topic, config in {**CONFIG, WAKE: {}}.items():
        node.ask(f"/v0/topics/{topic}", config, method="PUT")
    for source, destination in COPIES.items():
        node.ask(f"/v0/routers/{source}", {"source": source, "dest": destination}, method="PUT")


def work(cluster: Cluster, watching: Sequence[Watcher], kills: int, kinds: dict[str, Blow]) -> None:
    """Blows under load, and an end that every watcher has seen."""
    load, rng = cluster.load, cluster.rng
    load.start(*(Writer(load, n) for n in range(4)), *(Worker(load, n) for n in range(3)))
    load.start(Pulse(load, 1), Pulse(load, 2), Reader(load, 1), Deleter(load, 1), *watching)
    try:
        for name, blow in order(rng, kinds):
            deal(cluster, name, blow)
            if cluster.strikes >= kills:
                break
        enough = load.acknowledged + 100
        load.until("the last writes", lambda: load.acknowledged >= enough)
        load.is_over.set()
        load.until("the writers end", lambda: load.is_written)
        load.ends = finish(cluster)
        cluster.leader().ask(f"/v0/topics/{WAKE}", {"records": [{"data": LAST}]})
        load.end()
    finally:
        load.is_over.set()
        load.is_cut.set()


def finish(cluster: Cluster) -> dict[str, int]:
    """A last record for each topic; their seqs."""
    node, load = cluster.leader(), cluster.load
    ends: dict[str, int] = {}
    for topic in CONFIG:
        if topic != QUEUE and topic not in COPIES.values():
            sent = time.monotonic_ns()
            seq = node.ask(f"/v0/topics/{topic}", {"records": [{"data": LAST}]})["first_seq"]
            append = Append(sent, time.monotonic_ns(), (LAST,), seq)
            load.logs[topic].appends.append(append)
            ends[topic] = seq
    for source, destination in COPIES.items():
        ends[destination] = ends[source]
    return ends


def judge(cluster: Cluster, watching: Sequence[Watcher]) -> list[str]:
    """What the nodes have, compared with one another and with what was done."""
    nodes, load = cluster.servers.nodes, cluster.load
    # A queue with jobs under leases, and without.
    jobs = {"records": [{"data": KEPT} for _ in range(5)]}
    nodes[0].ask(f"/v0/topics/{QUEUE}", jobs)
    claimed = nodes[1].ask(
        f"/v0/topics/{QUEUE}/claim", {"node": "w", "max": 2, "lease_ms": 600_000}
    )
    assert claimed["count"] == 2
    load.until(
        "what is old is gone",
        lambda: (
            not any(
                node.ask(f"/v0/topics/{AGING}/diff", {"from_seq": 0})["records"] for node in nodes
            )
        ),
    )
    _, headers = nodes[0].ask_with_headers("/v0/topics/mark", {"records": [{"data": 1}]})
    return verdict([copy_of(node, headers["x-topics-position"]) for node in nodes], watching, load)


def ended(node: NodeServer) -> Iterator[str]:
    """A stop with its manners, a log without an error of its own, and files that verify."""
    if code := node.stop():
        yield f"node {node.number} ended with {code}"
    for line in node.out.splitlines():
        if "Traceback" in line or "critical" in line.lower():
            yield f"node {node.number}: {line}"
    store = str(node.data_dir / "store")
    command = [sys.executable, "-m", "topics", "inspect", store]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if found.returncode:
        yield f"node {node.number}: {found.stdout}{found.stderr}"


def totals(cluster: Cluster, watching: Sequence[Watcher]) -> str:
    load = cluster.load
    longest: dict[str, float] = defaultdict(float)
    for outage in cluster.outages:
        longest[outage.blow] = max(longest[outage.blow], outage.seconds)
    lines = [
        f"{cluster.strikes} kills and pauses in {len(cluster.outages)} blows",
        f"{load.acknowledged} writes acknowledged, {load.repeated} times one was repeated",
        f"{sum(one.is_done is True for one in load.jobs.acks)} jobs done, "
        f"{load.kept_leases} leases kept over a blow",
        f"{sum(len(seen.records) for w in watching for seen in w.seen.values())} records seen by "
        f"{len(watching)} watchers in {sum(w.moves for w in watching)} streams",
        *(
            f"{seconds:6.1f} s without an acknowledged write: {blow}"
            for blow, seconds in longest.items()
        ),
    ]
    return "\n".join(lines)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sample_of_kills(tmp_path: Path, is_full: bool) -> None:
    """One broker: nothing acknowledged is lost or doubled, on any node; streams and jobs go on at
    another node; the nodes agree. (§8.2)"""
    if not is_full:
        pytest.skip("a minute of kills: pytest -m long -k sample")
    each = len(WITH_ANY) + 1  # one of them strikes twice
    cluster = lived(tmp_path, count=1, kills=each, session_ms=2000, kinds=WITH_ANY)

    assert {outage.blow for outage in cluster.outages} == set(WITH_ANY)
    assert cluster.load.acknowledged > 100
    assert any(ack.is_done for ack in cluster.load.jobs.acks)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_three_brokers_and_three_nodes(tmp_path: Path, is_full: bool) -> None:
    """The same with three brokers, one of which may be gone at any time, at default settings; a leader
    that is killed alone is replaced in time. (§8.2)"""
    if not is_full:
        pytest.skip("half an hour with three brokers: pytest -m long")
    cluster = lived(tmp_path, count=3, kills=KILLS, session_ms=SESSION_MS, kinds=WITH_THREE)

    for outage in cluster.outages:
        assert outage.blow != LEADER_DIES or outage.seconds <= TAKEOVER_S, (outage, SEED)
