"""Answers of HTTP/1.1 as bytes.

Owns status lines, header lines, chunks.  Knows nothing of when they are written.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from topics.protocol.model.records import Buffer
from topics.server.http.interface import Headers

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED: Final = (b"transfer-encoding", b"chunked")
CLOSE: Final = (b"connection", b"close")
KEEP_ALIVE: Final = (b"connection", b"keep-alive")
_DAYS: Final = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTHS: Final = tuple(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())
LAST_CHUNK: Final = b"0\r\n\r\n"
KEPT_BYTES_MAX: Final = 4 << 10
"""A larger chunk is not kept for the next stream: its bytes take longer than its frame."""

_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


class Dates:
    """The line of the `date` header, made once a second.

    Args:
        clock: Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._made_s = -1
        self._line = b""

    def line(self) -> bytes:
        now_s = int(self._clock())
        if now_s != self._made_s:
            self._made_s = now_s
            self._line = b"\r\ndate: " + _imf_date(now_s)
        return self._line

    def value(self) -> bytes:
        return self.line()[8:]


DATES: Final = Dates()


def _imf_date(now_s: int) -> bytes:
    """A date of RFC 9110 §5.6.7, which names days and months in English whatever the locale."""
    at = time.gmtime(now_s)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return b"%b, %02d %b %04d %02d:%02d:%02d GMT" % (day, at.tm_mday, month, at.tm_year, *at[3:6])


def head(status: int, headers: Headers, *more: tuple[bytes, bytes]) -> bytes:
    """The head of an answer, with its blank line."""
    return b"%b%b\r\n\r\n" % (_lines(status, tuple(headers), more), DATES.line())


@lru_cache(maxsize=1024)
def _lines(
    status: int, headers: tuple[tuple[bytes, bytes], ...], more: tuple[tuple[bytes, bytes], ...]
) -> bytes:
    """The head of an answer without its date: most are like one that went before, of the same size."""
    lines = [b"\r\n%b: %b" % each for each in (*headers, *more)]
    return (_LINES.get(status) or b"HTTP/1.1 %d " % status) + b"".join(lines)


class _Chunks:
    """Pieces as chunks.  Many streams send the same piece, one right after the other."""

    def __init__(self) -> None:
        self._piece: bytes | None = None
        self._chunk = b""

    def make(self, piece: Buffer) -> bytes:
        if piece is self._piece:
            return self._chunk
        made = b"".join((b"%x\r\n" % len(piece), piece, b"\r\n"))
        if isinstance(piece, bytes) and len(piece) <= KEPT_BYTES_MAX:
            self._piece, self._chunk = piece, made
        return made


chunk: Final = _Chunks().make
"""One piece as a chunk."""
