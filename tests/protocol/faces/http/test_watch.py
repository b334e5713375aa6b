"""The bodies of watch sessions. (§7.2)"""

import json

import pytest

from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import Begin, CreateWatch
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits

LIMITS = Limits()


def test_a_topic_without_options_may_be_null() -> None:
    """Which is as good as leaving them out. (§0.3, §7.2)"""
    body = b'{"topics":{"a":null,"b":{}}}'
    topics = parse_watch(body, LIMITS, wid="w", lenient=False).topics
    assert topics == {"a": Begin(), "b": Begin()}


@pytest.mark.parametrize("path", ["$.node", "$.topics.t.node"])
def test_a_reader_leaves_out_a_bounded_number_of_nodes(path: str) -> None:
    """64, each counted once: they are compared at every publication.  Longer ones than a node can be
    are not kept. (§7.2)"""
    inner = path.startswith("$.topics")

    def watch(nodes: object) -> CreateWatch:
        one = {"node": nodes}
        body = {"topics": {"t": one}} if inner else {"topics": {"t": {}}, **one}
        return parse_watch(json.dumps(body).encode(), Limits(), wid="w", lenient=False)

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
