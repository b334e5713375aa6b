"""The topics, routers and schedules of a server as a document that `topics apply` takes unchanged."""

import json
from typing import TYPE_CHECKING, Any

from topics.cli.apply_fields import DEFAULTS, KINDS, is_same, normal
from topics.cli.apply_plan import shown, topic_config
from topics.cli.exits import UNUSABLE, Stop
from topics.cli.fields import FIELDS, spelled
from topics.cli.moments import utc_text

if TYPE_CHECKING:
    from topics.client import Client


def exported(client: "Client", prefix: str, *, has_units: bool) -> dict[str, Any]:
    """What the server has, as the document that declares it.

    Args:
        prefix: Only names that begin with it; it is part of the document, where it is not empty.
        has_units: Durations, sizes and times as people write them; else as numbers.
    """
    names = {
        "topics": [each.topic for each in client.topics(prefix=prefix)],
        "routers": [each.router for each in client.routers(prefix=prefix)],
        "schedules": [each.schedule for each in client.schedules(prefix=prefix)],
    }
    document: dict[str, Any] = {"prefix": prefix} if prefix else {}
    for kind in KINDS:
        found = {name: _fields(client, kind, name, has_units=has_units) for name in names[kind]}
        document[kind] = {name: fields for name, fields in found.items() if fields is not None}
    return document


def _fields(client: "Client", kind: str, name: str, *, has_units: bool) -> dict[str, Any] | None:
    """The fields that have no default; None where it was deleted meanwhile."""
    from topics.client import RouterNotFound, ScheduleNotFound, TopicNotFound

    try:
        found = topic_config(client, name) if kind == "topics" else shown(client, kind, name)
    except (TopicNotFound, RouterNotFound, ScheduleNotFound):
        return None
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        raise Stop(
            f"{kind}: {name} has a number that this program cannot write", UNUSABLE
        ) from None
    return _beside_defaults(kind, found, has_units=has_units)


def _beside_defaults(kind: str, found: dict[str, Any], *, has_units: bool) -> dict[str, Any]:
    defaults = DEFAULTS[kind]
    fields = {}
    for name, value in normal(kind, found).items():
        if is_same(value, defaults[name]) or (name == "tz" and value == "UTC"):
            continue
        if name == "config":
            value = _beside_defaults("topics", value, has_units=has_units)
        if name == "filter":
            value = _filter(value)
        fields[name] = _spelled(kind, name, value) if has_units else value
    return fields


def _filter(resolved: list[str]) -> Any:
    """A router's filter in its short form, where that says the same (§6.1)."""
    short = resolved[2]
    return short if normal("routers", {"filter": short})["filter"] == resolved else resolved


def _spelled(kind: str, name: str, value: Any) -> Any:
    if kind == "schedules" and name in ("at", "until"):
        return utc_text(value)
    is_field = kind == "topics" and FIELDS[name] is int
    if name == "every_ms" or (is_field and name.endswith(("_ms", "_bytes"))):
        text = spelled(name, value)
        return value if text.isdigit() else text
    return value
