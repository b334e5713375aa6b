"""Whether a node may be the one that leads: by its clock, its disk and its data.

Owns the bounds, and no clock.  Nothing but progress depends on it (`topics.protocol.cluster.rule`): a node that
cannot write, or whose time the others would not take, only would keep a better one from leading.
"""

from typing import Final

CLOCK_MS_MAX: Final = 1000
"""How far a leader's clock may be from the broker's."""
CLOCK_MS_AGAIN: Final = 800
"""A clock that was off has to be this good: else a node at the bound would come and go."""


class Candidacy:
    """Of one node.

    Attributes:
        refusal: Why it may not lead; None: it may.
    """

    def __init__(self) -> None:
        self.refusal: str | None = None
        self._is_late = False

    def judge(self, *, skew_ms: int, is_read_only: bool, has_data: bool) -> bool:
        """Whether `refusal` came or went.

        Args:
            skew_ms: How far its clock is ahead of the broker's (negative: behind).
            is_read_only: Its own log has failed.
            has_data: Its store is a prefix of the cluster's log.
        """
        before = self.refusal is None
        self._is_late = abs(skew_ms) > (CLOCK_MS_AGAIN if self._is_late else CLOCK_MS_MAX)
        if self._is_late:
            self.refusal = f"its clock is {skew_ms} ms off the broker's"
        elif is_read_only:
            self.refusal = "its log is read-only"
        else:
            self.refusal = None if has_data else "its data are not what the cluster's log has"
        return before != (self.refusal is None)
