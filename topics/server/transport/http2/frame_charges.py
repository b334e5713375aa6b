"""What a client pays for frames that cost the server work and the client none.

Owns the prices.  Knows nothing of what happens to a client that cannot pay.

A request and useful DATA cost nothing; everything else is counted (`budget.Charges`), and a client
in good faith sends a handful.  A client in good faith sends WINDOW_UPDATE most: it earns a number
of them by its requests and by the DATA sent to it.
"""

from typing import Final

from topics.server.transport.budget import Charges
from topics.server.transport.http2.frames import (
    ACK,
    DATA,
    HEADERS,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
)

LARGE_HEAD: Final = 10
"""A head that is refused for its size was decoded."""
BLOCK_BYTES_PER_CHARGE: Final = 4 << 10
"""Of a header block: up to so many cost nothing.  Huffman's code takes a third of a microsecond a
byte."""
SMALL_BYTES: Final = 64
"""DATA of fewer bytes that neither begins nor ends a body costs more to look at than to carry."""
SMALL_PER_CHARGE: Final = 8
ENTRIES_PER_CHARGE: Final = 8
"""Of a SETTINGS frame: each may change the windows of all streams."""
EARNING_BYTES: Final = 256
"""A frame of DATA of so many bytes may well be answered by two WINDOW_UPDATE: of the stream and of
the connection."""
UPDATES_EARNED: Final = 2
UPDATES_MAX: Final = 1000


class FrameCharges:
    """Counts for one connection.

    A method that counts returns False where the connection has to end.
    """

    __slots__ = ("_charges", "_is_acknowledged", "_small", "_updates")

    def __init__(self, charges: Charges) -> None:
        self._charges = charges
        self._small = 0
        self._updates = 0
        self._is_acknowledged = False

    def must_rest(self) -> bool:
        return self._charges.must_rest()

    def frame(self, frame: Frame, now_s: float) -> bool:
        """Count a frame by its header."""
        kind = frame.kind
        if kind == DATA:
            return True
        if kind == HEADERS:
            count = frame.frames - 1 + frame.size // BLOCK_BYTES_PER_CHARGE
            return not count or self.charge(now_s, count)
        if kind == WINDOW_UPDATE and self._updates:
            self._updates -= 1
            return True
        if kind == SETTINGS:
            if frame.flags & ACK and not self._is_acknowledged:
                self._is_acknowledged = True
                return True
            return self.charge(now_s, 1 + frame.size // (6 * ENTRIES_PER_CHARGE))
        return self.charge(now_s)

    def data(self, size: int, now_s: float, *, ends: bool, begins: bool = False) -> bool:
        """Count DATA by what there is in it beside padding.

        Args:
            begins: It is the first of its request's body: a client may send a small body in a frame
                of its own, and the end of the stream in another.
        """
        if ends or size >= SMALL_BYTES or (begins and size):
            return True
        if not size:
            return self.charge(now_s)
        return self._small_one(now_s)

    def late_data(self, now_s: float) -> bool:
        """Count DATA of a stream that is over, of any size: each is answered by a reset.  What was on
        its way when a body was refused is no more than a window, 64 KiB."""
        return self._small_one(now_s)

    def _small_one(self, now_s: float) -> bool:
        self._small += 1
        return self._small % SMALL_PER_CHARGE != 0 or self.charge(now_s)

    def charge(self, now_s: float, count: int = 1) -> bool:
        return self._charges.charge(now_s, count)

    def earn(self) -> None:
        """Allow more WINDOW_UPDATE: the client sent a request, or was sent DATA."""
        if self._updates < UPDATES_MAX:
            self._updates += UPDATES_EARNED
