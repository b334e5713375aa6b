"""The parts of a server, put together from its settings.

Owns the one place that knows all of them: the store on disk, the runtime, the exchange.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from topics.protocol.faces.http.origins import LOOPBACK_HOSTS, OriginRule
from topics.protocol.model.errors import StoreError, Unusable
from topics.protocol.model.ports import LogFollowers
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.http.exchange import TopicsExchange
from topics.server.http.holders import Holders
from topics.server.http.store_files import StoreFiles
from topics.server.observing.observer import Observer
from topics.server.observing.tracing import spans
from topics.server.runtime.runtime import Runtime
from topics.settings import Settings, is_loopback
from topics.store.files import OsFiles
from topics.store.store import DiskStore

if TYPE_CHECKING:
    from topics.server.cluster.node.life import ClusterNode

NODE_FILE: Final = "node.json"
NODE_STORE: Final = "store"
"""As `cluster.directory` has them."""


def create(settings: Settings, followers: LogFollowers | None = None) -> Runtime:
    """A runtime over the data directory of the settings, with its exchange; nothing is opened, but
    a file of keys is read.

    Args:
        followers: Other processes that follow the log.

    Raises:
        BadKeys: There are keys, and they cannot be used.
        StoreError: It would be a node of a cluster, or the directory is one's.
    """
    if settings.cluster_kafka is not None:
        raise StoreError(
            "TOPICS_CLUSTER_KAFKA is set, and only `topics serve` with its own server runs a node of "
            "a cluster; leave it empty for a single server"
        )
    _refuse_a_nodes(settings.data_dir)
    guard = guard_of(settings)
    runtime = Runtime(
        settings.limits,
        store_of(settings, settings.data_dir, followers=followers),
        flush_ms=settings.flush_ms,
        sync_timeout_ms=settings.sync_timeout_ms,
        followers=followers,
    )
    exchange = runtime.exchange = TopicsExchange(
        runtime,
        origins_of(settings, has_keys=guard is not None),
        observer_of(settings),
        Holders(settings.trusted_proxies),
        guard=guard,
        trace_meta=settings.trace_meta,
        files=StoreFiles(settings.data_dir),
        is_strict=settings.handling == "strict",
    )
    # Sockets write without an answer of HTTP.
    runtime.after_turn = exchange.history.note
    return runtime


def create_served(
    settings: Settings, followers: LogFollowers | None = None
) -> "Runtime | ClusterNode":
    """What `topics serve` runs: a node where the settings name a cluster, which has no readers, else
    as `create`.

    Raises:
        BadKeys: As `create` does.
        StoreError: The directory, or Kafka's own settings, cannot be used.
    """
    if settings.cluster_kafka is None:
        return create(settings, followers)
    from topics.server.cluster.assembly import node_of

    guard = guard_of(settings)
    return node_of(
        settings,
        open_store=lambda path, history: store_of(settings, path, history),
        origins=origins_of(settings, has_keys=guard is not None),
        observer=observer_of(settings),
        guard=guard,
    )


def store_of(
    settings: Settings,
    path: Path,
    history: bytes | None = None,
    followers: LogFollowers | None = None,
) -> DiskStore:
    """A store over a directory, not yet recovered; `history` is a cluster's."""
    limits = settings.limits
    return DiskStore(
        OsFiles(path),
        wal_file_bytes=limits.wal_file_bytes,
        reserve_bytes=limits.reserve_bytes,
        history=history,
        followers=followers,
    )


def observer_of(settings: Settings) -> Observer:
    slow_s = settings.slow_request_ms / 1000 if settings.slow_request_ms else None
    return Observer(slow_s, spans())


def _refuse_a_nodes(path: Path) -> None:
    """Raises Unusable.  The file's name is known here, so that nothing of a cluster is loaded."""
    is_store = path.name == NODE_STORE and (path.parent / NODE_FILE).exists()
    if is_store or (path / NODE_FILE).exists():
        raise Unusable(
            str(path),
            "the directory of a node of a cluster, and TOPICS_CLUSTER_KAFKA is not set: set it, or "
            "choose another directory",
        )


def guard_of(settings: Settings) -> Guard | None:
    source = source_of(settings.api_keys, settings.api_keys_file)
    return None if source is None else Guard(source, asks_at_probes=settings.probe_auth)


def origins_of(settings: Settings, *, has_keys: bool) -> OriginRule:
    """Without keys a page must not reach the server by a name that was made to point at it (DNS
    rebinding); with keys it would still need one, and a public server may have any name."""
    hosts = frozenset(host.lower().encode() for host in settings.allowed_hosts)
    is_local = is_loopback(settings.host)
    if is_local:
        hosts |= LOOPBACK_HOSTS
    elif not has_keys:
        hosts |= {b"localhost"}
    origins = frozenset(origin.lower().encode() for origin in settings.allowed_origins)
    return OriginRule(hosts, origins, is_address_good=not is_local and not has_keys)
