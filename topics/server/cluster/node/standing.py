"""How this node stands in its cluster: what the exchange may ask, and all that it may.

A type only.  `node_standing.NodeStanding` implements it; forwarding, `GET /v0/cluster` and the reads
that wait for a position ask it.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from topics.protocol.faces.http.cluster import TrimBody
    from topics.server.cluster.node.status import ClusterStatus
    from topics.server.cluster.node.trimmer import Trimmed


class Standing(Protocol):
    """One node over one shard.  Used on the event loop's thread only.

    Attributes:
        leads: Whether this node decides now.  It may be deposed at any moment, and learns it later:
            an answer that rests on this is given by the engine, which waits for the log.
        leader_url: Where the other nodes reach the leader; None where none is known.  Of a node that
            leads, its own.
        term: Of the last `TermBegan` that was accepted here; 0 before the first.
        shard: Its number; the first part of a position, `shard.index`.
        index: Of the last unit that was applied here: what a read shows.  0 before the first.
        format: The newest format of units that all nodes read, which were heard of; None before this one has heard.
    """

    @property
    def leads(self) -> bool: ...

    @property
    def leader_url(self) -> str | None: ...

    @property
    def term(self) -> int: ...

    @property
    def shard(self) -> int: ...

    @property
    def index(self) -> int: ...

    @property
    def format(self) -> int | None: ...

    async def wait_for(self, index: int, wait_ms: int) -> bool:
        """Whether reads here show unit `index` now or after at most `wait_ms`."""

    async def wait_for_end(self, wait_ms: int) -> bool:
        """Whether reads here show all that was in the log when this was called, now or after at
        most `wait_ms`; False, too, where the log's end could not be asked for in that time."""

    async def trim(self, asked: "TrimBody") -> "Trimmed":
        """Trim the log by hand; of a node that leads.  Raises Rejection."""

    def log_retained_until_ms(self, now_ms: int) -> int:
        """Until when the log's own files may have what is erased now (ms since the epoch)."""

    def status(self) -> "ClusterStatus":
        """What `GET /v0/cluster` says."""
