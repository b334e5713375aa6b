"""Numbers that JSON cannot say: refused, with their place, and never sent as null."""

import dataclasses
import enum
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client import NewRecord
from topics.client.encoding import encode_record
from topics.testing import MemoryTopics

from .script import Script, appended, spelled

NAN, INF = math.nan, math.inf


@dataclasses.dataclass
class Reading:
    celsius: float
    note: str | None = None


class Level(enum.Enum):
    NONE = NAN


@dataclasses.dataclass
class Blob:
    text: bytes


@dataclasses.dataclass
class Graded:
    level: Level
    seen: frozenset[float] = frozenset()


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (NAN, r"nan, at data$"),
        ({"a": NAN}, r"nan, at data\.a$"),
        ({"a": None, "b": [1.5, (2, -INF)]}, r"-inf, at data\.b\[1\]\[1\]$"),
        (Reading(INF), r"inf, at data\.celsius$"),
        (Graded(Level.NONE), "nan"),
        (Graded(Level.NONE, seen=frozenset({NAN})), "nan"),
        ([2**70, NAN], r"at data\[1\]$"),
        (NewRecord(1, meta={"m": NAN}), r"nan, at meta\.m$"),
        (NewRecord(msgspec.Raw(b"null"), meta={"m": NAN}), r"nan, at meta\.m$"),
    ],
    ids=spelled,
)
def test_what_is_no_number_is_refused(face: Any, value: Any, place: str) -> None:
    """Alone, nested, in what msgspec makes of a type, and in meta; nothing is sent."""
    for send in (
        lambda c: c.append("jobs", 1, value),
        lambda c: c.append_many("jobs", [1, value]),
    ):
        with pytest.raises(ValueError, match=place):
            face(Script()).do(send)


def test_meta_of_all(face: Any) -> None:
    """The meta of every bare value is looked at too."""
    with pytest.raises(ValueError, match=r"at meta\.m$"):
        face(Script()).do(lambda c: c.append("jobs", 1, meta={"m": INF}))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [None, 1.5, "null", 2**70],
        # Eight bytes that look like the beginning of a NaN, within an integer.
        [None, 0x01CB7FF800000000],
        [None, Blob(b"\xcb\x7f\xf8" * 9)],
        Reading(1.5),
        msgspec.Raw(b'{"a":null}'),
    ],
    ids=spelled,
)
def test_what_is_a_number_is_sent(face: Any, value: Any) -> None:
    """A null that was one, and anything that only resembles a NaN, goes as it is."""
    script = Script(appended(1, 1))

    face(script).do(lambda c: c.append("jobs", value, keyed=False))

    assert script.requests[0].content == b'{"records":[{"data":%b}]}' % msgspec.json.encode(value)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.builds(Blob, st.binary()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(PLAIN)
def test_exactly_those_are_refused(value: Any) -> None:
    """It is refused if and only if one of its floats is not finite."""
    floats = [found for found in _leaves(value) if isinstance(found, float)]

    if all(map(math.isfinite, floats)):
        encode_record(value)
    else:
        with pytest.raises(ValueError, match="JSON has no form for"):
            encode_record(value)


def _leaves(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        return [leaf for one in inner for leaf in _leaves(one)]
    return [value]


def test_in_memory(memory_topics: MemoryTopics) -> None:
    """The engine in memory is no more lenient."""
    with pytest.raises(ValueError, match="at data"):
        memory_topics.client.append("jobs", {"a": NAN})

    assert list(memory_topics.client.topics()) == []
