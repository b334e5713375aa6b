"""What the process says of itself (§8)."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from topics.protocol.faces.http.decoding import invalid
from topics.protocol.faces.http.fields import Natural, TopicName
from topics.protocol.faces.http.query import query_natural
from topics.protocol.faces.http.route import Probe, Route, route
from topics.protocol.faces.http.suggestions import listed
from topics.protocol.model.limits import Limits


class Health(msgspec.Struct, kw_only=True):
    status: Annotated[Literal["ok"], Meta(description="Always.")]
    version: Annotated[str, Meta(description="The server's version.")]
    uptime_ms: Annotated[Natural, Meta(description="Since the start.")]


class Ready(msgspec.Struct, kw_only=True):
    status: Annotated[Literal["ready"], Meta(description="Always.")]
    wal_replay_complete: Annotated[Literal[True], Meta(description="Always.")]
    topics: Annotated[Natural, Meta(description="How many there are.")]


class QueueHistory(msgspec.Struct, kw_only=True):
    """Columns of one queue, a value for each row, at ten seconds."""

    topic: TopicName
    at_ms: Annotated[list[float], Meta(description="When; rises.")]
    ready: Annotated[list[float], Meta(description="Could be claimed.")]
    in_flight: Annotated[list[float], Meta(description="Under a lease.")]
    delayed: Annotated[list[float], Meta(description="Waited.")]
    dead_lettered: Annotated[list[float], Meta(description="Moved away up to then.")]


class History(msgspec.Struct, kw_only=True):
    """The last hour in figures (§8.6)."""

    step_ms: Annotated[int, Meta(description="Of the rows of `series`.")]
    now_ms: Annotated[int, Meta(description="The server's time.")]
    series: Annotated[
        dict[str, list[float]], Meta(description="Columns, a value for each row; `at_ms` rises.")
    ]
    queues: Annotated[
        list[QueueHistory], Meta(description="The 20 queues that were written to last.")
    ]


LimitsInForce: Final = msgspec.defstruct(
    "LimitsInForce",
    [(limit.name, Natural) for limit in fields(Limits)],
    kw_only=True,
    module=__name__,
)
"""Every row of `Limits`, whatever rows it has."""
METRICS: Final[dict[str, Any]] = {
    "type": "object",
    "description": "One key a family, `topics_…` or `process_…`: a number, or a list of samples, each with "
    "its labels and its `value`.",
    "properties": {
        "performance": {
            "description": "How long it took.",
            "$ref": "#/components/schemas/Performance",
        }
    },
    "required": ["performance"],
    "additionalProperties": True,
}
"""The JSON of `topics.server.observing.metrics.as_json`."""
HISTORY_STEPS_MS: Final = (1000, 10_000)
"""Of the tables of `GET /v0/stats/history`."""


def parse_history(query: Mapping[str, str]) -> tuple[int, int]:
    """(step, time after which rows are asked for) of the last hour's figures, milliseconds (§8.6)."""
    step_ms = query_natural(query, "step_ms", HISTORY_STEPS_MS[-1])
    if step_ms not in HISTORY_STEPS_MS:
        raise invalid(f"expected {listed(map(str, HISTORY_STEPS_MS))}", "?step_ms")
    return step_ms, query_natural(query, "after_ms", 0)


ROUTES: Final[tuple[Route, ...]] = (
    route("GET /", "open", Probe.PAGE),
    route("GET /v0/health", "probe", Probe.HEALTH),
    route("GET /healthz", "probe", Probe.HEALTH),
    route("GET /v0/ready", "probe", Probe.READY),
    route("GET /readyz", "probe", Probe.READY),
    route("GET /v0/metrics", "read", Probe.METRICS),
    route("GET /v0/limits", "read", Probe.LIMITS),
    route("GET /v0/openapi.json", "open", Probe.OPENAPI),
    route("GET /v0/docs", "open", Probe.DOCS),
    route("GET /v0/docs/:", "open", Probe.DOCS),
    route("GET /v0/console/:", "open", Probe.CONSOLE),
    route("GET /v0/stats/history", "read", Probe.HISTORY),
)
