"""Bodies of reads (§3, §7.2)."""

import json

import pytest

from topics.protocol.faces.http.records import parse_diff
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits

LIMITS = Limits()

CLAMPS: list[tuple[str, int, int]] = [
    ("limit", 0, 256), ("limit", 1, 1), ("limit", 1000, 1000), ("limit", 1001, 1000),
    ("wait_ms", 30_000, 30_000), ("wait_ms", 30_001, 30_000), ("wait_ms", 10**30, 30_000),
    ("max_batch_bytes", 0, 1 << 20), ("max_batch_bytes", 1, 1),
    ("max_batch_bytes", 8 << 20, 8 << 20), ("max_batch_bytes", (8 << 20) + 1, 8 << 20),
]  # fmt: skip


@pytest.mark.parametrize(("field", "given", "kept"), CLAMPS)
def test_bounds_of_a_read_are_clamped(field: str, given: int, kept: int) -> None:
    """Over the maximum is the maximum; zero is the default. (§3)"""
    command = parse_diff("t", json.dumps({field: given}).encode(), LIMITS)
    found = {
        "limit": command.limit, "wait_ms": command.wait_ms, "max_batch_bytes": command.budget_bytes,
    }  # fmt: skip
    assert found[field] == kept


def test_the_default_limit_is_not_above_the_greatest() -> None:
    """A server that allows seven gives seven. (§3)"""
    assert parse_diff("t", b"{}", Limits(max_limit=7)).limit == 7


def test_a_diff_leaves_out_a_bounded_number_of_nodes() -> None:
    """As a watch. (§3)"""
    with pytest.raises(Rejection, match="exceed 64"):
        parse_diff("t", json.dumps({"node": [str(i) for i in range(65)]}).encode(), Limits())
