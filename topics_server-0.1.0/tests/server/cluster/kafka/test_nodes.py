"""The rule over a real broker: processes with a node each, of which the leader is killed. (§2, §3, §8.2)"""

import pytest

from topics.server.cluster.kafka.settings import KafkaSettings

from .node_processes import leader_of, nodes

MARKS = 100


@pytest.mark.kafka
def test_another_node_leads_when_the_leader_is_killed(settings: KafkaSettings) -> None:
    """Twice, kill -9 while it writes: the one that is left has all that any leader has acknowledged,
    in its order and once, and each leader's term is above the one before."""
    accepted: list[int] = []
    terms: list[int] = []
    with nodes(settings, 3) as left:
        while True:
            leader = leader_of(left)
            leader.until("accepted", MARKS)
            if len(left) == 1:
                break
            leader.kill()
            left.remove(leader)
            accepted += leader.told("accepted")
            terms += leader.told("leads")
        holds = leader.holds()
        accepted += leader.told("accepted")
        terms += leader.told("leads")

    is_accepted = set(accepted)
    assert len(accepted) >= 3 * MARKS
    assert [mark for mark in holds if mark in is_accepted] == accepted
    assert len(set(holds)) == len(holds)
    assert terms == sorted(set(terms))
