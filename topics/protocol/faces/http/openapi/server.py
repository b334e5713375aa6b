"""What the document says of the process itself."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from topics.protocol.faces.http.openapi.operation import (
    JSON,
    TEXT,
    Example,
    Operation,
    Parameter,
    json_of,
    json_text,
    natural,
)
from topics.protocol.faces.http.server import Health, History, LimitsInForce, Ready
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import (
    Limits,
)
from topics.version import VERSION

_HEALTH_SUMMARY: Final = "200 as long as the process answers at all."

_READY_SUMMARY: Final = (
    "200 while requests are served; 503 while the log is replayed and at the end."
)

_PROBE_TEXT: Final = "Needs no key, unless the server asks for keys on probes."

_HEALTH_TEXT: Final = (
    f"Says that the process answers, not that it serves; see `ready`. {_PROBE_TEXT}"
)

_READY_TEXT: Final = (
    f"Send requests here while it answers 200. While the log is replayed, "
    f"`error.detail.replay_progress` of the 503 says how far that is. {_PROBE_TEXT}"
)

_HEALTH_EXAMPLE: Final = json_text(f"""{{"status":"ok","version":"{VERSION}","uptime_ms":86400000,
"performance":{{"server_total_ms":0.044,"throttle_wait_ms":0.0}}}}""")

_READY_EXAMPLE: Final = json_text("""{"status":"ready","wal_replay_complete":true,"topics":3,
"performance":{"server_total_ms":0.041,"throttle_wait_ms":0.0}}""")

_METRICS: Final = """# HELP topics_topics Topics.
# TYPE topics_topics gauge
topics_topics 3
"""


OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /": Operation(
        "server",
        "getConsole",
        "The page for people; HTML without data.",
        {"text/html": TEXT},
        description="The console. It fetches what it shows from `/v0`, and asks for a key where that does.",
        gives="The page.",
        example=Example({"text/html": "<!doctype html>"}),
    ),
    "GET /v0/health": Operation(
        "server",
        "getHealth",
        _HEALTH_SUMMARY,
        json_of(Health),
        description=_HEALTH_TEXT,
        gives="It is alive.",
        example=Example(_HEALTH_EXAMPLE),
    ),
    "GET /healthz": Operation(
        "server",
        "getHealthz",
        _HEALTH_SUMMARY,
        json_of(Health),
        description=f"As `/v0/health`. {_HEALTH_TEXT}",
        gives="It is alive.",
        example=Example(_HEALTH_EXAMPLE),
    ),
    "GET /v0/ready": Operation(
        "server",
        "getReady",
        _READY_SUMMARY,
        json_of(Ready),
        refusals=(ErrorCode.NOT_READY, ErrorCode.SHUTTING_DOWN, ErrorCode.REPLICA_BEHIND),
        description=_READY_TEXT,
        gives="It serves.",
        example=Example(_READY_EXAMPLE),
    ),
    "GET /readyz": Operation(
        "server",
        "getReadyz",
        _READY_SUMMARY,
        json_of(Ready),
        refusals=(ErrorCode.NOT_READY, ErrorCode.SHUTTING_DOWN, ErrorCode.REPLICA_BEHIND),
        description=f"As `/v0/ready`. {_READY_TEXT}",
        gives="It serves.",
        example=Example(_READY_EXAMPLE),
    ),
    "GET /v0/metrics": Operation(
        "server",
        "getMetrics",
        "Metrics as Prometheus text, or as JSON where `Accept` asks for it.",
        {"text/plain": TEXT, JSON: {"$ref": "#/components/schemas/Metrics"}},
        description=(
            "Counters and gauges of the process, of its limits, and of the first "
            "topics. docs/monitoring.md says what each means. `Accept: application/json` gets JSON."
        ),
        gives="Every family of metrics.",
        example=Example(
            {
                "text/plain": _METRICS,
                JSON: {
                    "topics_topics": 3,
                    "performance": {"server_total_ms": 1.204, "throttle_wait_ms": 0.0},
                },
            }
        ),
    ),
    "GET /v0/limits": Operation(
        "server",
        "getLimits",
        "Every bound in force.",
        json_of(LimitsInForce),
        description=(
            "Each is a setting of the server, or a constant; 0 is no bound. A client that "
            "stays within them is not refused for size."
        ),
        gives="The bounds by name.",
        example=Example(
            {
                JSON: {
                    **asdict(Limits()),
                    "performance": {"server_total_ms": 0.093, "throttle_wait_ms": 0.0},
                }
            }
        ),
    ),
    "GET /v0/stats/history": Operation(
        "server",
        "getHistory",
        "The last hour in figures: what the console's charts are drawn of. A step without a row is one "
        "in which nothing was asked of the server.",
        json_of(History),
        parameters=(
            Parameter(
                "step_ms",
                "Of the rows.",
                {"type": "integer", "enum": [1000, 10000], "default": 10000},
            ),
            natural("after_ms", "Rows of later times only; at most 900 are in one answer.", 0),
        ),
        description=(
            "What the charts of the console are drawn of. A step without a row is "
            "one in which nothing was asked of the server and nothing was written. An answer has 900 rows of "
            "a table at most: continue with its last `at_ms` as `after_ms`."
        ),
        gives="The rows.",
        example=Example(
            {
                JSON: {
                    "step_ms": 10_000,
                    "now_ms": 1795254924012,
                    "series": {"at_ms": [1795254920000.0], "records_in_per_s": [12.5]},
                    "queues": [
                        {
                            "topic": "mails",
                            "at_ms": [1795254920000.0],
                            "ready": [2.0],
                            "in_flight": [0.0],
                            "delayed": [0.0],
                            "dead_lettered": [0.0],
                        }
                    ],
                    "performance": {"server_total_ms": 0.214, "throttle_wait_ms": 0.0},
                }
            }
        ),
    ),
    "GET /v0/openapi.json": Operation(
        "server",
        "getOpenapi",
        "This document.",
        json_of({"type": "object"}),
        description="OpenAPI 3.1, made of the tables that the server goes by.",
        gives="The document.",
        example=Example(
            {
                JSON: {
                    "openapi": "3.1.0",
                    "info": {"title": "topics", "version": VERSION},
                    "paths": {},
                }
            }
        ),
    ),
    "GET /v0/docs": Operation(
        "server",
        "getDocs",
        "This document, to read and to try.",
        {"text/html": TEXT},
        description="Swagger UI, served by this server alone.",
        gives="The page.",
        example=Example({"text/html": "<!doctype html>"}),
    ),
    "GET /v0/docs/:": Operation(
        "server",
        "getDocsFile",
        "A file of that page.",
        {"text/javascript": TEXT, "text/css": TEXT},
        refusals=(ErrorCode.NOT_FOUND,),
        description="Script and style sheet of `/v0/docs`.",
        gives="The file.",
        example=Example(
            {"text/css": ".swagger-ui{}", "text/javascript": "SwaggerUIBundle({})"},
            name="swagger-ui.css",
        ),
    ),
    "GET /v0/console/:": Operation(
        "server",
        "getConsoleFile",
        "A file of the page at `/`.",
        {"text/javascript": TEXT, "text/css": TEXT},
        refusals=(ErrorCode.NOT_FOUND,),
        description="Modules and style sheets of the console at `/`.",
        gives="The file.",
        example=Example({"text/css": ":root {}", "text/javascript": "export {};"}, name="main.js"),
    ),
}
"""By `Route.line`."""
