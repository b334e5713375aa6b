"""A topic's config on the command line: the client's fields, with units and words that people use."""

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import pytest

from topics.cli import all_commands
from topics.cli.exits import UNUSABLE, Stop
from topics.cli.fields import FIELDS, HELP, changes_of, spelled, value_of
from topics.client.options import Config


def bare(kind: Any) -> Any:
    if get_origin(kind) in (UnionType, Union):
        # A field that is a class may be given as a mapping, too, which stands behind it.
        *_, kind = (each for each in get_args(kind) if each is not NoneType)
    return get_args(kind) if get_origin(kind) is Literal else kind


def test_the_fields_are_those_of_the_client() -> None:
    """And each is an option of `create` with a help."""
    assert {name: bare(kind) for name, kind in get_type_hints(Config).items()} == FIELDS
    assert set(HELP) == set(FIELDS)
    made = {p.name for p in all_commands()["create"].params if isinstance(p, click.Option)}
    assert set(FIELDS) <= made


@pytest.mark.parametrize(
    ("word", "field", "value"),
    [
        ("ttl_ms=1500", "ttl_ms", 1500),
        ("ttl-ms=1h30m", "ttl_ms", 5_400_000),
        ("ttl_ms=90d", "ttl_ms", 7_776_000_000),
        ("cap_bytes=10GiB", "cap_bytes", 10 << 30),
        (
            "kafka_configs=segment.ms:9,flush.ms: 5",
            "kafka_configs",
            {"segment.ms": "9", "flush.ms": "5"},
        ),
        ("kafka_configs=", "kafka_configs", {}),
        ("cap_bytes=512k", "cap_bytes", 512 << 10),
        ("cap_bytes=7", "cap_bytes", 7),
        ("cap_records=0", "cap_records", 0),
        ("durability=fsync", "durability", "fsync"),
        ("auto_create=off", "auto_create", False),
        ("leases_durable=YES", "leases_durable", True),
        ("dead_letter=jobs-dead", "dead_letter", "jobs-dead"),
        ("dead_letter=", "dead_letter", None),
        ("priority=", "priority", None),
        ("priority=-3", "priority", -3),
        ("order=group", "order", "group"),
        ("order=", "order", None),
        ("fair=on", "fair", True),
        ("rate=100/1s", "rate", {"max": 100, "per_ms": 1000}),
        ("rate=", "rate", None),
        ("max_in_flight=7", "max_in_flight", 7),
        ("group-max-in-flight=2", "group_max_in_flight", 2),
        (
            "backoff=base_ms:1s,factor:3,max_ms:250,jitter:0.5",
            "backoff",
            {"base_ms": 1000, "factor": 3.0, "max_ms": 250, "jitter": 0.5},
        ),
    ],
)
def test_a_change(word: str, field: str, value: object) -> None:
    """Dashes count as underscores; nothing clears a field that may be empty."""
    assert changes_of([word]) == {field: value}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("ttl_ms", "'ttl_ms' is not KEY=VALUE"),
        ("ttl=5", "is it ttl_ms?"),
        ("zzzzzz=5", "fields are type, ttl_ms"),
        ("ttl_ms=5 minutes", "milliseconds, or like 90s, 1h30m or 2d, not '5 minutes'"),
        ("ttl_ms=", "milliseconds"),
        ("cap_bytes=1.5g", "bytes, or like 512MiB or 10GiB"),
        ("cap_records=many", "a whole number"),
        ("durability=disc", "one of ephemeral, memory, disk, fsync, not 'disc'"),
        ("durable=maybe", "on or off"),
        ("kafka_configs=segment.ms", "NAME:VALUE,NAME:VALUE, not 'segment.ms'"),
    ],
)
def test_what_is_no_change_is_refused_by_name(word: str, told: str) -> None:
    """With what would be one; a misspelt field with the one that was meant."""
    with pytest.raises(Stop) as refused:
        changes_of([word])

    assert told in refused.value.message
    assert refused.value.code == UNUSABLE


def test_later_changes_win() -> None:
    """As options do."""
    assert changes_of(["cap_records=1", "cap_records=2"]) == {"cap_records": 2}


def test_a_number_of_a_size_is_bytes() -> None:
    """With and without a unit."""
    assert value_of("cap_bytes", "1 kib") == 1024


BACKOFF_0 = "base_ms:0,max_ms:0,factor:2.0,jitter:0.0"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("ttl_ms", 7_776_000_000, "90d"),
        ("ttl_ms", 5_400_000, "1h30m"),
        ("ttl_ms", 1500, "1s500ms"),
        ("ttl_ms", 0, "0"),
        ("cap_bytes", 10 << 30, "10GiB"),
        ("cap_bytes", 1536, "1536"),
        ("cap_bytes", 0, "0"),
        ("cap_records", 1024, "1024"),
        ("priority", None, ""),
        ("leases_durable", True, "on"),
        ("durability", "disk", "disk"),
        ("rate", {"max": 100, "per_ms": 1000}, "100/1s"),
        (
            "backoff",
            {"base_ms": 1000, "max_ms": 3_600_000, "factor": 1234567.5, "jitter": 0.25},
            "base_ms:1s,max_ms:1h,factor:1234567.5,jitter:0.25",
        ),
        ("backoff", {"base_ms": 0, "max_ms": 0, "factor": 2.0, "jitter": 0.0}, BACKOFF_0),
    ],
)
def test_a_value_is_spelled_as_it_is_typed(field: str, value: object, text: str) -> None:
    """So what `config` prints is what `config` takes."""
    assert spelled(field, value) == text
    assert value_of(field, text) == value
