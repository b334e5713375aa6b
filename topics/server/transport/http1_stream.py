"""An answer over HTTP/1.1 that has no end yet: pieces of a source, in chunks.

Owns the framing of the pieces, and whether there is news to look for.  Knows nothing of what the
pieces are, and of the requests before and after it.
"""

from collections.abc import Callable

from topics.protocol.driver.streams import Gather
from topics.protocol.model.records import Buffer
from topics.server.http.interface import Beating, Source
from topics.server.transport.http1_writer import LAST_CHUNK, chunk


class Stream:
    """The pieces of one source.

    Args:
        is_chunked: HTTP/1.0 has no chunks: the stream ends with its connection.
        wake: Called when there may be something to write; only asks for a turn.
        push: Writes a piece now; False where the client does not read.
        gather: See `interface.Beating`.

    Attributes:
        has_news: `next` may find something.
    """

    def __init__(
        self,
        source: Source,
        *,
        is_chunked: bool,
        wake: Callable[[], None],
        push: Callable[[Buffer], bool],
        gather: Gather | None = None,
    ) -> None:
        self.has_news = False
        self._source = source
        self._is_chunked = is_chunked
        self._wake = wake
        self._push = push
        self._gather = gather

    def listen(self) -> None:
        self._source.listen(self._on_news)
        if isinstance(self._source, Beating):
            self._source.push_by(self._write_now, self._gather)

    def _write_now(self, piece: bytes) -> bool:
        """Write a piece without a turn, unless others wait before it."""
        return not self.has_news and self._push(chunk(piece) if self._is_chunked else piece)

    def _on_news(self) -> None:
        self.has_news = True
        self._wake()

    def next(self) -> Buffer | None:
        """The next bytes to write; None where there are none now, or no more."""
        self.has_news = False
        piece = self._source.take()
        if piece is None:
            return None
        if not self._source.is_drained:
            self.has_news = True
        return chunk(piece) if self._is_chunked else piece

    @property
    def is_over(self) -> bool:
        """Nothing more will come; `end` is to be written."""
        return self._source.is_over

    def end(self, last: bytes = b"") -> bytes:
        """The end of the stream, with a last piece before it."""
        if not self._is_chunked:
            return last
        return (chunk(last) if last else b"") + LAST_CHUNK

    def close(self) -> None:
        """Close the source, and break the cycle with it."""
        self._source.close()
        del self._source
