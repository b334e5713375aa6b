"""Bodies of reads (§3, §7.2)."""

import json

import pytest

from topics.protocol.faces.http import bodies
from topics.protocol.model.commands import Begin, CreateWatch
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
    command = bodies.parse_diff("t", json.dumps({field: given}).encode(), LIMITS)
    found = {
        "limit": command.limit, "wait_ms": command.wait_ms, "max_batch_bytes": command.budget_bytes,
    }  # fmt: skip
    assert found[field] == kept


def test_the_default_limit_is_not_above_the_greatest() -> None:
    """A server that allows seven gives seven. (§3)"""
    assert bodies.parse_diff("t", b"{}", Limits(max_limit=7)).limit == 7


def test_a_topic_without_options_may_be_null() -> None:
    """Which is as good as leaving them out. (§0.3, §7.2)"""
    body = b'{"topics":{"a":null,"b":{}}}'
    topics = bodies.parse_watch(body, LIMITS, wid="w", lenient=False).topics
    assert topics == {"a": Begin(), "b": Begin()}


@pytest.mark.parametrize("path", ["$.node", "$.topics.t.node"])
def test_a_reader_leaves_out_a_bounded_number_of_nodes(path: str) -> None:
    """64, each counted once: they are compared at every publication.  Longer ones than a node can be
    are not kept. (§7.2)"""
    inner = path.startswith("$.topics")

    def watch(nodes: object) -> CreateWatch:
        one = {"node": nodes}
        body = {"topics": {"t": one}} if inner else {"topics": {"t": {}}, **one}
        return bodies.parse_watch(json.dumps(body).encode(), Limits(), wid="w", lenient=False)

    nodes = [f"n{i}" for i in range(64)]
    made = watch([*nodes, "n0", "n1"])
    kept = made.topics["t"].nodes if inner else made.view.nodes
    assert kept == tuple(nodes)
    made = watch(["x" * 129, "x" * 128])
    kept = made.topics["t"].nodes if inner else made.view.nodes
    assert kept == ("x" * 128,)
    assert watch([*nodes * 20]).topics.keys() == {"t"}
    for few in (nodes, nodes * 20):  # wherever the one too many stands
        with pytest.raises(Rejection, match=f"{len(few) + 1} nodes exceed 64") as refused:
            watch([*few, "more"])
        assert path in refused.value.message


def test_a_diff_leaves_out_a_bounded_number_of_nodes() -> None:
    """As a watch. (§3)"""
    with pytest.raises(Rejection, match="exceed 64"):
        bodies.parse_diff("t", json.dumps({"node": [str(i) for i in range(65)]}).encode(), Limits())
