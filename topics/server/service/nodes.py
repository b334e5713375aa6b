"""Which nodes serve Kafka's clients, and which of them leads: of a server that is alone, itself."""

from typing import Final, NamedTuple, Protocol

NOBODY: Final = -1
ALONE: Final = 1
"""The number of a server that is alone."""


class Node(NamedTuple):
    """A node, and where clients reach it."""

    number: int
    host: str
    port: int


NO_NODE: Final = Node(NOBODY, "", NOBODY)


class Seen(NamedTuple):
    """The cluster at one moment, as one of its nodes sees it.

    Attributes:
        nodes: Those that live, by their numbers.
        leader: Of all partitions; it is the controller, and coordinates all groups.  `NO_NODE`: none is known.
        term: The epoch of its lead.
    """

    nodes: tuple[Node, ...]
    leader: Node
    term: int

    @property
    def numbers(self) -> list[int]:
        return [node.number for node in self.nodes]


class Nodes(Protocol):
    """The cluster of one node.

    Attributes:
        number: Of this node.
        replicas: How many copies of each record there are.
        min_in_sync: How many of them have a record before it is acknowledged.
        leads: This node leads.
        term: The epoch of the lead that this node knows of.
    """

    @property
    def number(self) -> int: ...

    @property
    def replicas(self) -> int: ...

    @property
    def min_in_sync(self) -> int: ...

    @property
    def leads(self) -> bool: ...

    @property
    def term(self) -> int: ...

    def seen(self, local: tuple[str, int]) -> Seen:
        """The cluster now.

        Args:
            local: Host and port by which the client came that is told of it.
        """

    def require_current(self) -> None:
        """Raises Rejection: what this node shows is long past."""


class Alone:
    """Implements `Nodes` for a server that is alone: it always leads.

    Args:
        advertised: Host and port that clients are told; None: those by which they came.
    """

    number = ALONE
    replicas = min_in_sync = 1
    leads = True
    term = 0

    def __init__(self, advertised: tuple[str, int] | None = None) -> None:
        self._advertised = advertised

    def seen(self, local: tuple[str, int]) -> Seen:
        node = Node(ALONE, *(self._advertised or local))
        return Seen((node,), node, self.term)

    def require_current(self) -> None:
        return
