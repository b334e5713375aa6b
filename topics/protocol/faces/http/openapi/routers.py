"""What the document says of routers."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.openapi.operation import (
    LISTED,
    PAGE,
    TEXT,
    Example,
    Operation,
    Parameter,
    json_of,
    json_text,
)
from topics.protocol.faces.http.openapi.words import TOPIC, Fields, defaults, says
from topics.protocol.faces.http.routers import (
    RouterBody,
    RouterDeleted,
    RouterList,
    RouterPut,
    RouterState,
)
from topics.protocol.model.config import RouterConfig
from topics.protocol.model.errors import ErrorCode

_ROUTER: Final[Fields] = defaults(
    RouterConfig(source="", dest=""),
    {
        "preserve_node": says("Whether copies keep `$node`."),
        "preserve_tag": says("Whether copies keep their tag."),
        "filter": says("Which tags to copy; all records where there is none."),
        "allow_cycle": says("Whether the router may close a ring of topics."),
        "guarantee": says("`exactly_once` puts its source into each copy's `meta`."),
    },
)

_ENDS: Final[Fields] = {
    "source": says("The topic that is copied.", TOPIC),
    "dest": says("Where its records go.", TOPIC),
}


OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /v0/routers": Operation(
        "routers",
        "listRouters",
        "Routers by name, a page at a time.",
        json_of(RouterList),
        parameters=(
            *PAGE,
            Parameter("source", "Only those from this topic.", TEXT),
            Parameter("dest", "Only those into this topic.", TEXT),
        ),
        description=f"Each router with its lag, and what blocks it. {LISTED}",
        gives="One page of routers.",
        example=Example(
            query={"source": "orders"},
            answer=json_text("""{"routers":[{"router":"orders-eu","source":"orders","dest":"orders-eu",
"guarantee":"at_least_once","forwarded_total":2,"filter":["tag","Glob","eu.*"],"lag":0,
"blocked":null}],"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "PUT /v0/routers/:": Operation(
        "routers",
        "putRouter",
        "Make a router, or change it.",
        json_of(RouterPut),
        body=RouterBody,
        refusals=(
            ErrorCode.PARTITIONED,
            ErrorCode.TOPIC_NOT_FOUND,
            ErrorCode.TOPIC_EXISTS_INCOMPATIBLE,
            ErrorCode.ROUTER_CYCLE,
        ),
        creates=True,
        description=(
            "Copies what is appended to `source` from now on to `dest`, which is made "
            "if it does not exist. `filter` selects by tag. A destination has one source. The same "
            "request again changes nothing; with another source or destination the router begins anew, at the "
            "head."
        ),
        takes="From where to where, and which records.",
        gives="The router as it is now.",
        example=Example(
            name="orders-us",
            body="""{"source": "orders", "dest": "orders-us", "filter": ["tag", "Glob", "us.*"]}""",
            status=201,
            answer=json_text("""{"router":"orders-us","created":true,"source":"orders","dest":"orders-us",
"preserve_node":true,"preserve_tag":true,"filter":["tag","Glob","us.*"],"allow_cycle":false,
"guarantee":"at_least_once","performance":{"server_total_ms":0.412,"wal_append_ms":0.122,
"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "GET /v0/routers/:": Operation(
        "routers",
        "getRouter",
        "What a router forwards, how far it is, and what stops it.",
        json_of(RouterState),
        refusals=(ErrorCode.ROUTER_NOT_FOUND,),
        description=(
            "`lag` is how many numbers of the source it has yet to look at. A refusal "
            "of the destination is in `blocked`: the router tries again by itself, and loses nothing. What "
            "the source lost before it was copied is in `loss`."
        ),
        gives="The router as it is now.",
        example=Example(
            name="orders-eu",
            answer=json_text("""{"router":"orders-eu","source":"orders","dest":"orders-eu","preserve_node":true,
"preserve_tag":true,"filter":["tag","Glob","eu.*"],"allow_cycle":false,
"guarantee":"at_least_once","forwarded_total":2,"cursor":3,"lag":0,"blocked":null,
"lost_total":0,"loss":null,"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "DELETE /v0/routers/:": Operation(
        "routers",
        "deleteRouter",
        "End a router, after what it owes; copies stay.",
        json_of(RouterDeleted),
        refusals=(ErrorCode.THROTTLED,),
        description=(
            "Copies that exist stay. Deleting what does not exist is no error: `deleted` is false."
        ),
        gives="Whether there was one.",
        example=Example(
            name="orders-eu",
            answer=json_text("""{"router":"orders-eu","deleted":true,"performance":{"server_total_ms":0.412,
"wal_append_ms":0.122,"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
        ),
    ),
}
"""By `Route.line`."""

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    RouterBody: {
        **_ENDS,
        **_ROUTER,
        "create_dest": says("Make a missing destination; else 404.", default=True),
    },
    RouterConfig: {**_ENDS, **_ROUTER},
}
"""Every field of every body, and of the configs that answers hold."""
