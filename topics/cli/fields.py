"""A topic's config on the command line: options of `create`, `KEY=VALUE` of `config`.

Owns how a value is spelled: durations and sizes may have a unit, a switch is on or off.  The fields
themselves are those of the client's `Config`; a field that is added there is an option here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from topics.cli.exits import UNUSABLE, Stop
from topics.cli.moments import duration_ms, duration_text

if TYPE_CHECKING:
    from topics.client import Config

F = TypeVar("F", bound=Callable[..., Any])

_UNIT_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

CLEARED: Final = (
    *("order", "fair", "rate", "max_in_flight", "group_max_in_flight", "backoff", "result_ttl_ms"),
    *("keep_done", "max_message_bytes", "message_timestamp_type", "compact"),
)
"""Fields that a config may lack, and is without again where nothing is given for them."""

FIELDS: Final[dict[str, type | tuple[str, ...]]] = {
    "type": ("log", "queue"),
    "ttl_ms": int,
    "cap_records": int,
    "cap_bytes": int,
    "discard": ("old", "reject"),
    "durable": bool,
    "durability": ("ephemeral", "memory", "disk", "fsync"),
    "priority": int,
    "auto_priority": bool,
    "auto_create": bool,
    "idempotency_window_ms": int,
    "dedupe_node": bool,
    "lease_ms": int,
    "claim_jitter_ms": int,
    "max_deliveries": int,
    "dead_letter": str,
    "leases_durable": bool,
    "max_message_bytes": int,
    "message_timestamp_type": ("CreateTime", "LogAppendTime"),
    "partitions": int,
    "compact": bool,
    "kafka_configs": Mapping[str, str],
    "result_ttl_ms": int,
    "keep_done": int,
    "order": ("group",),
    "fair": bool,
    "rate": Mapping[str, int],
    "max_in_flight": int,
    "group_max_in_flight": int,
    "backoff": Mapping[str, float],
}
"""The fields of the client's `Config` and their types, or the words that each may be.  Written here
once more, because importing the client takes longer than most commands."""

HELP: Final = {
    "type": "A log, or a queue whose records are jobs.",
    "ttl_ms": "Records expire after it; 0: never.",
    "cap_records": "The most live records; 0: no bound.",
    "cap_bytes": "The most live bytes; 0: no bound.",
    "discard": "At a cap: evict the oldest records, or refuse new ones.",
    "durable": "Before there were classes: on is fsync.",
    "durability": "What an acknowledged record survives.",
    "priority": "Under load the lower ones wait first.",
    "auto_priority": "Raise the priority of what was used lately.",
    "auto_create": "Whether an append or a router may have made it.",
    "idempotency_window_ms": "How long the keys of appends are remembered.",
    "dedupe_node": "Whether a reader that names its node does not get what it wrote.",
    "lease_ms": "Queue: how long a job is leased where the claim does not say.",
    "claim_jitter_ms": "Queue: workers that wait are woken spread over it.",
    "max_deliveries": "Queue: a job delivered so often is a dead letter; 0: never.",
    "dead_letter": "Queue: where dead letters go.",
    "leases_durable": "Queue: leases survive a power loss.",
    "max_message_bytes": "The largest record batch of a client of Kafka's.",
    "message_timestamp_type": "Whose time records of Kafka's clients have.",
    "partitions": "How many logs the topic is; the number only grows.",
    "compact": "Of records with one key the newest stays.",
    "kafka_configs": "Configs of Kafka's clients, as NAME:VALUE,NAME:VALUE.",
    "result_ttl_ms": "Queue: how long what became of a job is kept; an hour where it is not given.",
    "keep_done": "Queue: of how many jobs that ended it is kept; of 1,000 where it is not given.",
    "order": "Queue: group: jobs of a group are done one after another.",
    "fair": "Queue: claims take groups in turn.",
    "rate": "Queue: how many jobs are started in a time, as MAX/DURATION.",
    "max_in_flight": "Queue: how many jobs are leased at once; 0: no limit.",
    "group_max_in_flight": "Queue: the same of one group.",
    "backoff": "Queue: how long a job rests that was not done, as base_ms:1s,factor:2,max_ms:1h,jitter:0.2.",
}
"""What the help says of each field."""


def config_options(command: F) -> F:
    """Give a command an option for each field; each is None where it was not given."""
    for name, kind in reversed(FIELDS.items()):
        option = "--" + name.replace("_", "-")
        if kind is bool:
            option = f"{option}/--no-{option[2:]}"
            command = click.option(option, name, default=None, help=HELP[name])(command)
            continue
        command = click.option(
            option, name, metavar=_metavar(name, kind), callback=_read_option, help=HELP[name]
        )(command)
    return command


def _metavar(name: str, kind: Any) -> str:
    if isinstance(kind, tuple):
        return "|".join(kind)
    if name.endswith("_ms"):
        return "DURATION"
    if name.endswith("_bytes"):
        return "SIZE"
    if name == "rate":
        return "MAX/DURATION"
    if name in ("kafka_configs", "backoff"):
        return "NAME:VALUE,..."
    return "N" if kind is int else "TOPIC"


def _read_option(_context: click.Context, option: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    assert option.name is not None
    try:
        return value_of(option.name, text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def given(options: dict[str, Any]) -> "Config":
    """The options that were given, as a config."""
    return cast("Config", {name: value for name, value in options.items() if value is not None})


def changes_of(words: Sequence[str]) -> "Config":
    """`KEY=VALUE ...` as changes of a config; `KEY=` clears a field that may be empty.

    Raises:
        Stop: A key that is no field, or a value that is none of its values.
    """
    found = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise Stop(f"{word!r} is not KEY=VALUE", UNUSABLE)
        if name not in FIELDS:
            from difflib import get_close_matches

            near = get_close_matches(name, FIELDS, 1, 0.6)
            hint = f"; is it {near[0]}?" if near else f"; fields are {', '.join(FIELDS)}"
            raise Stop(f"{name!r} is no field of a topic's config{hint}", UNUSABLE)
        try:
            found[name] = value_of(name, text)
        except ValueError as error:
            raise Stop(str(error), UNUSABLE) from None
    return cast("Config", found)


def value_of(name: str, text: str) -> Any:
    """A field's value.

    Raises:
        ValueError: It is none; the message says what would be.
    """
    kind = FIELDS[name]
    if not text and name in (*CLEARED, "priority", "dead_letter"):
        return None
    if isinstance(kind, tuple):
        if text not in kind:
            raise ValueError(f"{name} is one of {', '.join(kind)}, not {text!r}")
        return text
    if kind is bool:
        word = text.lower()
        if word not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            raise ValueError(f"{name} is on or off, not {text!r}")
        return word in ("1", "true", "yes", "on")
    if kind is int:
        return _number(name, text)
    if name == "rate":
        return _rate(text)
    if name == "backoff":
        return {key: _backoff_value(key, value) for key, value in _texts(name, text).items()}
    return _texts(name, text) if name == "kafka_configs" else text


def _rate(text: str) -> dict[str, int]:
    """`100/1s`: so many in so long."""
    most, slash, span = text.partition("/")
    if not slash or not most.strip().isdecimal():
        raise ValueError(f"rate is MAX/DURATION such as 100/1s, not {text!r}")
    return {"max": int(most), "per_ms": duration_ms(span.strip())}


def _backoff_value(key: str, text: str) -> float:
    if key in ("base_ms", "max_ms"):
        return int(text) if text.isdecimal() else duration_ms(text)
    if key not in ("factor", "jitter"):
        raise ValueError(f"backoff has base_ms, factor, max_ms and jitter, and no {key!r}")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{key} of backoff is a number, not {text!r}") from None


def _texts(name: str, text: str) -> dict[str, str]:
    """Texts by names; none at all is an empty text."""
    found = {}
    for word in filter(None, text.split(",")):
        key, colon, value = word.partition(":")
        if not colon or not key.strip():
            raise ValueError(f"{name} is NAME:VALUE,NAME:VALUE, not {text!r}")
        found[key.strip()] = value.strip()
    return found


def spelled(name: str, value: Any) -> str:
    """A field's value as `value_of` reads it: with a unit where it has one, and exact.

    Args:
        value: As JSON has it.
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return ""
    if name == "kafka_configs":
        return ",".join(f"{key}:{text}" for key, text in value.items())
    if name == "rate":
        return f"{value['max']}/{duration_text(value['per_ms'])}"
    if name == "backoff":
        spans = [f"{key}:{duration_text(value[key])}" for key in ("base_ms", "max_ms")]
        return ",".join([*spans, f"factor:{value['factor']!r}", f"jitter:{value['jitter']!r}"])
    if name.endswith("_ms"):
        return duration_text(value)
    if name.endswith("_bytes"):
        return size_text(value)
    return str(value)


def size_text(size: int) -> str:
    """A size in the largest unit that divides it: `10GiB`, `1500`."""
    for unit, unit_bytes in sorted(_UNIT_BYTES.items(), key=lambda row: -row[1]):
        if unit and size and size % unit_bytes == 0:
            return f"{size // unit_bytes}{unit.upper()}iB"
    return str(size)


def _number(name: str, text: str) -> int:
    if name.endswith("_ms"):
        if text.isascii() and text.isdigit():
            return int(text)
        try:
            return duration_ms(text)
        except ValueError:
            what = f"{name} is milliseconds, or like 90s, 1h30m or 2d, not {text!r}"
            raise ValueError(what) from None
    if name.endswith("_bytes"):
        found = re.fullmatch(r"(\d{1,18})\s*([kmgt]?)(i?b)?", text.lower(), re.ASCII)
        if found is None:
            raise ValueError(f"{name} is bytes, or like 512MiB or 10GiB, not {text!r}")
        return int(found[1]) * _UNIT_BYTES[found[2]]
    if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        raise ValueError(f"{name} is a whole number, not {text!r}")
    return int(text)
