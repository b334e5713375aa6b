"""Metrics of a node in a cluster."""

from topics.protocol.cluster.rule.trimming import Wait
from topics.server.cluster.figures import HELP
from topics.server.cluster.node.status import TrimStatus

from .pair import a_pair, run


def test_metrics_of_a_follower() -> None:
    """Whether it leads, how far it is behind, what it forwarded. (§8.3)"""

    async def story() -> None:
        async with a_pair() as pair:
            from topics.server.cluster.figures import families

            follower = pair.follower
            follower.standing.index, follower.standing.lag_ms = 7, 1500
            await follower.append("t", 1)
            found = {f.name: {tuple(s.labels.values()): s.value for s in f.samples}
                     for f in families(follower.neighbours, follower.peers)}  # fmt: skip

            assert set(found) == {f"topics_cluster_{name}" for name, _, _ in HELP}
            assert found["topics_cluster_leads"] == {(): 0}
            assert found["topics_cluster_applied_index"] == {(): 7}
            assert found["topics_cluster_lag_seconds"] == {(): 1.5}
            assert found["topics_cluster_nodes"] == {
                ("leader",): 1, ("follower",): 1, ("away",): 0, ("lost",): 0,
            }  # fmt: skip
            assert found["topics_cluster_forwarded_total"] == {(): 1}
            assert found["topics_cluster_forward_failed_total"] == {(): 0}
            assert found["topics_cluster_links"] == {(): 1}

            assert found["topics_cluster_trimmed_timestamp_seconds"] == {(): 0}
            assert found["topics_cluster_trim_waits"] == {}
            assert found["topics_cluster_durable_offset"] == {("n1",): -1, ("n2",): -1}

            follower.standing.trim_status = TrimStatus(
                looked_ms=9000, before=5, waits_for=Wait.NODE, node="n2", last_ms=8500
            )
            said = {f.name: f.samples for f in families(follower.neighbours, follower.peers)}
            assert said["topics_cluster_trimmed_timestamp_seconds"][0].value == 8.5  # type: ignore[index]
            [waits] = said["topics_cluster_trim_waits"]
            assert (waits.value, waits.labels) == (1, {"reason": "node", "node": "n2"})

            follower.standing.leader_url = None
            await follower.append("t", 1)  # is refused here, and was carried nowhere
            again = {f.name: f.samples for f in families(follower.neighbours, follower.peers)}
            assert again["topics_cluster_has_leader"][0].value == 0  # type: ignore[index]

    run(story())
