"""Lines in the log about requests: refusals an operator wants to know of, and slow requests.

Owns which of them are worth a line, and how many lines there are: one a class in `WINDOW_S`, with
the number of those before it.  A flood of refusals costs a comparison each.  A line holds a route,
a status, an address and a path; never a query, a header or a body.
"""

import logging
from typing import Final

from topics.protocol.model.errors import ErrorCode, Rejection

log = logging.getLogger("topics.requests")

WINDOW_S: Final = 10.0
PATH_MAX: Final = 200
"""Characters of a path in a line."""

REPORTED: Final = frozenset(
    {
        ErrorCode.UNAUTHORIZED,
        ErrorCode.FORBIDDEN,
        ErrorCode.PAYLOAD_TOO_LARGE,
        ErrorCode.THROTTLED,
        ErrorCode.NOT_READY,
    }
)
"""Refusals that say something about the server or about who calls it.  The other codes say that a
client is mistaken, and it has been told."""


class RequestLog:
    """Args:
    slow_s: A request that took longer gets a line, seconds; None: none does.
    """

    def __init__(self, slow_s: float | None) -> None:
        self._slow_s = slow_s
        self._windows: dict[str, tuple[float, int]] = {}

    def refused(self, refusal: Rejection, path: bytes, client: str, now_s: float) -> None:
        """Note a refusal at `now_s` of any steady clock."""
        if refusal.code not in REPORTED:
            return
        detail = refusal.detail or {}
        limit = detail.get("limit") if refusal.code is ErrorCode.THROTTLED else None
        kind = refusal.code.value if limit is None else f"{refusal.code.value}, limit {limit}"
        more = self._missed(kind, now_s)
        if more is not None:
            log.info("refused (%s): %s from %s%s", kind, _shown(path), client or "?", more)

    def answered(
        self, path: bytes, method: str, status: int, took_s: float, client: str, now_s: float
    ) -> None:
        """Note how long an answer took."""
        if self._slow_s is None or took_s <= self._slow_s:
            return
        more = self._missed("slow", now_s)
        if more is not None:
            text = "slow: %s %s from %s was answered %d after %d ms%s"
            shown = _shown(path)
            log.info(text, method[:32], shown, client or "?", status, took_s * 1000, more)

    def _missed(self, kind: str, now_s: float) -> str | None:
        """What to add to a line; None where there is to be none now."""
        known = self._windows.get(kind)
        if known is not None and now_s - known[0] < WINDOW_S:
            self._windows[kind] = known[0], known[1] + 1
            return None
        self._windows[kind] = now_s, 0
        missed = 0 if known is None else known[1]
        return f" (and {missed} more since the last such line)" if missed else ""


def _shown(path: bytes) -> str:
    text = path[: PATH_MAX + 1].decode("latin-1")
    return text if len(text) <= PATH_MAX else text[:PATH_MAX] + "…"
