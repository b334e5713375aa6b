"""Kafka's face on a node of a cluster: which nodes serve it, and what each decides.

Owns the numbers of nodes.  A node is told of where it has said an address for Kafka's clients in its heartbeats; an
earlier version says none.
"""

from binascii import crc32
from collections.abc import Iterable
from typing import Final

from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.model.commands import Command, facts_of
from topics.server.cluster.neighbours import Neighbours
from topics.server.cluster.node.status import NodeStatus
from topics.server.cluster.service import NodeService
from topics.server.service.nodes import NO_NODE, Node, Seen
from topics.server.service.slots import Slot

_NUMBER: Final = 0x7FFFFFFF


def number_of(node: str) -> int:
    """The number of a node for Kafka's clients: the same on every node, and after each start."""
    return crc32(node.encode()) & _NUMBER


def namesake_of(node: str, others: Iterable[str]) -> str | None:
    """Another node that has the number of this one."""
    number = number_of(node)
    return next((each for each in others if each != node and number_of(each) == number), None)


def address_of(said: str) -> tuple[str, int] | None:
    """Host and port of what a node says; None where it serves no client of Kafka's."""
    host, _, port = said.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() and len(port) <= 5 else None


class FaceNodes:
    """Implements `service.nodes.Nodes`.

    Args:
        node: This node's id.
        replicas, min_in_sync: Of the log that the nodes share.
    """

    def __init__(
        self, neighbours: Neighbours, node: str, *, replicas: int, min_in_sync: int
    ) -> None:
        self.number = number_of(node)
        self.replicas, self.min_in_sync = replicas, min_in_sync
        self._neighbours = neighbours
        self._standing = neighbours.standing
        self._node = node

    @property
    def leads(self) -> bool:
        return self._standing.leads

    @property
    def term(self) -> int:
        return self._standing.term

    def seen(self, local: tuple[str, int]) -> Seen:
        status = self._standing.status()
        # Its own term is over where it does not lead, and the next has not begun here.
        is_past = status.leader == self._node and not self._standing.leads
        leader, found = NO_NODE, dict[int, Node]()
        for each in status.nodes:
            node = _node(each)
            if node is not None:
                found[node.number] = node
                if each.node == status.leader and not is_past:
                    leader = node
        return Seen(tuple(found[number] for number in sorted(found)), leader, status.term)

    def require_current(self) -> None:
        if not self._standing.leads:
            self._neighbours.require_ready()


def _node(status: NodeStatus) -> Node | None:
    """As clients are told of it; None where it is away, or serves none of them."""
    address = None if status.role == "away" else address_of(status.kafka)
    return None if address is None else Node(number_of(status.node), *address)


class FaceService(NodeService):
    """What requests of Kafka's clients are decided by.

    A read is decided here: what the leader alone may answer does not come so far (`faces.kafka.roles`).  A leader that
    was deposed and does not know it yet looks again before it says that an offset or a topic is not there: clients would
    begin anew.  A write of a node that does not lead goes to the leader: topics that metadata is asked of, and blocks of
    producers' ids.
    """

    def submit(self, command: Command, deliver: Deliver, slot: Slot) -> Reply | Ticket:
        if facts_of(command).is_read:
            return self._read(command, deliver)
        return super().submit(command, deliver, slot)
