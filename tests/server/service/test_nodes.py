"""A server that is alone is the whole cluster, and leads it. (§7)"""

from topics.server.service.nodes import ALONE, NO_NODE, Alone, Node


def test_it_is_where_the_client_came_to() -> None:
    alone = Alone()
    seen = alone.seen(("127.0.0.1", 4000))
    assert (alone.leads, alone.number, alone.term) == (True, ALONE, 0)
    assert (alone.replicas, alone.min_in_sync) == (1, 1)
    assert seen.nodes == (Node(ALONE, "127.0.0.1", 4000),)
    assert (seen.leader, seen.term, seen.numbers) == (seen.nodes[0], 0, [ALONE])
    assert seen.leader is not NO_NODE
    alone.require_current()


def test_or_where_clients_are_told_that_it_is() -> None:
    assert Alone(("kafka.test", 9092)).seen(("127.0.0.1", 4000)).leader == (1, "kafka.test", 9092)
