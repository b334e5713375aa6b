"""What the document says of the cluster that a server is in."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.cluster import Cluster, ClusterTrimmed, TrimBody
from topics.protocol.faces.http.openapi.operation import JSON, Example, Operation, json_of
from topics.protocol.faces.http.openapi.words import Fields, says
from topics.protocol.model.errors import ErrorCode

OPERATIONS: Final[Mapping[str, Operation]] = {
    "POST /v0/cluster/trim": Operation(
        "server",
        "trimCluster",
        "Trim the log of the cluster by hand.",
        json_of(ClusterTrimmed),
        body=TrimBody,
        refusals=(ErrorCode.TRIM_REFUSED,),
        description=(
            "The leader trims the log by itself; this is for more than that, or "
            "for knowing. Never beyond what a live node needs. 409 where the server is in no cluster."
        ),
        takes="How far; none of the fields for what the leader would trim by itself.",
        gives="What went, or would, and what each node needs.",
        example=Example(
            {
                JSON: {
                    "trimmed": False,
                    "before": 5120,
                    "records": 5000,
                    "log_start": 120,
                    "log_end": 5131,
                    "waits_for": "node",
                    "node": "n2",
                    "positions": [
                        {"node": "n1", "offset": 5130, "is_copy": True},
                        {"node": "n2", "offset": 5120, "is_copy": True},
                    ],
                    "performance": {"server_total_ms": 8.012, "throttle_wait_ms": 0.0},
                }
            },
            body='{"now": true, "dry_run": true}',
        ),
    ),
    "GET /v0/cluster": Operation(
        "server",
        "getCluster",
        "The cluster that the server is in.",
        json_of(Cluster),
        description=(
            "As the node that answers knows it: figures of the other nodes are as old as "
            "`seen_ms_ago` says. A server that is in no cluster answers `enabled: false`."
        ),
        gives="The cluster, or that there is none.",
        example=Example(
            {
                JSON: {
                    "enabled": False,
                    "performance": {"server_total_ms": 0.031, "throttle_wait_ms": 0.0},
                }
            }
        ),
    ),
}
"""By `Route.line`."""

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    TrimBody: {
        "before": says("The records before this offset, however young. Not with `now`."),
        "now": says("All that no live node needs, however young.", default=False),
        "alone": says(
            "Also where one node alone has the data: they end with its disk.", default=False
        ),
        "dry_run": says("Say what would go, and let nothing go.", default=False),
    },
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    TrimBody: "How far to trim. `before` and `now` exclude each other.",
}
"""What a body means as a whole, and rules between its fields."""
