"""Who is connected, over HTTP (§8.9)."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topics.protocol.faces.http.decoding import invalid
from topics.protocol.faces.http.fields import Natural, TopicName
from topics.protocol.faces.http.query import query_natural
from topics.protocol.faces.http.route import Probe, Route, route
from topics.protocol.model.limits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX

_ID: Final = re.compile(r"(0|[1-9][0-9]{0,3})-(0|[1-9][0-9]{0,17})")
"""Of a client: the number of its process, and its own number there."""


class ClientQuery(msgspec.Struct, frozen=True):
    """Which clients are asked for.

    Attributes:
        process, after: Where the page begins: behind the client of this number in this process.
        topic: Those that have to do with it; empty: all.
    """

    process: int
    after: int
    limit: int
    topic: str


class ConnectedTopic(msgspec.Struct, kw_only=True):
    """A topic, or one of its partitions, that a client has to do with."""

    topic: TopicName
    partition: Annotated[
        Natural | UnsetType, Meta(description="Its number, where the topic has several.")
    ] = UNSET
    seq: Annotated[
        Natural | UnsetType,
        Meta(
            description="The last one that the client was sent, or begins behind; absent of a worker."
        ),
    ] = UNSET
    lag: Annotated[
        Natural | UnsetType,
        Meta(
            description="Sequence numbers between that and the head; absent where it is not known."
        ),
    ] = UNSET


class ConnectedClient(msgspec.Struct, kw_only=True):
    """One client that is connected (§8.9)."""

    client: Annotated[str, Meta(description="Its id, which no other has while the server runs.")]
    kind: Annotated[
        Literal["watch", "websocket", "work", "read", "claim", "job", "kafka"],
        Meta(
            description="`watch`: an event stream; `work`: a worker to which jobs are pushed; `read`, `claim`, "
            "`job`: a request that waits; `kafka`: a connection of a Kafka client."
        ),
    ]
    key: Annotated[
        str | UnsetType, Meta(description="The name of its key, never the key; absent without one.")
    ] = UNSET
    address: Annotated[
        str,
        Meta(description="Where it comes from; of a trusted proxy's clients, as the proxy says."),
    ]
    since_ms: Annotated[Natural, Meta(description="When it came, in milliseconds since the epoch.")]
    agent: Annotated[
        str | UnsetType,
        Meta(description="`User-Agent`, or the `client.id` of Kafka; 200 characters at most."),
    ] = UNSET
    node: Annotated[str | UnsetType, Meta(description="What a worker calls itself.")] = UNSET
    group: Annotated[
        str | UnsetType, Meta(description="The group of consumers that it has joined.")
    ] = UNSET
    in_flight: Annotated[
        Natural | UnsetType, Meta(description="Jobs that a `work` stream holds, where it is known.")
    ] = UNSET
    lag: Annotated[
        Natural | UnsetType, Meta(description="The sum over all its topics, as far as it is known.")
    ] = UNSET
    topic_count: Annotated[
        Natural, Meta(description="Its topics, each partition counted, that the caller may see.")
    ]
    topics: Annotated[
        list[ConnectedTopic], Meta(description="Up to 16 of them, the greatest lag first.")
    ]


class ClientList(msgspec.Struct, kw_only=True):
    clients: Annotated[
        list[ConnectedClient],
        Meta(description="By process, and in each as they came; may be empty."),
    ]
    next_after: Annotated[
        str | None, Meta(description="`after` of the next page; null: this is the last.")
    ]
    node: Annotated[
        str | UnsetType, Meta(description="In a cluster: the node that answers, for itself alone.")
    ] = UNSET


def client_id(process: int, number: int) -> str:
    return f"{process}-{number}"


def parse_clients(query: Mapping[str, str]) -> ClientQuery:
    """Raises Rejection: 400."""
    after = query.get("after", "0-0")
    found = _ID.fullmatch(after)
    if found is None:
        raise invalid("expected the id of a client", "?after")
    limit = query_natural(query, "limit", PAGE_SIZE_DEFAULT) or PAGE_SIZE_DEFAULT
    topic = query.get("topic", "")
    return ClientQuery(int(found[1]), int(found[2]), min(limit, PAGE_SIZE_MAX), topic)


ROUTES: Final[tuple[Route, ...]] = (route("GET /v0/clients", "admin", Probe.CLIENTS),)
