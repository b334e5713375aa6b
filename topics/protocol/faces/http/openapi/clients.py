"""What the document says of who is connected."""

from collections.abc import Mapping
from typing import Final

from topics.protocol.faces.http.clients import ClientList
from topics.protocol.faces.http.openapi.operation import (
    JSON,
    Example,
    Operation,
    Parameter,
    json_of,
    natural,
)
from topics.protocol.model.limits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX

_TEXT: Final = (
    "Streams, WebSockets, workers to which jobs are pushed, requests that wait for records or jobs, and "
    "connections of Kafka clients, in all processes of the server. A node of a cluster answers for itself. "
    "A page may be short, or empty, although there are more: go on until `next_after` is null. A key with "
    "prefixes sees topics and groups within them, the clients that have to do with these, and its own."
)

OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /v0/clients": Operation(
        "server",
        "listClients",
        "Who is connected, where they stand, and how far behind they are.",
        json_of(ClientList),
        parameters=(
            Parameter(
                "topic",
                "Those alone that have to do with this topic.",
                {"type": "string", "default": ""},
            ),
            Parameter(
                "after",
                "The page behind the client with this id: `next_after` of the last page.",
                {"type": "string", "default": "0-0"},
            ),
            natural("limit", f"At most {PAGE_SIZE_MAX}.", PAGE_SIZE_DEFAULT),
        ),
        description=_TEXT,
        gives="A page of clients.",
        example=Example(
            {
                JSON: {
                    "clients": [
                        {
                            "client": "0-17",
                            "kind": "watch",
                            "key": "key-9f86d081",
                            "address": "192.0.2.7",
                            "since_ms": 1795254710021,
                            "agent": "topics-python/0.1.0",
                            "lag": 3,
                            "topic_count": 1,
                            "topics": [{"topic": "orders", "seq": 480228, "lag": 3}],
                        }
                    ],
                    "next_after": None,
                    "performance": {"server_total_ms": 0.118, "throttle_wait_ms": 0.0},
                }
            }
        ),
    ),
}
"""By `Route.line`."""
