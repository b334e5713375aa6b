"""The parts of a server, put together from its settings.

Owns the one place that knows all of them: the store on disk, the runtime, the exchange.
"""

from topics.protocol.http.origins import LOOPBACK_HOSTS, OriginRule
from topics.protocol.model.errors import StoreError
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.exchange.exchange import TopicsExchange
from topics.server.exchange.holders import Holders
from topics.server.exchange.observer import Observer
from topics.server.exchange.tracing import spans
from topics.server.runtime.runtime import Runtime
from topics.settings import Settings, is_loopback
from topics.store.files import OsFiles
from topics.store.store import DiskStore


def create(settings: Settings) -> Runtime:
    """A runtime over the data directory of the settings, with its exchange; nothing is opened, but
    a file of keys is read.

    Raises:
        BadKeys: There are keys, and they cannot be used.
        StoreError: It would be a node of a cluster.
    """
    if settings.cluster_kafka is not None:
        # The exchange of a node is there (`cluster.assembly`), and nothing that runs its log.
        raise StoreError(
            "TOPICS_CLUSTER_KAFKA: this version does not run as a node of a cluster yet; leave it "
            "empty for a single server"
        )
    guard = guard_of(settings)
    limits = settings.limits
    store = DiskStore(
        OsFiles(settings.data_dir),
        wal_file_bytes=limits.wal_file_bytes,
        reserve_bytes=limits.reserve_bytes,
    )
    runtime = Runtime(
        limits, store, flush_ms=settings.flush_ms, sync_timeout_ms=settings.sync_timeout_ms
    )
    slow_s = settings.slow_request_ms / 1000 if settings.slow_request_ms else None
    exchange = runtime.exchange = TopicsExchange(
        runtime,
        origins_of(settings, has_keys=guard is not None),
        Observer(slow_s, spans()),
        Holders(settings.trusted_proxies),
        guard=guard,
        trace_meta=settings.trace_meta,
    )
    # Sockets write without an answer of HTTP.
    runtime.after_turn = exchange.history.note
    return runtime


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
