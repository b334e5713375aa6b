"""Request bodies: JSON text in, commands out; every 400 for a body is raised here.

`data` and `meta` are checked for grammar and kept as the bytes they came in, never parsed.  The
order of the checks within a body is: it is text, it is JSON, it has the right types, it is in
range, names in it are names.
"""

from topics.protocol.faces.http.bodies.append import append_body, append_of, parse_append
from topics.protocol.faces.http.bodies.checks import U64_MAX, clamped_lease, u64
from topics.protocol.faces.http.bodies.queues import (
    claim_limit,
    parse_ack,
    parse_claim,
    parse_extend,
    parse_nack,
    worker,
)
from topics.protocol.faces.http.bodies.reads import (
    page_budget,
    page_limit,
    parse_begin,
    parse_begins,
    parse_diff,
    parse_view,
    parse_watch,
)
from topics.protocol.faces.http.bodies.routers import parse_put_router
from topics.protocol.faces.http.bodies.topics import parse_delete, parse_purge, parse_put
from topics.protocol.faces.http.bodies.trims import parse_trim
from topics.protocol.faces.http.bodies.types import (
    AppendBody,
    BeginBody,
    ClaimBody,
    ConfigBody,
    DeleteBody,
    DiffBody,
    ExtendBody,
    HeldBody,
    NackBody,
    Natural,
    PurgeBody,
    RecordBody,
    RouterBody,
    TrimBody,
    ViewBody,
    WatchBody,
)

__all__ = [
    "U64_MAX",
    "AppendBody",
    "BeginBody",
    "ClaimBody",
    "ConfigBody",
    "DeleteBody",
    "DiffBody",
    "ExtendBody",
    "HeldBody",
    "NackBody",
    "Natural",
    "PurgeBody",
    "RecordBody",
    "RouterBody",
    "TrimBody",
    "ViewBody",
    "WatchBody",
    "append_body",
    "append_of",
    "claim_limit",
    "clamped_lease",
    "page_budget",
    "page_limit",
    "parse_ack",
    "parse_append",
    "parse_begin",
    "parse_begins",
    "parse_claim",
    "parse_delete",
    "parse_diff",
    "parse_extend",
    "parse_nack",
    "parse_purge",
    "parse_put",
    "parse_put_router",
    "parse_trim",
    "parse_view",
    "parse_watch",
    "u64",
    "worker",
]
