"""What opening the data anew does where it does not succeed: it is tried again, or it is the end.

A server whose log failed for want of space has been serving; what it meets when it opens the data as
soon as there is some may pass by itself.
"""

from typing import Final

PAUSES_S: Final = (0.0, 1.0, 2.0, 5.0)
"""Before the next attempts; the last one from then on."""


class Pauses:
    """Of one series of attempts."""

    def __init__(self) -> None:
        self._pauses_s = iter(PAUSES_S)

    def next_s(self) -> float:
        return next(self._pauses_s, PAUSES_S[-1])


def passes(failure: Exception) -> bool:
    """Whether a failure passes by itself: no space once more, or what an operator is changing, as the
    file of keys."""
    # Only now: neither is needed at a start.
    from topics.protocol.model.errors import lacks_space
    from topics.server.access.keys import BadKeys

    return lacks_space(failure) or isinstance(failure, BadKeys)
