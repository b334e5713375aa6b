"""Shares: how much of a limited resource one holder may take (§11).

A total alone lets the first client that takes all of it keep everybody else out.  An absolute bound
for each holder is too small for a client that is alone, or too large for the total.  So a holder may
take more while it holds less than `SHARE` times what is left (Choudhury and Hahne, "Dynamic queue
length thresholds for shared-memory packet switches", 1998): alone it gets three quarters of the
total, and the more there are, the smaller each one's share; something is left for the next, whoever
came before.  Absolute bounds come on top where a setting says so.

Owns the counts.  Knows nothing of what is counted.
"""

from typing import Final

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.model.limits import throttled

SHARE: Final = 3


class Shares:
    """One resource, and who holds how much of it.

    Args:
        name: Of the limit, as `detail.limit` tells it.
        limit: Of all holders together; 0: no bound, and no shares either.
        per_key: Of one key; 0: no bound of its own.
        per_ip: Of one address; 0: no bound of its own.

    Attributes:
        used: What all holders hold.
        refused: How often one was refused.
    """

    __slots__ = ("_held", "_own", "limit", "name", "refused", "used")

    def __init__(self, name: str, limit: int, *, per_key: int = 0, per_ip: int = 0) -> None:
        self.name = name
        self.limit = limit
        self.used = self.refused = 0
        self._own = {True: (f"{name}_per_key", per_key), False: (f"{name}_per_ip", per_ip)}
        self._held: dict[Holder, int] = {}

    def held(self, holder: Holder) -> int:
        return self._held.get(holder, 0)

    @property
    def most_held(self) -> int:
        """What the holder holds that holds most."""
        return max(self._held.values(), default=0)

    def require(self, holder: Holder = NOBODY, amount: int = 1, *, freed: int = 0) -> None:
        """Refuse what would be too much: of all, of one holder, or of its share.

        Args:
            freed: What the holder gives back with it.

        Raises:
            Rejection: 429, with the limit that was met.
        """
        used, held = self.used - freed, self.held(holder) - freed
        if self.limit and used + amount > self.limit:
            self.refused += 1
            raise throttled(self.name, self.limit)
        if not holder.name:
            return
        own_name, own = self._own[holder.is_key]
        if own and held + amount > own:
            self.refused += 1
            raise throttled(own_name, own)
        # A crowd cannot be told apart: the total is its share.
        if self.limit and not holder.is_crowd and held >= SHARE * (self.limit - used):
            self.refused += 1
            raise Rejection(
                ErrorCode.THROTTLED,
                f"{held} of {self.name} are this client's: the rest of {self.limit} is for others",
                {"limit": self.name, "max": self.limit, "reason": "share"},
            )

    def take(self, holder: Holder = NOBODY, amount: int = 1) -> None:
        """Count; `require` comes before, where it may be too much."""
        self.used += amount
        if holder.name and amount:  # else there would be a holder of nothing
            self._held[holder] = self._held.get(holder, 0) + amount

    def give_back(self, holder: Holder = NOBODY, amount: int = 1) -> None:
        self.used -= amount
        assert self.used >= 0
        if holder.name and amount:
            left = self._held[holder] - amount
            assert left >= 0
            if left:
                self._held[holder] = left
            else:
                del self._held[holder]

    def bounds(self, holder: Holder) -> bool:
        """Whether anything bounds what a holder may hold."""
        return bool(self.limit or self._own[holder.is_key][1])
