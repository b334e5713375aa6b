"""Wrong keys, counted by the address that they come from.

Owns the counts and the line that the operator reads; the log bounds how often it is written.  The
number of addresses remembered is bounded: beyond it the one that failed longest ago is forgotten.
"""

import logging
from collections import OrderedDict
from typing import Final

ADDRESSES_MAX: Final = 1000

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
        log.warning("a request with an unknown key from %s; %d by now", address or "?", count)

    def of(self, address: str) -> int:
        """Those of one address, as far as it is remembered."""
        return self._counts.get(address, 0)
