"""The parts of a server, put together from its settings.

Owns the one place that knows all of them: the store on disk, the runtime, the exchange.
"""

from topics.protocol.http.routes import LOOPBACK_HOSTS, OriginRule
from topics.server.exchange.exchange import TopicsExchange
from topics.server.exchange.observer import Observer
from topics.server.exchange.tracing import spans
from topics.server.runtime.runtime import Runtime
from topics.settings import Settings, is_loopback
from topics.store.files import OsFiles
from topics.store.store import DiskStore


def create(settings: Settings) -> Runtime:
    """A runtime over the data directory of the settings, with its exchange; nothing is opened."""
    limits = settings.limits
    store = DiskStore(
        OsFiles(settings.data_dir),
        wal_file_bytes=limits.wal_file_bytes,
        reserve_bytes=limits.reserve_bytes,
    )
    runtime = Runtime(
        limits, store, flush_ms=settings.flush_ms, sync_timeout_ms=settings.sync_timeout_ms
    )
    hosts = frozenset(host.lower().encode() for host in settings.allowed_hosts)
    if is_loopback(settings.host):
        hosts |= LOOPBACK_HOSTS
    origins = frozenset(origin.lower().encode() for origin in settings.allowed_origins)
    slow_s = settings.slow_request_ms / 1000 if settings.slow_request_ms else None
    runtime.exchange = TopicsExchange(
        runtime,
        OriginRule(hosts, origins),
        Observer(slow_s, spans()),
        trace_meta=settings.trace_meta,
    )
    return runtime
