"""What the document says of every route and every body: the tables of all nouns.

What follows from a route itself is not in these: a name in its path, the refusals that every request can meet, the
media type of a body (`topics.protocol.faces.http.openapi.document`).  The examples are one small shop: a log
`orders`, whose records are tagged by region and state, a queue `jobs`, and a router `orders-eu`.  A test sends each
request to a real server, and compares what it answers.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.openapi import (
    clients,
    cluster,
    groups,
    jobs,
    queues,
    records,
    routers,
    schedules,
    server,
    topics,
    watch,
)
from topics.protocol.faces.http.openapi.operation import Operation
from topics.protocol.faces.http.openapi.words import Fields

TAGS: Final[Mapping[str, str]] = {
    "topics": "Append-only logs: made, configured, listed, deleted.",
    "records": "What topics hold: appended, read by cursor, deleted.",
    "queues": "Topics of type `queue`: their records are jobs, leased to workers.",
    "jobs": "What became of jobs, and what an operator does with them.",
    "routers": "What copies each record of one topic to another.",
    "schedules": "Records that the server appends by the clock.",
    "groups": "Groups of consumers: their members, and how far they are.",
    "watch": "Many topics over one connection, pushed as records come.",
    "server": "The process itself: page, probes, metrics, limits, this document.",
}

_NOUNS: Final = (
    *(topics, records, queues, jobs, routers, schedules),
    *(groups, watch, server, clients, cluster),
)

OPERATIONS: Final[Mapping[str, Operation]] = {
    line: operation for noun in _NOUNS for line, operation in noun.OPERATIONS.items()
}
"""By `Route.line`."""

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    **topics.FIELDS,
    **records.FIELDS,
    **queues.FIELDS,
    **jobs.FIELDS,
    **routers.FIELDS,
    **schedules.FIELDS,
    **groups.FIELDS,
    **watch.FIELDS,
    **cluster.FIELDS,
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    **topics.WHOLE,
    **records.WHOLE,
    **queues.WHOLE,
    **schedules.WHOLE,
    **groups.WHOLE,
    **watch.WHOLE,
    **cluster.WHOLE,
}
"""What a body means as a whole, and rules between its fields."""
