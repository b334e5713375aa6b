"""Why a destination does not take what is written into it without a client, and when that is tried again."""

from typing import Self

import msgspec

from topics.protocol.model.backoff import BACKOFF_FIRST_MS, BACKOFF_MAX_MS


class Blocked(msgspec.Struct, frozen=True):
    """Why a destination refuses, since `since_ms`; tried again at `retry_at_ms`."""

    code: str
    message: str
    since_ms: int
    retry_at_ms: int
    backoff_ms: int

    @classmethod
    def after(cls, last: Self | None, code: str, message: str, now_ms: int) -> Self:
        """The destination refused: tried again after a pause that doubles each time.

        Args:
            last: Since it refuses; None: it did not before.
        """
        backoff_ms = BACKOFF_FIRST_MS if last is None else min(last.backoff_ms * 2, BACKOFF_MAX_MS)
        since_ms = now_ms if last is None else last.since_ms
        return cls(code, message, since_ms, now_ms + backoff_ms, backoff_ms)
