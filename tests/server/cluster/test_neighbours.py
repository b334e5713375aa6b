"""Whom a request goes to, and names that lead to a node."""

import msgspec
import pytest

from topics.protocol.cluster.rule.trimming import Wait
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.neighbours import Neighbours, answer_of, tag_of
from topics.server.cluster.node.status import ClusterStatus, HistoryLoss, SnapshotStatus, TrimStatus

from .pair import FakeStanding, node_status


def neighbours() -> Neighbours:
    nodes = (node_status("n1", "http://a:1", "leader"), node_status("n2", "http://b:2", "follower"))
    return Neighbours(FakeStanding(node="n2", nodes=nodes), "n2")


@pytest.mark.parametrize(
    ("wid", "url"),
    [
        (f"wid_{tag_of('n1')}abc", "http://a:1"),
        (f"wid_{tag_of('n2')}abc", None),  # this node's
        (f"wid_{tag_of('n3')}abc", None),  # of a node that is gone
        (f"{tag_of('n1')}abc", None),
        ("wid_", None),
        ("", None),
    ],
)
def test_a_session_is_found_by_its_name(wid: str, url: str | None) -> None:
    assert neighbours().url_of_session(wid) == url


def test_without_a_leader_there_is_nowhere_to_go() -> None:
    with pytest.raises(Rejection, match="no node leads now"):
        neighbours().require_leader_url()


def test_every_field_of_the_status_is_answered() -> None:
    """What the host says is shown, whole."""
    status = ClusterStatus(
        cluster="topics", shard=0, node="n1", leader="n1", term=3, index=9, lag_units=1, lag_ms=2,
        log_start=4, log_end=5, in_flight=6, nodes=(node_status("n1", "http://a:1", "leader"),),
        loss=HistoryLoss(at_ms=7, index=8, what="unit 8", set_aside="/d/store.aside-1"), losses=1,
        snapshot=SnapshotStatus(
            taking=True, source="n2", copied_bytes=1, total_bytes=2, trouble="no", taken=3, taken_ms=4,
            served=5, set_aside="/d/store.aside-1",
        ),
        trim=TrimStatus(looked_ms=3, before=2, waits_for=Wait.NODE, node="n2", last_ms=1),
    )  # fmt: skip

    shown = msgspec.to_builtins(answer_of(status, "http://a:1"))

    status_of_a_node = msgspec.to_builtins(status)
    del status_of_a_node["waits_for"]  # `/v0/ready` says it
    del status_of_a_node["losses"]  # metrics say it
    [node] = status_of_a_node["nodes"]
    del node["kafka"]  # clients of Kafka are told it, and no others
    assert node["durable"] == -1
    node["durable"] = None  # it has nothing on its disk
    assert shown == status_of_a_node | {"enabled": True, "leader_url": "http://a:1"}


def test_a_node_that_waits_is_not_ready_and_says_for_what() -> None:
    """A balancer leaves it out. (§5)"""
    waiting = Neighbours(FakeStanding(waits_for="Kafka's brokers"), "n1")
    with pytest.raises(Rejection, match="this node waits for Kafka's brokers") as refused:
        waiting.require_ready()
    assert refused.value.code is ErrorCode.NOT_READY
    assert refused.value.detail == {"reason": "cluster"}
    neighbours().require_ready()


def test_a_node_that_takes_a_snapshot_says_how_far_it_is() -> None:
    """503, and figures that rise. (§6)"""
    taking = SnapshotStatus(taking=True, source="n2", copied_bytes=3_000_000, total_bytes=9_000_000)
    waiting = Neighbours(FakeStanding(waits_for=taking.what, snapshot=taking), "n1")

    with pytest.raises(Rejection, match="a snapshot of node n2: 3 of 9 MB") as refused:
        waiting.require_ready()

    assert refused.value.code is ErrorCode.NOT_READY
    assert refused.value.detail == {
        "reason": "snapshot",
        "source": "n2",
        "copied_bytes": 3_000_000,
        "total_bytes": 9_000_000,
    }


def test_a_loss_that_a_snapshot_has_mended_keeps_no_client_away() -> None:
    """It is still told, with the place of what was set aside. (§2)"""
    loss = HistoryLoss(at_ms=1, index=2, what="unit 2")
    standing = FakeStanding(loss=loss, snapshot=SnapshotStatus(taking=True))
    node = Neighbours(standing, "n1")
    with pytest.raises(Rejection) as refused:
        node.require_ready()
    assert refused.value.detail is not None
    assert refused.value.detail["reason"] == "history_lost"

    standing.loss = msgspec.structs.replace(loss, set_aside="/d/store.aside-1")
    standing.snapshot = SnapshotStatus(taken=1)

    node.require_ready()
    assert node.answer().loss is not None
