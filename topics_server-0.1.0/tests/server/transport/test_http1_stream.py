"""A stream over HTTP/1.1: its framing, its news, its end (RFC 9112 §7.1)."""

import pytest

from topics.protocol.model.records import Buffer
from topics.server.transport.http1_stream import Stream

from .http2_rig import News


class Woken(Stream):
    """A stream over `News`, and how often it asked for a turn."""

    def __init__(self, *, is_chunked: bool) -> None:
        self.news = News()
        self.wakes = 0
        self.pushed: list[bytes] = []
        self.is_paused = False
        super().__init__(
            self.news, is_chunked=is_chunked, wake=self._woken, push=self._write_pushed
        )
        self.listen()

    def _woken(self) -> None:
        self.wakes += 1

    def _write_pushed(self, piece: Buffer) -> bool:
        if not self.is_paused:
            self.pushed.append(bytes(piece))
        return not self.is_paused


@pytest.mark.parametrize(("is_chunked", "written"), [(True, b"2\r\nhb\r\n"), (False, b"hb")])
def test_a_piece_is_pushed_where_none_waits_before_it(is_chunked: bool, written: bytes) -> None:
    """A heartbeat needs no turn; it overtakes nothing, and waits for a client that does not read."""
    stream = Woken(is_chunked=is_chunked)
    stream.news.put(b"one")
    overtakes = stream.news.push(b"hb")

    while stream.next() is not None:
        pass
    is_written = stream.news.push(b"hb")
    stream.is_paused = True
    is_taken = stream.news.push(b"hb")

    assert (overtakes, is_written, is_taken) == (False, True, False)
    assert stream.pushed == [written]


@pytest.mark.parametrize(
    ("is_chunked", "written", "end"),
    [(True, b"3\r\none\r\n", b"3\r\nbye\r\n0\r\n\r\n"), (False, b"one", b"bye")],
)
def test_pieces_are_framed_where_there_are_frames(
    is_chunked: bool, written: bytes, end: bytes
) -> None:
    """HTTP/1.0 has no chunks: there the end of the connection is the end of the stream."""
    stream = Woken(is_chunked=is_chunked)
    stream.news.put(b"one")

    assert stream.next() == written
    assert stream.next() is None
    assert stream.end(b"bye") == end
    assert stream.end() == (b"0\r\n\r\n" if is_chunked else b"")


def test_news_is_looked_for_until_there_is_none() -> None:
    """A wake is a reason to look; a piece is a reason to look again, unless the source says that it was
    the last for now."""
    stream = Woken(is_chunked=True)
    assert not stream.has_news
    stream.news.put(b"a", b"b")
    assert (stream.has_news, stream.wakes) == (True, 1)

    looks = []
    while stream.has_news:
        looks.append(stream.next())

    assert looks == [b"1\r\na\r\n", b"1\r\nb\r\n"]


def test_a_wake_that_comes_while_a_piece_is_taken_is_news() -> None:
    """Though the source has nothing more at that moment."""
    stream = Woken(is_chunked=True)
    stream.news.put(b"a")
    take = stream.news.take

    def woken() -> bytes | None:
        stream.news.put()
        return take()

    stream.news.take = woken  # type: ignore[method-assign]
    stream.next()

    assert stream.has_news


def test_the_end_is_the_source_s() -> None:
    stream = Woken(is_chunked=True)
    stream.news.put(b"a", ends=True)
    assert not stream.is_over
    stream.next()
    assert stream.is_over


def test_closing_closes_the_source() -> None:
    stream = Woken(is_chunked=True)
    stream.close()
    assert stream.news.is_closed
