"""How far a topic may be deleted: the least of what each condition allows."""

from itertools import product
from typing import Any

import pytest

from topics.export.handoff import NotSafe, bound

SAFE: dict[str, Any] = {
    "earliest_seq": 1,
    "exported_first": 1,
    "verified_to": 100,
    "aged_to": 100,
    "readers": {},
}


def test_the_least_condition_decides() -> None:
    """And is named; a bound never lies above any of them."""
    for verified, aged, one, two in product((0, 3, 50, 100), repeat=4):
        found = bound(
            **SAFE | {"verified_to": verified, "aged_to": aged, "readers": {"a": one, "b": two}}
        )
        assert found.before_seq - 1 == min(verified, aged, one, two)
        assert found.limits[found.limit] == found.before_seq - 1


def test_a_reader_that_is_not_known_forbids_it() -> None:
    """It may be one that has not begun."""
    with pytest.raises(NotSafe, match='reader "b" has published no position'):
        bound(**SAFE | {"readers": {"a": 5, "b": None}})


def test_records_that_were_never_exported_forbid_it() -> None:
    """Records below the export's beginning would go with the others."""
    with pytest.raises(NotSafe, match="begins with seq 7, and records from 5 on"):
        bound(**SAFE | {"earliest_seq": 5, "exported_first": 7})
    assert bound(**SAFE | {"earliest_seq": 7, "exported_first": 7}).before_seq == 101
