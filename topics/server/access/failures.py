"""Wrong keys, counted by the address that they come from.

Owns the counts and the line that tells the operator of an address that guesses: one for each power of
ten.  That a request was refused is the request log's to say.  The number of addresses remembered is
bounded: beyond it the one that failed longest ago is forgotten.

Several processes may serve one port.  Each but the engine's hands its counts on, so that the engine's
counts, and names, what all of them refused.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

ADDRESSES_MAX: Final = 1000
_TOLD: Final = frozenset(10**digits for digits in range(1, 20))

log = logging.getLogger("topics.access")


class Failures:
    """Requests with a key that is none.  A request without any is not counted: it guesses nothing.

    Attributes:
        total: Since the start.
    """

    def __init__(self) -> None:
        self.total = 0
        self._hands_on = False
        self._counts: OrderedDict[str, int] = OrderedDict()

    def hand_on(self) -> None:
        """Tell nobody from now on: `take` gives the counts to the process that does."""
        self._hands_on = True

    def take(self) -> dict[str, int]:
        """By address, the requests since the last call, of as many addresses as are remembered."""
        counts, self._counts = dict(self._counts), OrderedDict()
        return counts

    def note(self, address: str, times: int = 1) -> None:
        self.total += times
        before = self._counts.pop(address, 0)
        count = self._counts[address] = before + times
        if len(self._counts) > ADDRESSES_MAX:
            self._counts.popitem(last=False)
        told = [each for each in _TOLD if before < each <= count]
        if told and not self._hands_on:
            log.warning("%d requests with unknown keys from %s", max(told), address or "?")

    def note_all(self, counts: Mapping[str, int]) -> None:
        """Note what another process has counted."""
        for address, times in counts.items():
            self.note(address, times)

    def of(self, address: str) -> int:
        """Failures of one address, as far as it is remembered."""
        return self._counts.get(address, 0)
