"""The pause after a destination took nothing: of a router, and of a dead-letter topic (§6.1, §10.6)."""

from typing import Final

BACKOFF_FIRST_MS: Final = 50
BACKOFF_MAX_MS: Final = 5000
"""Short enough that a topic which has room again fills soon, long enough that one which has not
costs next to nothing."""


def backoff_ms(refusals: int) -> int:
    """The pause after so many refusals in a row before this one, doubled with each."""
    return min(BACKOFF_FIRST_MS << min(refusals, 16), BACKOFF_MAX_MS)
