"""Requests on their way to the engine's process and back, with both ends on one loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from topics.server.http.interface import Answer, Streaming
from topics.server.readers.relay import Request, refusal_of
from topics.server.readers.relay_messages import WINDOW_BYTES
from topics.server.transport.limits import Limits

from .joined import Answering, Joined, head, until


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


async def answered(request: Request, pieces: list[bytes]) -> Any:
    """The answer to a request."""
    made = request.finish(pieces)
    if made is not request:
        return made
    found: list[Any] = []
    request.then(found.append)
    await until(lambda: found)
    return found[0]


def test_a_request_arrives_as_it_was_and_its_answer_comes_back() -> None:
    """Head, body and address there; status, headers and body back.  What it holds there is held until
    its answer is written, where that may be taken back."""

    async def story() -> None:
        unsent: list[bool] = []
        grants = Answer(201, [(b"k", b"v")], [b"made", b" it"], unsent=lambda: unsent.append(True))
        joined = Joined(Answering(grants))
        request = joined.relay.ask(head(), 1)
        answer = await answered(request, [b"one", b" two"])
        asked = joined.exchange.asked[0]
        assert (asked.head.method, asked.head.path, asked.head.query) == (
            "POST",
            b"/v0/topics/t",
            b"a=b",
        )
        assert (list(asked.head.headers), asked.head.client) == ([(b"x", b"y")], "192.0.2.1")
        assert asked.body == b"one two"
        assert (answer.status, list(answer.headers)) == (201, [(b"k", b"v")])
        assert b"".join(answer.body) == b"made it"
        assert not asked.is_closed
        answer.unsent()
        await until(lambda: unsent)
        request.close()
        await until(lambda: asked.is_closed)
        assert joined.desk.open_requests == 0

    run(story)


def test_a_small_answer_is_the_end_of_its_request() -> None:
    """What it holds is free with it, and nothing more is said about it."""

    async def story() -> None:
        joined = Joined(Answering(Answer(200, (), [b"x"])))
        request = joined.relay.ask(head(), 1)
        await answered(request, [])
        assert joined.exchange.asked[0].is_closed
        assert joined.desk.open_requests == 0
        request.close()
        assert not joined.there.sent

    run(story)


def test_a_large_body_and_answer_go_in_parts() -> None:
    """No more than a window of either is on its way, whatever its size."""

    async def story() -> None:
        large = [bytes([turn]) * 100_000 for turn in range(30)]
        joined = Joined(Answering(Answer(200, (), large)))
        request = joined.relay.ask(head(), 1)
        answer = await answered(request, list(large))
        assert joined.exchange.asked[0].body == b"".join(large)
        assert b"".join(answer.body) == b"".join(large)
        assert joined.engine.answers.held_bytes == joined.reader.answers.held_bytes == 0
        request.close()

    run(story)


def test_an_answer_waits_for_room_at_the_other_end() -> None:
    """What a reader does not take stays where it is, and others pass."""

    async def story() -> None:
        joined = Joined(Answering(Answer(200, (), [b"x" * 1_000_000])))
        joined.back.receive = None  # nothing comes through
        request = joined.relay.ask(head(), 1)
        request.finish([])
        await until(lambda: sum(map(len, joined.back.sent)) > WINDOW_BYTES)
        for _ in range(50):
            await asyncio.sleep(0)
        assert sum(map(len, joined.back.sent)) < WINDOW_BYTES + 1000
        joined.desk.close()
        assert joined.engine.answers.held_bytes == 0
        assert joined.exchange.asked[0].is_closed

    run(story)


def test_an_answer_without_room_is_refused_and_what_it_grants_taken_back() -> None:
    """In the engine's process or in the reader, whichever has no room. (§11)"""

    async def story() -> None:
        for is_there in (True, False):
            unsent: list[bool] = []

            def note(unsent: list[bool] = unsent) -> None:
                unsent.append(True)

            exchange = Answering(Answer(200, (), [b"x" * 100_000], unsent=note))
            joined = Joined(exchange, Limits(answers_bytes=150_000))
            (joined.engine if is_there else joined.reader).answers.held_bytes = 100_000
            request = joined.relay.ask(head(), 1)
            answer = await answered(request, [])
            assert answer.status == 429
            await until(lambda unsent=unsent: unsent == [True])
            request.close()

    run(story)


def test_a_refusal_of_a_head_ends_its_body() -> None:
    """It is the answer to the next bytes of a body that is still coming."""

    async def story() -> None:
        joined = Joined()
        joined.exchange.refusal = Answer(404, (), [b"none"])
        request = joined.relay.ask(head(), 1)
        await until(lambda: request.answer is not None)
        assert request.max_body_bytes < 0
        assert request.too_large().status == 404
        assert request.finish([]) is request.answer
        request.close()

    run(story)


def test_a_body_that_is_too_large_or_too_slow_is_refused_as_there() -> None:
    """Before the engine's process knows of it: the reader's exchange has the words."""

    async def story() -> None:
        joined = Joined()
        request = joined.relay.ask(head(), 1)
        assert (request.too_large().status, request.too_slow().status) == (413, 400)
        assert all(asked.is_closed for asked in joined.local.asked)
        joined.local.refusal = Answer(401, (), [])
        assert refusal_of(joined.local, head(), lambda each: each.too_slow()).status == 401
        request.close()
        assert not joined.there.sent

    run(story)


def test_the_bound_of_a_body_is_its_routes() -> None:
    """And that of the engine's process where it has none."""

    async def story() -> None:
        relay = Joined().relay
        bounds = [
            relay.ask(head(path), 1).max_body_bytes
            for path in (b"/v0/topics/t", b"/v0/topics/t/diff", b"/nowhere")
        ]
        assert bounds == [64 << 20, 256 << 10, 64 << 20]

    run(story)


def test_a_client_that_is_gone_is_gone_there() -> None:
    """What waits is cancelled, and an answer that comes for it is dropped."""

    async def story() -> None:
        joined = Joined(Answering(None))
        request = joined.relay.ask(head(), 1)
        request.finish([b""])
        await until(lambda: joined.exchange.asked)
        asked = joined.exchange.asked[0]
        await until(lambda: asked.deliver)
        request.cancel()
        request.close()
        await until(lambda: asked.is_closed)
        assert asked.is_cancelled
        asked.deliver(Answer(200, (), []))
        feed = Feed()
        asked.deliver(Streaming(200, (), feed))
        assert feed.is_closed

    run(story)


class Feed:
    """A stream of pieces, as a test adds them.  Implements `interface.Source`."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_over = self.is_closed = self.fails = False
        self.is_drained = False
        self.wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def take(self) -> bytes | None:
        if self.fails:
            raise RuntimeError
        return self.pieces.pop(0) if self.pieces else None

    def close(self) -> None:
        self.is_closed = True

    def add(self, *pieces: bytes) -> None:
        self.pieces += pieces
        self.wake()

    def end(self) -> None:
        self.is_over = True
        self.wake()


async def streaming(feed: Feed) -> tuple[Joined, Request, Any]:
    joined = Joined(Answering(Streaming(200, (), feed)))
    request = joined.relay.ask(head(b"/v0/watch/x", "GET"), 1)
    answer = await answered(request, [])
    assert isinstance(answer, Streaming)
    return joined, request, answer.feed


def test_a_stream_is_pulled_as_its_client_reads() -> None:
    """Pieces come as they are made, up to a window that the client has not taken."""

    async def story() -> None:
        feed = Feed()
        _, request, carried = await streaming(feed)
        woken: list[int] = []
        carried.listen(lambda: woken.append(1))
        feed.add(b"one")
        await until(lambda: woken)
        assert (carried.take(), carried.take()) == (b"one", None)
        assert carried.is_drained
        feed.add(*[b"x" * 10_000] * 100)
        for _ in range(300):
            await asyncio.sleep(0)
        left = len(feed.pieces)
        assert left > 80  # the client takes nothing
        got = 0
        while got < 1_000_000:
            piece = carried.take()
            got += len(piece or b"")
            await asyncio.sleep(0)
        feed.end()
        await until(lambda: carried.is_over)
        assert feed.is_closed
        request.close()

    run(story)


def test_a_stream_whose_client_is_gone_is_closed_there() -> None:
    """And one that fails ends."""

    async def story() -> None:
        feed = Feed()
        _, request, carried = await streaming(feed)
        carried.close()
        request.close()
        await until(lambda: feed.is_closed)
        broken = Feed()
        _, request, carried = await streaming(broken)
        broken.fails = True
        broken.wake()
        await until(lambda: carried.is_over)
        assert carried.take() is None
        request.close()

    run(story)


def test_a_head_has_no_stream() -> None:
    """HEAD asks for the head alone."""

    async def story() -> None:
        joined = Joined(Answering(Streaming(200, (), None)))
        answer = await answered(joined.relay.ask(head(), 1), [])
        assert (answer.status, list(answer.body)) == (200, [])

    run(story)


def test_a_session_is_borrowed_by_its_name() -> None:
    """Its image comes, or nothing."""

    async def story() -> None:
        joined = Joined()
        images: list[bytes] = []
        joined.relay.borrow("mine", "key", images.append)
        joined.relay.borrow("other", "", images.append)
        await until(lambda: len(images) == 2)
        assert images == [b"image", b""]
        assert joined.lends == [("mine", "key"), ("other", "")]

    run(story)
