"""Options of jobs in the body of an append: what is taken, and what is refused with its place (115, 130-132)."""

from typing import Any

import msgspec
import pytest

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.model.errors import Rejection
from topics.protocol.model.job_options import DELAY_MS_MAX, JobRequest
from topics.protocol.model.limits import Limits


def requests(*records: dict[str, Any]) -> Any:
    body = msgspec.json.encode({"records": [{"data": 0, **record} for record in records]})
    return parse_append("q", body, Limits(), return_seqs=True, header_key=None).jobs


def test_what_is_asked_is_kept_a_record_at_a_time() -> None:
    """A record that asks for nothing has none; where none asks, there is no list."""
    found = requests(
        {"delay_ms": 5, "priority": -128, "expires_ms": 7, "group": "g"},
        {},
        {"not_before": 9, "priority": 127},
        {"delay_ms": 0},
    )
    assert found == [
        JobRequest(5, 0, -128, 7, "g"),
        None,
        JobRequest(0, 9, 127),
        JobRequest(),
    ]
    assert requests({}, {"tag": "t"}) is None
    assert requests({"delay_ms": None, "unique": None}) is None
    assert requests({"priority": 3}) == [JobRequest(priority=3)]


def test_a_unique_key_as_text_and_as_an_object() -> None:
    """The same key; what a conflict does, and for how long it is held. (130)"""
    short, long, other = requests(
        {"unique": "k"},
        {"unique": {"key": "k", "on_conflict": "replace", "for_ms": 9}},
        {"unique": {"key": "l", "on_conflict": "keep"}},
    )
    assert short.unique.digest == long.unique.digest != other.unique.digest
    assert [(each.unique.replaces, each.unique.for_ms) for each in (short, long, other)] == [
        (False, 0),
        (True, 9),
        (False, 0),
    ]


@pytest.mark.parametrize(
    ("record", "place"),
    [
        ({"delay_ms": 1, "not_before": 1}, "delay_ms"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": DELAY_MS_MAX + 1}, "delay_ms"),
        ({"not_before": -1}, "not_before"),
        ({"not_before": 2**63 - 1}, "not_before"),
        ({"priority": 128}, "priority"),
        ({"priority": -129}, "priority"),
        ({"expires_ms": 0}, "expires_ms"),
        ({"expires_ms": DELAY_MS_MAX + 1}, "expires_ms"),
        ({"group": ""}, "group"),
        ({"group": "g" * 5000}, "group"),
        ({"unique": ""}, "unique"),
        ({"unique": "é" * 129}, "unique"),
        ({"unique": {"key": ""}}, "unique"),
        ({"unique": {"key": "k", "for_ms": DELAY_MS_MAX + 1}}, "unique.for_ms"),
        ({"unique": {"key": "k", "on_conflict": "drop"}}, "unique.on_conflict"),
        ({"unique": {"on_conflict": "keep"}}, "unique"),
        ({"unique": 7}, "unique"),
        ({"priority": 1.5}, "priority"),
    ],
)
def test_what_is_out_of_range_is_refused_with_its_place(record: dict[str, Any], place: str) -> None:
    """(132)"""
    with pytest.raises(Rejection) as refused:
        requests({}, record)
    assert refused.value.code.value == "invalid_request"
    # Of a value that is of no kind the decoder itself says the place, with `[...]` for the number.
    assert f"]{'.' + place}" in str(refused.value)
    assert "$.records[" in str(refused.value)
