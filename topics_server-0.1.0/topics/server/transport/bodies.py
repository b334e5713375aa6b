"""Memory for request bodies: what all clients together may make the server hold of them.

Owns one amount of bytes and who holds how much of it.  A small body is never refused.  When the
amount is used up, the client address that holds most gives way with its largest body that is still
being received, be it the one that asks or another: so bodies that are sent slowly, or never ended,
do not keep other clients out.  Knows nothing of requests, and refuses one through a call.

Invariant: what is held of bodies beyond `free_bytes` each is at most `max_bytes`.
"""

from collections import Counter
from collections.abc import Callable


class Bodies:
    """The amount.

    Args:
        max_bytes: Of all bodies larger than `free_bytes`, with those that are being carried out.
        free_bytes: A body up to this size is not counted.  The number of connections bounds those.
    """

    def __init__(self, max_bytes: int, free_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.free_bytes = free_bytes
        self.held_bytes = 0
        self.refused = 0
        """Bodies that gave way, or found no room."""
        self._large: set[BodyShare] = set()

    def _make_room(self, asking: "BodyShare", size: int) -> bool:
        """Have bodies give way until `size` bytes more fit; False where the asking one has to.

        Looks at every large body, of which there are `max_bytes` by `free_bytes` at most, and only
        where one of them is refused for it.
        """
        while self.held_bytes + size > self.max_bytes:
            self.refused += 1
            by_client: Counter[str] = Counter()
            for share in self._large:
                by_client[share.client] += share.held_bytes
            by_client[asking.client] += size
            asks = by_client[asking.client], asking.held_bytes + size
            largest, most = asking, asks
            for share in self._large:
                held = by_client[share.client], share.held_bytes
                if share.is_arriving and share is not asking and held > most:
                    largest, most = share, held
            if largest is asking:
                return False
            largest.refuse()
            assert largest not in self._large, "a body that is refused is dropped"
        return True


class BodyShare:
    """What one request holds.  Its owner calls `close` in the end.

    Args:
        client: The address that sends it.
        refuse: Refuses the request at once with 429, and closes this share.
    """

    __slots__ = ("_bodies", "client", "held_bytes", "is_arriving", "refuse")

    def __init__(self, bodies: Bodies, client: str, refuse: Callable[[], None]) -> None:
        self._bodies = bodies
        self.client = client
        self.refuse = refuse
        self.held_bytes = 0
        self.is_arriving = True
        """It is being received: it may have to give way."""

    def take(self, size: int) -> bool:
        """Hold `size` bytes more; False, and nothing more is held, where that is too much."""
        bodies, held_bytes = self._bodies, self.held_bytes + size
        if held_bytes > bodies.free_bytes:
            is_counted = self.held_bytes > bodies.free_bytes
            more = size if is_counted else held_bytes
            if bodies.held_bytes + more > bodies.max_bytes and not bodies._make_room(self, more):
                return False
            bodies.held_bytes += more
            bodies._large.add(self)
        self.held_bytes = held_bytes
        return True

    def settle(self) -> None:
        """The body is whole: it is carried out, and does not give way any more."""
        self.is_arriving = False

    def close(self) -> None:
        """Give back what is held; the share may be used for another body."""
        if self.held_bytes > self._bodies.free_bytes:
            self._bodies.held_bytes -= self.held_bytes
            self._bodies._large.discard(self)
        self.held_bytes = 0
        self.is_arriving = True
