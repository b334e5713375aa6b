"""The exchange of a node, put together from the settings.

What runs the log gives it how the node stands; everything else is what a single server has.
"""

from urllib.parse import urlsplit

import msgspec

from topics.protocol.http.origins import OriginRule
from topics.server.access.guard import Guard
from topics.server.cluster.exchange import ClusterExchange
from topics.server.cluster.figures import families
from topics.server.cluster.forwarding import Forwarder
from topics.server.cluster.neighbours import Neighbours
from topics.server.cluster.standing import Standing
from topics.server.exchange.holders import Holders
from topics.server.exchange.observer import Observer
from topics.server.exchange.shell import Shell
from topics.settings import Settings


def exchange_of(
    settings: Settings,
    runtime: Shell,
    standing: Standing,
    *,
    node: str,
    secret: bytes,
    origins: OriginRule,
    observer: Observer,
    guard: Guard | None,
) -> ClusterExchange:
    """The exchange, with its metrics; nothing is connected.

    Args:
        node: This node's id, which it keeps with its data directory.
        secret: The cluster's id, which only those know who read its log.
        origins: As a single server has it.
    """
    neighbours = Neighbours(standing, Forwarder(secret), node)
    exchange = ClusterExchange(
        runtime,
        neighbours,
        _reached_by_nodes(origins, settings.cluster_url),
        observer,
        Holders(settings.trusted_proxies),
        guard=guard,
        trace_meta=settings.trace_meta,
    )
    exchange.more.append(lambda: families(neighbours))
    return exchange


def _reached_by_nodes(origins: OriginRule, url: str | None) -> OriginRule:
    """The rule that lets other nodes in, too: they call this one by the host of its URL."""
    host = None if url is None else urlsplit(url).hostname
    if host is None or not origins.hosts:  # empty: any
        return origins
    name = f"[{host}]" if ":" in host else host
    return msgspec.structs.replace(origins, hosts=origins.hosts | {name.encode("ascii")})
