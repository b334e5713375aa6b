"""Who may do what: every route and every command of a WebSocket, by hand, from §0.2.

The server goes by a table of its own (`http/routes.py`).  This one is written from the contract, and
the two have to agree; a route that is in one only fails `test_access.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

SCOPES: Final = ("read", "write", "delete", "admin")
SUBSETS: Final = tuple(
    frozenset(chosen) for size in range(1, 5) for chosen in combinations(SCOPES, size)
)
"""Every set of scopes that a key can have; none at all cannot be configured."""

ANY_KEY: Final = frozenset[str]()
INSIDE: Final[Mapping[str, str]] = {
    "topic": "in.log",
    "queue": "in.queue",
    "absent": "in.absent",
    "second": "in.second",
    "router": "in.router",
    "group": "in.group",
    "schedule": "in.schedule",
    "source": "in.log",
    "dest": "in.dest",
    "letters": "in.letters",
}
"""The names of a key with the prefixes `in.` and `also:`, by where they stand in a row."""

OUTSIDE: Final = ("out.log", "out.absent", "in", "In.log", "xin.log", "also", "in-log")
"""A name that exists, one that does not, and near misses."""


@dataclass(frozen=True, slots=True)
class Row:
    """One way to ask.

    Attributes:
        line: The route, as the server's table spells it.
        scopes: What a key needs; None: no key is needed.
        target, body: With names in braces.
        names: Which names of the row are a topic's, a router's, a group's or a schedule's, wherever they stand.
        status: The answer to a key that may.
        takes_token: Whether `?token=` is a key here.
    """

    line: str
    scopes: frozenset[str] | None
    target: str
    body: Any = None
    names: tuple[str, ...] = ()
    status: int = 200
    takes_token: bool = False

    @property
    def method(self) -> str:
        """A stream is asked for its head only, which opens nothing (§0.6)."""
        method = self.line.split()[0]
        return "HEAD" if self.takes_token else method

    def filled(self, **other: str) -> tuple[str, Any]:
        """Target and body with the names of `INSIDE`, but for these."""
        names = {**INSIDE, **other}
        return self.target.format(**names), _filled(self.body, names)


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case dict():
            return {_filled(key, names): _filled(each, names) for key, each in value.items()}
        case list():
            return [_filled(each, names) for each in value]
        case str() if value.startswith("{"):
            return value.format(**names)
        case _:
            return value


def _of(text: str) -> frozenset[str]:
    return frozenset(text.split("+"))


_LOG, _QUEUE = "/v0/topics/{topic}", "/v0/topics/{queue}"
_ONE: Final = [{"data": 1}]
_HELD: Final = {"node": "n", "seqs": [99]}

ROWS: Final = (
    Row("GET /", None, "/"),
    Row("GET /v0/topics", _of("read"), "/v0/topics"),
    Row("PUT /v0/topics/:", _of("admin"), _LOG, {}, ("topic",)),
    Row(
        "PUT /v0/topics/:",
        _of("admin"),
        _QUEUE,
        {"type": "queue", "dead_letter": "{letters}"},
        ("queue", "letters"),
    ),
    Row("GET /v0/topics/:", _of("read"), _LOG, None, ("topic",)),
    Row("POST /v0/topics/:", _of("write"), _LOG, {"records": _ONE}, ("topic",)),
    Row(
        "POST /v0/topics/:",
        _of("write"),
        _LOG,
        {"records": _ONE, "config": {"dead_letter": "{letters}"}},
        ("topic", "letters"),
    ),
    Row("DELETE /v0/topics/:", _of("delete"), "/v0/topics/{absent}", None, ("absent",)),
    Row("POST /v0/topics/:/diff", _of("read"), _LOG + "/diff", {}, ("topic",)),
    Row("GET /v0/topics/:/records", _of("read"), _LOG + "/records", None, ("topic",)),
    Row("GET /v0/topics/:/latest", _of("read"), _LOG + "/latest", None, ("topic",)),
    Row(
        "POST /v0/topics/:/delete",
        _of("delete"),
        _LOG + "/delete",
        {"before_seq": 1},
        ("topic",),
    ),
    Row("POST /v0/topics/:/purge", _of("delete"), _LOG + "/purge", {"seq": 1}, ("topic",)),
    Row("POST /v0/topics/:/claim", _of("read+write"), _QUEUE + "/claim", {"node": "n"}, ("queue",)),
    Row("POST /v0/topics/:/ack", _of("write"), _QUEUE + "/ack", _HELD, ("queue",)),
    Row("POST /v0/topics/:/nack", _of("write"), _QUEUE + "/nack", _HELD, ("queue",)),
    Row(
        "POST /v0/topics/:/extend",
        _of("write"),
        _QUEUE + "/extend",
        {**_HELD, "lease_ms": 1000},
        ("queue",),
    ),
    Row("GET /v0/topics/:/jobs", _of("read"), _QUEUE + "/jobs", None, ("queue",)),
    Row("GET /v0/topics/:/jobs/:", _of("read"), _QUEUE + "/jobs/99", None, ("queue",), 404),
    Row(
        "POST /v0/topics/:/jobs/promote",
        _of("write"),
        _QUEUE + "/jobs/promote",
        {"match": "none"},
        ("queue",),
    ),
    Row(
        "POST /v0/topics/:/jobs/:/promote",
        _of("write"),
        _QUEUE + "/jobs/99/promote",
        {},
        ("queue",),
        404,
    ),
    Row(
        "POST /v0/topics/:/jobs/retry",
        _of("write"),
        _QUEUE + "/jobs/retry",
        {"match": "none"},
        ("queue",),
    ),
    Row(
        "POST /v0/topics/:/jobs/:/retry",
        _of("write"),
        _QUEUE + "/jobs/99/retry",
        {},
        ("queue",),
        404,
    ),
    Row(
        "POST /v0/topics/:/jobs/cancel",
        _of("delete"),
        _QUEUE + "/jobs/cancel",
        {"match": "none"},
        ("queue",),
    ),
    Row(
        "POST /v0/topics/:/jobs/:/cancel",
        _of("delete"),
        _QUEUE + "/jobs/99/cancel",
        {},
        ("queue",),
        404,
    ),
    Row(
        "POST /v0/topics/:/redrive",
        _of("read+write+delete"),
        _LOG + "/redrive",
        {"to": "{queue}"},
        ("topic", "queue"),
    ),
    Row(
        "GET /v0/topics/:/work",
        _of("read+write"),
        _QUEUE + "/work?node=n",
        None,
        ("queue",),
        takes_token=True,
    ),
    Row("GET /v0/routers", _of("read"), "/v0/routers"),
    Row(
        "PUT /v0/routers/:",
        _of("admin"),
        "/v0/routers/{router}",
        {"source": "{source}", "dest": "{dest}"},
        ("router", "source", "dest"),
    ),
    Row("GET /v0/routers/:", _of("read"), "/v0/routers/{router}", None, ("router",)),
    Row("DELETE /v0/routers/:", _of("delete"), "/v0/routers/{absent}", None, ("absent",)),
    Row("GET /v0/schedules", _of("admin"), "/v0/schedules"),
    Row(
        "PUT /v0/schedules/:",
        _of("admin"),
        "/v0/schedules/{schedule}",
        {"topic": "{topic}", "record": {"data": 1}, "cron": "0 0 1 1 *"},
        ("schedule", "topic"),
    ),
    Row(
        "PUT /v0/schedules/:",
        _of("admin"),
        "/v0/schedules/{schedule}",
        {
            **{"topic": "{queue}", "record": {"data": 1}, "cron": "0 0 1 1 *"},
            "config": {"type": "queue", "dead_letter": "{letters}"},
        },
        ("schedule", "queue", "letters"),
    ),
    Row("GET /v0/schedules/:", _of("admin"), "/v0/schedules/{schedule}", None, ("schedule",)),
    Row("DELETE /v0/schedules/:", _of("admin"), "/v0/schedules/{absent}", None, ("absent",)),
    *(
        Row(
            f"POST /v0/schedules/:/{action}",
            _of("admin"),
            f"/v0/schedules/{{absent}}/{action}",
            None,
            ("absent",),
            status=404,
        )
        for action in ("run", "pause", "resume")
    ),
    Row("GET /v0/groups", _of("read"), "/v0/groups"),
    Row("GET /v0/groups/:", _of("read"), "/v0/groups/{group}", None, ("group",)),
    Row(
        "POST /v0/groups/:/commit",
        _of("read"),
        "/v0/groups/{group}/commit",
        {"offsets": [{"topic": "{topic}", "seq": 1}, {"topic": "{second}", "seq": 1}]},
        ("group", "topic", "second"),
    ),
    Row(
        "DELETE /v0/groups/:",
        _of("delete"),
        "/v0/groups/{absent}",
        None,
        ("absent",),
        status=404,
    ),
    Row(
        "POST /v0/watch",
        _of("read"),
        "/v0/watch",
        {"topics": {"{topic}": {}, "{second}": {"tail": True}}},
        ("topic", "second"),
    ),
    Row("GET /v0/watch/:", _of("read"), "/v0/watch/wid_x?y=1", status=404, takes_token=True),
    # Not a handshake: who may open a WebSocket is told so.
    Row("GET /v0/ws", ANY_KEY, "/v0/ws", status=400),
    Row("GET /v0/health", None, "/v0/health"),
    Row("GET /healthz", None, "/healthz"),
    Row("GET /v0/ready", None, "/v0/ready"),
    Row("GET /readyz", None, "/readyz"),
    Row("GET /v0/metrics", _of("read"), "/v0/metrics"),
    Row("GET /v0/limits", _of("read"), "/v0/limits"),
    Row("GET /v0/openapi.json", None, "/v0/openapi.json"),
    Row("GET /v0/docs", None, "/v0/docs"),
    Row("GET /v0/docs/:", None, "/v0/docs/swagger-ui.css"),
    Row("GET /v0/console/:", None, "/v0/console/main.js"),
    Row("GET /v0/stats/history", _of("read"), "/v0/stats/history"),
    Row("GET /v0/clients", _of("admin"), "/v0/clients"),
    Row("GET /v0/cluster", _of("read"), "/v0/cluster"),
    Row("POST /v0/cluster/trim", _of("admin"), "/v0/cluster/trim", {}, status=409),
)
"""One row a route, and one more for each way in which a body holds names."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a WebSocket (§7.7).

    Attributes:
        reply: The `op` of the reply to a key that may.
    """

    op: str
    scopes: frozenset[str]
    reply: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def filled(self, **other: str) -> dict[str, Any]:
        names = {**INSIDE, **other}
        return {"op": self.op, **_filled(dict(self.fields), names)}


COMMANDS: Final = (
    Command("subscribe", _of("read"), "subscribed", {"topic": "{topic}"}, ("topic",)),
    Command(
        "subscribe",
        _of("read"),
        "subscribed",
        {"topics": {"{topic}": {}, "{second}": {}}},
        ("topic", "second"),
    ),
    Command("unsubscribe", ANY_KEY, "unsubscribed", {"topic": "{topic}"}, ("topic",)),
    Command("publish", _of("write"), "ack", {"topic": "{topic}", "records": _ONE}, ("topic",)),
    Command(
        "publish",
        _of("write"),
        "ack",
        {"topic": "{topic}", "records": _ONE, "config": {"dead_letter": "{letters}"}},
        ("topic", "letters"),
    ),
    Command("ping", ANY_KEY, "pong"),
)
