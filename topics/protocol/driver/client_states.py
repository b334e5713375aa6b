"""Where connected clients stand in topics, for an operator who asks who is connected (§8.9).

Owns what a client's connection tells of itself, and how far that is from the heads of the topics.  Counts
sequence numbers: those of records that were deleted, and of records that the client filters out, count too.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from types import MappingProxyType
from typing import Final

import msgspec

from topics.protocol.engine import Engine
from topics.protocol.model.names import partition_of, public_name
from topics.protocol.state.watched import Watched, WatchPlace

TOPICS_SHOWN: Final = 16
"""Partitions that are named of one client, those with the greatest lag."""
_NOTHING: Final[Mapping[str, int | None]] = MappingProxyType({})


class ClientState(msgspec.Struct, frozen=True):
    """What is known of a client where its connection is.

    Attributes:
        seqs: The last seq that it was sent, by the engine's name of each partition; None: the client has no place
            in it, as a worker.
        there: The same of partitions that another process serves, as far as it is known here; None: not known.
        in_flight: Jobs that it holds; None: it is no push stream, or that is not known here.
        asked: The number by which this process asked the other one for the stream; 0: there is none.
    """

    seqs: Mapping[str, int | None] = _NOTHING
    there: Mapping[str, int | None] = _NOTHING
    in_flight: int | None = None
    asked: int = 0


class ClientTopic(msgspec.Struct, frozen=True, array_like=True):
    """Where a client stands in one partition.

    Attributes:
        name: The engine's name of it.
        seq: The last one that it was sent; None: not known.
        lag: Sequence numbers between that and the head; None: not known in this process.
        partition: Its number, where its topic has several.
    """

    name: str
    seq: int | None
    lag: int | None
    partition: int | None


class ClientTopics(msgspec.Struct, frozen=True, array_like=True):
    """Where a client stands.

    Attributes:
        shown: Up to `TOPICS_SHOWN` partitions, the greatest lag first.
        count: Of all its partitions.
        lag: The sum of all that are known; None: no one is.
    """

    shown: list[ClientTopic]
    count: int
    lag: int | None


def state_of(watched: Iterable[Watched]) -> ClientState:
    """The state of a stream that watches partitions."""
    return ClientState(
        {each.name: each.cursor for each in watched if each.place is not WatchPlace.GONE}
    )


def client_topics(
    engine: Engine,
    seqs: Mapping[str, int | None],
    is_shown: Callable[[str], bool],
    is_known: Callable[[str], bool],
) -> ClientTopics:
    """Where a client stands, by the heads that this engine shows.

    Args:
        is_shown: Whether a topic of this name may be told of, and is asked for.
        is_known: Whether this engine has all records of a partition.
    """
    found = [
        _topic(engine, name, seq, is_known)
        for name, seq in seqs.items()
        if is_shown(public_name(name))
    ]
    lags = [each.lag for each in found if each.lag is not None]
    return ClientTopics(
        nsmallest(TOPICS_SHOWN, found, key=_order), len(found), sum(lags) if lags else None
    )


def _order(topic: ClientTopic) -> tuple[int, str]:
    return -(topic.lag or 0), topic.name


def _topic(
    engine: Engine, name: str, seq: int | None, is_known: Callable[[str], bool]
) -> ClientTopic:
    topic = engine.state.topics.get(name)
    lag = None
    if topic is not None and seq is not None and is_known(name):
        lag = max(0, topic.published_seq - seq)
    number = partition_of(name)[1]
    first = engine.state.topics.get(public_name(name))
    has_several = number > 0 or (first is not None and first.config.partition_count > 1)
    return ClientTopic(name, seq, lag, number if has_several else None)


def joined(first: ClientTopics, second: ClientTopics) -> ClientTopics:
    """Where a client stands of which two processes know a part each."""
    lags = [each.lag for each in (first, second) if each.lag is not None]
    return ClientTopics(
        nsmallest(TOPICS_SHOWN, [*first.shown, *second.shown], key=_order),
        first.count + second.count,
        sum(lags) if lags else None,
    )
