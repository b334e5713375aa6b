"""The body of a large answer, given out as its client takes it.

Owns what of it is not yet written, and its share of the memory that answers may hold.  Knows
nothing of frames.
"""

from collections import deque
from collections.abc import Sequence

from topics.protocol.model.records import Buffer
from topics.server.transport.budget import Share

SLICE_BYTES = 64 << 10


class Outgoing:
    """Slices of a body, each released when it is taken.

    Args:
        share: Where the body's bytes are held already; they are given back as they are taken.
        written_bytes: Of the body, and held in the share as well, but written already: they are given
            back in the end.
    """

    def __init__(self, body: Sequence[Buffer], share: Share, *, written_bytes: int = 0) -> None:
        self._buffers = deque(memoryview(each) for each in body if len(each))
        self._share = share
        self._written_bytes = written_bytes
        self.left_bytes = sum(map(len, self._buffers))

    def take(self, most: int = SLICE_BYTES) -> Buffer:
        """The next bytes, `most` at the most; empty at the end.  Small buffers are joined."""
        taken: list[Buffer] = []
        size = 0
        while self._buffers and size < most:
            first = self._buffers[0]
            if len(first) <= most - size:
                self._buffers.popleft()
            else:
                self._buffers[0] = first[most - size :]
                first = first[: most - size]
            taken.append(first)
            size += len(first)
        self.left_bytes -= size
        self._share.give_back(size)
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def close(self) -> None:
        """Give up what is left."""
        self._buffers.clear()
        self._share.give_back(self.left_bytes + self._written_bytes)
        self.left_bytes = self._written_bytes = 0
