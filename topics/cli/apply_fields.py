"""What a file declares: each topic, router and schedule, with its fields checked by name and type, and
in the one form in which it is compared with what the server has.

Owns the fields of each kind and their defaults.  Of bounds it knows those that the server does not
refuse; the others are the server's to know.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from topics.cli.apply_files import Document, Node
from topics.cli.exits import UNUSABLE, Stop
from topics.cli.fields import CLEARED, FIELDS, spelled, value_of
from topics.cli.moments import duration_ms, moment_ms, utc_text
from topics.cli.printing import say

KINDS: Final = ("topics", "routers", "schedules")
"""The sections of a file, in the order in which they are applied."""
ONE: Final = {"topics": "topic", "routers": "router", "schedules": "schedule"}

TOPIC_DEFAULTS: Final[dict[str, Any]] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
    "max_message_bytes": 1_048_588,
    "message_timestamp_type": "CreateTime",
    "partitions": 1,
    "compact": False,
    "kafka_configs": {},
    "result_ttl_ms": 3_600_000,
    "keep_done": 1000,
    "order": None,
    "fair": False,
    "rate": None,
    "max_in_flight": 0,
    "group_max_in_flight": 0,
    "backoff": None,
}
"""What a topic has where nothing is said, fields that a config may lack among them (§0.10)."""

ROUTER_DEFAULTS: Final[dict[str, Any]] = {
    "source": None,
    "dest": None,
    "filter": None,
    "preserve_node": True,
    "preserve_tag": True,
    "guarantee": "at_least_once",
    "allow_cycle": False,
}
"""(§6.1)"""

SCHEDULE_DEFAULTS: Final[dict[str, Any]] = {
    "topic": None,
    "record": None,
    "cron": None,
    "every_ms": None,
    "at": None,
    "tz": None,
    "missed": "one",
    "until": None,
    "paused": False,
    "config": None,
}
"""(§14.1)"""

DEFAULTS: Final = {
    "topics": TOPIC_DEFAULTS,
    "routers": ROUTER_DEFAULTS,
    "schedules": SCHEDULE_DEFAULTS,
}
NAMES: Final = "1 to 255 of A-Z a-z 0-9 . _ : -, the first a letter or a digit"
"""(§1); those of routers have > too."""
RECORD_FIELDS: Final = (
    *("data", "tag", "node", "meta", "partition", "delay_ms", "not_before", "priority", "group"),
    *("unique", "expires_ms", "form", "key", "time", "headers"),
)
DAY_MS: Final = 86_400_000
_BACKOFF: Final = {"factor": 2.0, "max_ms": DAY_MS, "jitter": 0.0}
BOUNDS: Final = {
    "priority": (-1000, 1000),
    "lease_ms": (100, DAY_MS),
    "claim_jitter_ms": (0, 5000),
    "max_message_bytes": (1, 2**31 - 1),
}
"""Least and most of numbers that the server would move into its bounds in silence (§0.10): a file that says
more would differ from the server for ever.  Other numbers are at least 0, and refused by the server."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A topic, router or schedule of a file.

    Attributes:
        place: File and line, for messages.
        body: What a `PUT` of it sends: the fields that the file names.
    """

    kind: str
    name: str
    place: str
    body: dict[str, Any]

    @property
    def title(self) -> str:
        return f"{ONE[self.kind]} {self.name}"

    @property
    def normal(self) -> dict[str, Any]:
        """All fields, in the form that `normal` gives those of the server."""
        return normal(self.kind, self.body)


@dataclass(frozen=True, slots=True)
class Scope:
    """Names of a kind of which a document says that it declares them all: those with its prefix."""

    kind: str
    prefix: str

    def holds(self, kind: str, name: str) -> bool:
        return kind == self.kind and name.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class Declarations:
    """What all files declare together, and of which names they declare all."""

    items: list[Declared]
    scopes: list[Scope]


# ---------------------------------------------------------------------- reading


def read_declarations(documents: list[Document]) -> Declarations:
    """What documents declare.

    Raises:
        Stop: They have faults; each was printed on standard error, with its file and line.
    """
    reader = _Reader()
    for document in documents:
        reader.read(document)
    for fault in reader.faults:
        say(f"topics: {fault}", err=True)
    if reader.faults:
        count = len(reader.faults)
        what = "1 fault" if count == 1 else f"{count} faults"
        raise Stop(f"{what}; nothing was changed", UNUSABLE)
    return Declarations(reader.items, reader.scopes)


class _Reader:
    """Declarations and faults of documents, one after another."""

    def __init__(self) -> None:
        self.items: list[Declared] = []
        self.scopes: list[Scope] = []
        self.faults: list[str] = []
        self._places: dict[tuple[str, str], str] = {}

    def read(self, document: Document) -> None:
        file, root = document.file, document.root
        if not isinstance(root.value, dict):
            self._fault(file, root, "", f"a document is a mapping with {_any_of(KINDS)}")
            return
        prefix_node = root.value.get("prefix", Node(""))
        prefix = prefix_node.value
        if not isinstance(prefix, str):
            self._fault(file, prefix_node, "prefix", f"is a text, not {_shown(prefix)}")
            prefix = ""
        for section, node in root.value.items():
            if section in KINDS:
                self.scopes.append(Scope(section, prefix))
                self._section(file, section, node, prefix)
            elif section != "prefix":
                self._fault(file, node, "", _no_section(section))

    def _section(self, file: str, kind: str, section: Node, prefix: str) -> None:
        if section.value is None:
            return
        if not isinstance(section.value, dict):
            self._fault(file, section, kind, f"is a mapping of names, not {_shown(section.value)}")
            return
        for name, node in section.value.items():
            place = _place(file, node)
            first = self._places.setdefault((kind, name), place)
            if first is not place:
                self._fault(file, node, f"{kind}.{name}", f"is declared at {first} already")
                continue
            if not _is_name(kind, name):
                self._fault(file, node, kind, f"{name!r} is no name of a {ONE[kind]}: {NAMES}")
            if not name.startswith(prefix):
                self._fault(file, node, f"{kind}.{name}", f"does not begin with {prefix!r}")
            self.items.append(Declared(kind, name, place, self._body(file, kind, name, node)))

    def _body(self, file: str, kind: str, name: str, node: Node) -> dict[str, Any]:
        path = f"{kind}.{name}"
        if node.value is None and kind == "topics":
            return {}  # a topic with the defaults
        if not isinstance(node.value, dict):
            self._fault(file, node, path, f"is a mapping of fields, not {_shown(node.value)}")
            return {}
        body = self._fields(file, path, node, _readers(kind))
        for missing in _missing(kind, node.value):
            self._fault(file, node, path, missing)
        return body

    def _fields(
        self, file: str, path: str, node: Node, readers: dict[str, Callable[[Any], Any]]
    ) -> dict[str, Any]:
        body = {}
        for field, each in node.value.items():
            if field not in readers:
                self._fault(file, each, path, _no_field(field, tuple(readers)))
                continue
            try:
                body[field] = readers[field](each.plain)
            except ValueError as error:
                self._fault(file, each, path, str(error))
        return body

    def _fault(self, file: str, node: Node, path: str, what: str) -> None:
        self.faults.append(f"{_place(file, node)}: {path + ': ' if path else ''}{what}")


def _is_name(kind: str, name: str) -> bool:
    from topics.client.names import is_router, is_schedule, is_topic

    return {"topics": is_topic, "routers": is_router, "schedules": is_schedule}[kind](name)


def _place(file: str, node: Node) -> str:
    return file if node.line is None else f"{file}:{node.line}"


def _any_of(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _no_section(section: str) -> str:
    if section == "queues":
        return "'queues' is no section: a queue is one of the topics, with `type: queue`"
    return _no_field(section, (*KINDS, "prefix"))


def _no_field(field: str, fields: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(field, fields, 1, 0.6)
    hint = f"is it {near[0]}?" if near else f"there are {', '.join(fields)}"
    return f"there is no field {field!r}; {hint}"


def _missing(kind: str, fields: dict[str, Any]) -> Iterator[str]:
    needed = {"routers": ("source", "dest"), "schedules": ("topic", "record")}.get(kind, ())
    yield from (f"{field} is missing" for field in needed if field not in fields)
    if kind == "schedules":
        times = [
            f for f in ("cron", "every_ms", "at") if fields.get(f, Node(None)).value is not None
        ]
        if len(times) != 1:
            yield "one of cron, every_ms and at is needed, and no more"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


# ---------------------------------------------------------------------- the fields of each kind


def _readers(kind: str) -> dict[str, Callable[[Any], Any]]:
    """What reads each field of a kind; it raises ValueError with the field's name."""
    if kind == "topics":
        return {name: partial(_topic_field, name) for name in FIELDS}
    return _ROUTER if kind == "routers" else _SCHEDULE


def _topic_field(name: str, value: Any) -> Any:
    found = _topic_value(name, value)
    if isinstance(found, int) and not isinstance(found, bool):
        low, high = BOUNDS.get(name, (0, None))
        if found < low or (high is not None and found > high):
            most = f"at least {low:,}" if high is None else f"{low:,} to {high:,}"
            raise ValueError(f"{name} is {most}, not {found:,}")
    return found


def _topic_value(name: str, value: Any) -> Any:
    kind = FIELDS[name]
    if isinstance(value, str):
        return _topic(name)(value) if name == "dead_letter" else value_of(name, value)
    if value is None:
        if name in (*CLEARED, "priority", "dead_letter"):
            return None
        raise ValueError(f"{name} has no value; leave it out for the default")
    if isinstance(value, dict) and name in ("rate", "backoff", "kafka_configs"):
        return _mapping_field(name, value)
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if (kind is bool and isinstance(value, bool)) or (kind is int and is_int):
        return value
    if kind is str or isinstance(kind, tuple):
        raise ValueError(f"{name} is a text, not {_shown(value)}")
    return value_of(name, _shown(value))  # refuses it, and says what would be one


def _mapping_field(name: str, value: dict[str, Any]) -> Any:
    if name == "kafka_configs":
        return {key: _config_text(key, each) for key, each in value.items()}
    fields = ("max", "per_ms") if name == "rate" else ("base_ms", *_BACKOFF)
    needed = fields if name == "rate" else fields[:1]
    for key in value:
        if key not in fields:
            raise ValueError(f"{name}: {_no_field(key, fields)}")
    for key in needed:
        if key not in value:
            raise ValueError(f"{name}: {key} is missing")
    found = {key: _number_of(f"{name}.{key}", each) for key, each in value.items()}
    if name == "backoff" and not found["base_ms"] <= found.get("max_ms", DAY_MS) <= DAY_MS:
        raise ValueError(f"backoff: base_ms is at most max_ms, and that at most {DAY_MS:,}")
    return found


def _config_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"kafka_configs.{name} is a text, not {_shown(value)}")


def _number_of(name: str, value: Any) -> float:
    if isinstance(value, str) and name.endswith("_ms"):
        return _span(name, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ValueError(f"{name} is a number, not {_shown(value)}")


def _span(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() else duration_ms(value)
    raise ValueError(f"{name} is milliseconds, or like 90s or 1h30m, not {_shown(value)}")


_ZONED: Final = re.compile(r"^\d.*-.*T.*(Z|[+-]\d\d(:?\d\d)?)$", re.IGNORECASE)
"""Without a zone, a file would say something else on each machine."""


def _moment(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _ZONED.search(value):
        return moment_ms(value)
    what = "milliseconds since the epoch, or a time with its zone like 2027-03-01T09:00Z"
    raise ValueError(f"{name} is {what}, not {_shown(value)}")


def _typed(name: str, kind: type, what: str, *, is_optional: bool = False) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, kind) or (is_optional and value is None):
            return value
        raise ValueError(f"{name} is {what}, not {_shown(value)}")

    return read


def _topic(name: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, str) and _is_name("topics", value):
            return value
        raise ValueError(f"{name} is a topic, not {_shown(value)}: {NAMES}")

    return read


def _worded(name: str, *words: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value not in words:
            raise ValueError(f"{name} is one of {', '.join(words)}, not {_shown(value)}")
        return value

    return read


def _filter(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if (
        isinstance(value, list)
        and value[:2] in (["tag", "Eq"], ["tag", "Glob"])
        and [isinstance(each, str) for each in value[2:]] == [True]
    ):
        return value
    what = 'a text such as "eu.*", or ["tag", "Eq", "eu.de"], or ["tag", "Glob", "eu.*"]'
    raise ValueError(f"filter is {what}, not {_shown(value)}")


def _record(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"record is a mapping with data, not {_shown(value)}")
    for field in value:
        if field not in RECORD_FIELDS:
            raise ValueError(f"record: {_no_field(field, RECORD_FIELDS)}")
    if "data" not in value:
        raise ValueError("record: data is missing")
    return value


def _config(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"config is a mapping of fields, not {_shown(value)}")
    for field in value:
        if field not in FIELDS:
            raise ValueError(f"config: {_no_field(field, tuple(FIELDS))}")
    return {field: _topic_field(field, each) for field, each in value.items()}


def _optional(read: Callable[[str, Any], Any], name: str) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(name, value)


_ROUTER: Final = {
    "source": _topic("source"),
    "dest": _topic("dest"),
    "filter": _filter,
    "preserve_node": _typed("preserve_node", bool, "true or false"),
    "preserve_tag": _typed("preserve_tag", bool, "true or false"),
    "guarantee": _worded("guarantee", "at_least_once", "exactly_once"),
    "allow_cycle": _typed("allow_cycle", bool, "true or false"),
    "create_dest": _typed("create_dest", bool, "true or false"),
}
_SCHEDULE: Final = {
    "topic": _topic("topic"),
    "record": _record,
    "cron": _typed("cron", str, "a text such as 0 6 * * *", is_optional=True),
    "every_ms": _optional(_span, "every_ms"),
    "at": _optional(_moment, "at"),
    "tz": _typed("tz", str, "a text such as Europe/Berlin", is_optional=True),
    "missed": _worded("missed", "none", "one", "all"),
    "until": _optional(_moment, "until"),
    "paused": _typed("paused", bool, "true or false"),
    "config": _config,
}


# ---------------------------------------------------------------------- what is compared


def normal(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a `PUT`, or of an answer, with every default, and one spelling for each meaning.

    A field that is not of the kind, such as a count in an answer, is left out.
    """
    if kind == "topics":
        return _normal_topic(fields)
    made = {
        name: default if fields.get(name) is None else fields[name]
        for name, default in DEFAULTS[kind].items()
    }
    if kind == "routers":
        made["filter"] = _normal_filter(made["filter"])
        return made
    made["tz"] = (made["tz"] or "UTC") if made["cron"] is not None else None
    made["record"] = _normal_record(made["record"])
    if made["config"] is not None:
        made["config"] = _normal_topic(made["config"])
    return made


def _normal_topic(fields: dict[str, Any]) -> dict[str, Any]:
    made = {
        name: default if fields.get(name) is None else fields[name]
        for name, default in TOPIC_DEFAULTS.items()
    }
    if fields.get("durability") is None and fields.get("durable"):
        made["durability"] = "fsync"
    if made["backoff"] is not None:
        made["backoff"] = {**_BACKOFF, **made["backoff"]}
    return made


def _normal_filter(filter: Any) -> Any:
    if isinstance(filter, str):
        return ["tag", "Glob" if filter.endswith("*") else "Eq", filter]
    return None if filter is None else list(filter)


def _normal_record(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what says nothing; `data` may be null, and stays.  Headers are `meta` where it has no other."""
    made = {name: value for name, value in record.items() if name == "data" or value is not None}
    if isinstance(made.get("unique"), str):
        made["unique"] = {"key": made["unique"]}
    if "meta" not in made and "headers" in made:
        from topics.protocol.faces.http.marked import meta_of

        with suppress(ValueError, LookupError):  # the server says what is wrong
            if meta := meta_of(json.dumps(made["headers"]).encode()):
                made["meta"] = json.loads(meta)
    return made


def is_same(left: Any, right: Any) -> bool:
    """Whether two values are the same JSON: 1 is not true, and the order of names does not count."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    return bool(left == right)


def field_text(name: str, value: Any) -> str:
    """A field's value for a person: a text is bare, a duration has its unit, and the rest is JSON."""
    if name in FIELDS and name not in ("kafka_configs", "rate", "backoff"):
        return spelled(name, value) or "none"
    if name == "every_ms" and value is not None:
        return spelled(name, value)
    if name in ("at", "until") and value is not None:
        return str(utc_text(value))
    if name == "config" and value is not None:
        value = {key: each for key, each in value.items() if not is_same(each, TOPIC_DEFAULTS[key])}
    if isinstance(value, str):
        return value
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
