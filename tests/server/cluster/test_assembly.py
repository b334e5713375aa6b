"""A node's exchange, put together from its settings."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from topics.protocol.faces.http.origins import OriginRule
from topics.protocol.model.errors import InUse, StoreError
from topics.protocol.model.limits import Limits
from topics.server.assembly import NODE_FILE, NODE_STORE, create, create_served
from topics.server.cluster.assembly import exchange_of
from topics.server.cluster.node import directory as directories
from topics.server.cluster.node.directory import NodeDirectory
from topics.server.cluster.node.life import ClusterNode
from topics.server.cluster.peers import Peers
from topics.server.http.interface import Answer, Head
from topics.server.observing.observer import Observer
from topics.settings import Settings
from topics.testing import START_MS, _Shell

from .pair import SECRET, FakeStanding


@pytest.mark.parametrize("handling", ["lenient", "strict"])
def test_a_server_may_be_strict_where_a_request_says_nothing_of_it(
    tmp_path: Path, handling: str
) -> None:
    """`TOPICS_HANDLING`, of a single server and of a node; a request may prefer the other. (113)"""
    settings = Settings(data_dir=tmp_path / "data", handling=handling)
    node = exchange_of(
        settings,
        _Shell(Limits(), START_MS),
        FakeStanding(),
        node="n1",
        peers=Peers(SECRET),
        origins=OriginRule(frozenset(), frozenset()),
        observer=Observer(),
        guard=None,
    )

    def statuses(exchange: Any, *prefer: tuple[bytes, bytes]) -> tuple[int, Any]:
        headers = [(b"host", b"127.0.0.1"), *prefer]
        admitted = exchange.begin(Head("GET", b"/v0/health", b"verbose=1", headers))
        answer = admitted.finish([])
        return answer.status, dict(answer.headers).get(b"preference-applied")

    async def story() -> None:
        single = create(settings)
        await single.start()
        for exchange in (node, single.exchange):
            assert statuses(exchange) == ((400 if handling == "strict" else 200), None)
            assert statuses(exchange, (b"prefer", b"handling=lenient")) == (200, None)
            strict = statuses(exchange, (b"prefer", b"handling=strict"))
            assert strict == (400, b"handling=strict")
        await single.stop()

    asyncio.run(story())


def refused(hosts: frozenset[bytes], url: str | None, host: bytes) -> bool:
    exchange = exchange_of(
        Settings(cluster_url=url),
        _Shell(Limits(), START_MS),
        FakeStanding(),
        node="n1",
        peers=Peers(SECRET),
        origins=OriginRule(hosts, frozenset()),
        observer=Observer(),
        guard=None,
    )
    found = exchange.begin(Head("GET", b"/v0/health", b"", [(b"host", host)]))
    return isinstance(found, Answer) and found.status == 403


def test_other_nodes_may_call_by_the_host_of_the_url() -> None:
    """A server without keys is called by names that it knows (DNS rebinding); its own URL is one."""
    local = frozenset({b"localhost"})

    assert not refused(local, "http://n1.cluster:4000", b"n1.cluster:4000")
    assert not refused(local, "http://[fd00::1]:4000", b"[fd00::1]:4000")
    assert refused(local, None, b"n1.cluster:4000")
    assert refused(local, "http://n1.cluster:4000", b"evil.example")
    assert not refused(frozenset(), "http://n1.cluster:4000", b"any.example")


def test_a_single_server_loads_nothing_of_a_cluster() -> None:
    """No module, so no cost: neither at the start nor for a request."""
    code = (
        "import sys, topics.server.assembly, topics.server.http.exchange;"
        "rooms = 'topics.server.cluster', 'topics.protocol.cluster.rule', 'topics.protocol.cluster', 'confluent_kafka';"
        "print([name for name in sys.modules if name.startswith(rooms)])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.fixture
def node_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    pytest.importorskip("confluent_kafka")
    return Settings(
        data_dir=tmp_path / "data", cluster_kafka="127.0.0.1:1", cluster_url="http://n1:4000"
    )


def test_only_topics_own_server_runs_a_node(node_settings: Settings) -> None:
    """Another one would take writes that no other node has."""
    with pytest.raises(StoreError, match="only `topics serve` with its own server"):
        create(node_settings)


def test_a_node_holds_its_directory_from_the_beginning(node_settings: Settings) -> None:
    """Before it asks Kafka for anything: a second process does not even try."""

    async def story() -> None:
        node = create_served(node_settings)
        assert isinstance(node, ClusterNode)
        with pytest.raises(InUse):
            create_served(node_settings)
        await node.start()
        await node.stop()
        again = create_served(node_settings)
        assert isinstance(again, ClusterNode)
        await again.start()
        await again.stop()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "n1:4000"),
        ({"kafka_port": 9092}, "n1:9092"),
        ({"kafka_advertised": "kafka.test:19092", "kafka_port": 9092}, "kafka.test:19092"),
        ({"cluster_url": "https://n1.test:443"}, "n1.test:4000"),
        ({"cluster_url": "http://n1.test"}, "n1.test:4000"),
        ({"cluster_url": "http://[2001:db8::1]:4001"}, "2001:db8::1:4001"),
        ({"kafka": False}, ""),
    ],
)
def test_every_node_tells_clients_of_kafka_one_address_of_it(
    node_settings: Settings, given: dict[str, Any], told: str
) -> None:
    """By default its URL's host and port, where no proxy ends TLS there. (§7)"""
    node = create_served(replace(node_settings, **given))
    assert isinstance(node, ClusterNode)
    assert node._standing.name.kafka == told

    async def stop() -> None:
        await node.start()
        await node.stop()

    asyncio.run(stop())


def test_a_single_server_does_not_serve_a_nodes_directory(tmp_path: Path) -> None:
    """Nor the store in it: what it took would not be in the log. (§6)"""
    directory = NodeDirectory(tmp_path, "topics")
    directory.belong(SECRET)
    directory.close()
    for path in (tmp_path, tmp_path / "store"):
        with pytest.raises(StoreError, match="TOPICS_CLUSTER_KAFKA is not set"):
            create_served(Settings(data_dir=path))
    create_served(Settings(data_dir=tmp_path / "elsewhere"))
    assert (NODE_FILE, NODE_STORE) == (directories.NODE_FILE, directories.STORE)


def test_what_kafka_does_not_take_ends_the_start(node_settings: Settings, tmp_path: Path) -> None:
    """With a sentence that says so, and the directory is free again."""
    config = tmp_path / "kafka.conf"
    config.write_text("acks=0")
    settings = replace(node_settings, cluster_kafka_config=config)
    for _ in range(2):
        with pytest.raises(StoreError, match="TOPICS_CLUSTER_KAFKA_CONFIG"):
            create_served(settings)


def test_a_node_that_waits_for_brokers_says_so_and_stops_at_once(node_settings: Settings) -> None:
    """`/v0/ready` names the reason; health is well; and a request is refused. (§5)"""

    async def story() -> None:
        node = create_served(node_settings)
        assert isinstance(node, ClusterNode)
        await node.start()
        ready = node.exchange.begin(head(b"/v0/ready"))
        assert not isinstance(ready, Answer)
        refused = ready.finish([])
        assert isinstance(refused, Answer)
        assert refused.status == 503
        assert b"this node waits for Kafka" in b"".join(refused.body)
        health = node.exchange.begin(head(b"/v0/health"))
        assert not isinstance(health, Answer)
        answer = health.finish([])
        assert isinstance(answer, Answer)
        assert answer.status == 200
        assert not node._ready.is_set()
        await node.stop()

    asyncio.run(asyncio.wait_for(story(), 60))


def head(path: bytes) -> Head:
    return Head("GET", path, b"", [(b"host", b"localhost")])


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:4000"), ("::1", "http://[::1]:4000")]
)
def test_a_nodes_url_is_that_of_its_address(node_settings: Settings, host: str, url: str) -> None:
    """Where none is set. (§6)"""

    async def story() -> None:
        node = create_served(replace(node_settings, host=host, cluster_url=None))
        assert isinstance(node, ClusterNode)
        assert node._standing.name.url == url
        await node.start()
        await node.stop()

    asyncio.run(story())


def test_a_join_that_fails_is_told_to_the_server(node_settings: Settings) -> None:
    """Which ends the process with the sentence. (§6)"""

    async def story() -> None:
        node = create_served(replace(node_settings, cluster_start_ms=1))
        assert isinstance(node, ClusterNode)
        await node.start()
        failure = await node.wait_failed()
        assert isinstance(failure, StoreError)
        assert "did not answer for 1 ms" in str(failure)
        await node.stop()

    asyncio.run(asyncio.wait_for(story(), 60))
