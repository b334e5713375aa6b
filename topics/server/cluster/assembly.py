"""A node, put together from the settings: its exchange, and what runs its log.

What runs the log gives the exchange how the node stands; everything else is what a single server has.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from topics.protocol.faces.http.origins import OriginRule
from topics.protocol.model.errors import StoreError
from topics.protocol.model.ports import Store
from topics.server.access.guard import Guard
from topics.server.cluster.exchange import ClusterExchange
from topics.server.cluster.figures import families
from topics.server.cluster.kafka.failures import CannotStart
from topics.server.cluster.kafka.settings import KafkaSettings, read_config
from topics.server.cluster.kafka_face import FaceNodes
from topics.server.cluster.neighbours import Neighbours
from topics.server.cluster.node.directory import NodeDirectory
from topics.server.cluster.node.host import NodeName
from topics.server.cluster.node.life import ClusterNode
from topics.server.cluster.node.node_standing import NodeStanding
from topics.server.cluster.node.runtime import ClusterRuntime
from topics.server.cluster.node.standing import Standing
from topics.server.cluster.peers import Peers
from topics.server.http.holders import Holders
from topics.server.http.store_files import StoreFiles
from topics.server.observing.observer import Observer
from topics.server.service.shell import Shell
from topics.settings import Settings

OpenStore = Callable[[Path, bytes], Store]
"""A store over a directory, of a history; not yet recovered."""


def node_of(
    settings: Settings,
    *,
    open_store: OpenStore,
    origins: OriginRule,
    observer: Observer,
    guard: Guard | None,
) -> ClusterNode:
    """A node, which holds its data directory; nothing is opened in it, and nobody is asked.

    Args:
        origins: As a single server has it, and the next ones.

    Raises:
        StoreError: The directory, or `TOPICS_CLUSTER_KAFKA_CONFIG`, cannot be used.
    """
    directory = NodeDirectory(settings.data_dir, settings.cluster_name)
    node = directory.membership.node
    try:
        kafka = kafka_of(settings, node)
    except CannotStart as refusal:
        directory.close()
        raise StoreError(str(refusal)) from refusal
    runtime = ClusterRuntime(
        settings.limits,
        # Until the cluster is known, whose history the store has to be of.
        lambda: open_store(directory.store, b""),
        flush_ms=settings.flush_ms,
        sync_timeout_ms=settings.sync_timeout_ms,
    )
    url = settings.cluster_url or _url_of(settings.host, settings.port)
    files = StoreFiles(directory.store)
    standing = NodeStanding(
        NodeName(
            cluster=settings.cluster_name,
            node=node,
            url=url,
            kafka=_kafka_of(settings, url) if settings.kafka else "",
        ),
        0,
        files,
        process=secrets.token_hex(16),
        session_ms=settings.cluster_session_ms,
        retain_ms=settings.cluster_retain_ms,
    )
    # No other node is asked before this one has joined: `know` gives it the cluster's secret.
    peers = Peers(secrets.token_bytes(16), lambda: standing.leader_url)
    exchange = runtime.exchange = exchange_of(
        settings,
        runtime,
        standing,
        node=node,
        peers=peers,
        origins=origins,
        observer=observer,
        guard=guard,
        files=files,
    )
    # Sockets write without an answer of HTTP.
    runtime.after_turn = exchange.history.note
    return ClusterNode(
        runtime,
        exchange,
        standing,
        peers,
        directory,
        kafka,
        lambda history: open_store(directory.store, history),
    )


def kafka_of(settings: Settings, node: str) -> KafkaSettings:
    assert settings.cluster_kafka is not None
    path = settings.cluster_kafka_config
    return KafkaSettings(
        settings.cluster_kafka,
        name=settings.cluster_name,
        node=node,
        shards=settings.cluster_shards,
        replication=settings.cluster_replication,
        min_isr=settings.cluster_min_isr,
        session_ms=settings.cluster_session_ms,
        start_ms=settings.cluster_start_ms,
        config={} if path is None else read_config(path),
    )


def _url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _kafka_of(settings: Settings, url: str) -> str:
    """What every node tells Kafka's clients of this one: by default its URL's host, on the port that it serves them."""
    if settings.kafka_advertised is not None:
        return settings.kafka_advertised
    parts = urlsplit(url)
    # Behind a proxy that ends TLS is the port on which this node listens.
    port = parts.port if parts.scheme == "http" else None
    return f"{parts.hostname}:{settings.kafka_port or port or settings.port}"


def exchange_of(
    settings: Settings,
    runtime: Shell,
    standing: Standing,
    *,
    node: str,
    peers: Peers,
    origins: OriginRule,
    observer: Observer,
    guard: Guard | None,
    files: StoreFiles | None = None,
) -> ClusterExchange:
    """The exchange, with its metrics; nothing is connected.

    Args:
        node: This node's id, which it keeps with its data directory.
        peers: The links to the other nodes.
        origins: As a single server has it.
        files: What gives the store's files to other nodes.
    """
    neighbours = Neighbours(standing, node)
    exchange = ClusterExchange(
        runtime,
        neighbours,
        peers,
        _reached_by_nodes(origins, settings.cluster_url),
        observer,
        Holders(settings.trusted_proxies),
        guard=guard,
        trace_meta=settings.trace_meta,
        files=files,
        kafka_nodes=FaceNodes(
            neighbours,
            node,
            replicas=settings.cluster_replication,
            min_in_sync=settings.cluster_min_isr,
        ),
        is_strict=settings.handling == "strict",
    )
    exchange.more.append(lambda: families(neighbours, peers))
    return exchange


def _reached_by_nodes(origins: OriginRule, url: str | None) -> OriginRule:
    """The rule that lets other nodes in, too: they call this one by the host of its URL."""
    host = None if url is None else urlsplit(url).hostname
    if host is None or not origins.hosts:  # empty: any
        return origins
    name = f"[{host}]" if ":" in host else host
    return msgspec.structs.replace(origins, hosts=origins.hosts | {name.encode("ascii")})
