"""The parts of a reader, put together from the settings of the server.

Owns the one place of a reader that knows the store on the disk; the rest is as `server.assembly` has
it for the engine's process.
"""

from collections.abc import Sequence

import msgspec

from topics.protocol.faces.http.origins import OriginRule
from topics.server.access.guard import Guard
from topics.server.access.keys import Entry, KeySource
from topics.server.assembly import origins_of
from topics.server.observing.observer import Observer
from topics.server.observing.tracing import spans
from topics.server.transport.limits import MESSAGE_BYTES_MAX, Timeouts, TransportLimits
from topics.settings import Settings
from topics.store.files import OsFiles
from topics.store.following import FollowingStore


class ReaderParts(msgspec.Struct, frozen=True):
    """What a reader is made of, beside its follower."""

    settings: Settings
    store: FollowingStore
    guard: Guard | None
    origins: OriginRule
    observer: Observer

    def transport_limits(self, connections: int) -> TransportLimits:
        limits = self.settings.limits
        return TransportLimits(
            connections=connections,
            connections_per_ip=limits.max_connections_per_ip or connections,
            bodies_bytes=limits.max_body_memory,
            message_bytes=min(limits.max_body_bytes, MESSAGE_BYTES_MAX),
        )

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(idle_s=self.settings.keep_alive_ms / 1000)


def parts_of(settings: Settings, keys: Sequence[Entry] | None = None) -> ReaderParts:
    """Put a reader together.

    Args:
        settings: Of the server; where keys come from is not looked at.
        keys: Those in force; None where the server asks for none.

    Raises:
        Unusable: There is no data directory.
    """
    guard = None
    if keys is not None:
        guard = Guard(KeySource(tuple(keys), None), asks_at_probes=settings.probe_auth)
    slow_s = settings.slow_request_ms / 1000 if settings.slow_request_ms else None
    return ReaderParts(
        settings,
        FollowingStore(OsFiles(settings.data_dir)),
        guard,
        origins_of(settings, has_keys=guard is not None),
        Observer(slow_s, spans()),
    )
