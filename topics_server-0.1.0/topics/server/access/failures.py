"""Wrong keys, counted by the address that they come from.

Owns the counts and the line that tells the operator of an address that guesses: one for each power of
ten.  That a request was refused is the request log's to say.  The number of addresses remembered is
bounded: beyond it the one that failed longest ago is forgotten.
"""

import logging
from collections import OrderedDict
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
        self._counts: OrderedDict[str, int] = OrderedDict()

    def note(self, address: str) -> None:
        self.total += 1
        count = self._counts.pop(address, 0) + 1
        self._counts[address] = count
        if len(self._counts) > ADDRESSES_MAX:
            self._counts.popitem(last=False)
        if count in _TOLD:
            log.warning("%d requests with unknown keys from %s", count, address or "?")

    def of(self, address: str) -> int:
        """Those of one address, as far as it is remembered."""
        return self._counts.get(address, 0)
