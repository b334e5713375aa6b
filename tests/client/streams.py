"""Watching before a script: streams that end as told, and a small server that knows §7.

A `Stream` is an answer whose body comes in pieces and may break off with an error.  A `Model` keeps
topics, sessions and positions like the server does, so that a test can cut, forget and restart
where it likes and see what a watch makes of it.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import httpx

from topics.client import Client, Record, Tombstone, TopicGone, Watched

from .script import Script, error, ok

PREAMBLE = b"retry: 2000\n\n: hb 1748467205000\n\n"
EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8"}


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body for both faces."""

    def __init__(self, pieces: Sequence[bytes], fault: BaseException | None) -> None:
        self.pieces, self.fault, self.closed = pieces, fault, 0

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.fault is not None:
            raise self.fault

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.close()


class Stream:
    """A 200 whose body is the preamble and `frames`, and then ends, or breaks with `fault`."""

    def __init__(
        self, *frames: bytes, fault: BaseException | None = None, preamble: bytes = PREAMBLE
    ) -> None:
        self.pieces = Pieces([piece for piece in (preamble, *frames) if piece], fault)

    @property
    def response(self) -> httpx.Response:
        return httpx.Response(200, headers=EVENT_STREAM, stream=self.pieces)


class Streams(Script):
    """A script whose answers may be streams."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.answers and isinstance(self.answers[0], Stream):
            self.requests.append(request)
            stream: Stream = self.answers.pop(0)
            return stream.response
        return super().__call__(request)

    @property
    def posts(self) -> list[Any]:
        return [json.loads(r.content) for r in self.requests if r.method == "POST"]

    @property
    def resumes(self) -> list[tuple[str, str | None]]:
        """(wid, Last-Event-ID) of every stream that was opened."""
        gets = [r for r in self.requests if r.method == "GET"]
        return [(r.url.path.rpartition("/")[2], r.headers.get("last-event-id")) for r in gets]


def composite(**seqs: int) -> str:
    return urlsafe_b64encode(json.dumps(seqs, separators=(",", ":")).encode()).decode().rstrip("=")


def positions(text: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(urlsafe_b64decode(text + "=="))
    return found


def session(wid: str = "w1", **from_seqs: int) -> httpx.Response:
    """A session that stands at these seqs."""
    return session_of(wid, from_seqs)


def session_of(wid: str, from_seqs: dict[str, int]) -> httpx.Response:
    topics = {
        name: {"from_seq": seq, "head_seq": max(seq, 9), "earliest_seq": 1, "epoch": "e1"}
        for name, seq in from_seqs.items()
    }
    answer = {"wid": wid, "stream_url": f"/v0/watch/{wid}", "heartbeat_ms": 15_000}
    return ok({**answer, "topics": topics})


def frame(event_id: str | None, kind: str, **data: Any) -> bytes:
    head = f"id: {event_id}\n" if event_id is not None else ""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return f"{head}event: {kind}\ndata: {text}\n\n".encode()


def records(first_seq: int, last_seq: int, topic: str = "jobs", **more: Any) -> bytes:
    """A record frame of [first_seq, last_seq], inclusive; its id is of this topic alone."""
    found = [{"$seq": s, "$ts": 5, "data": s, **more} for s in range(first_seq, last_seq + 1)]
    data = {"from_seq": first_seq - 1, "to_seq": last_seq, "head_seq": last_seq}
    return frame(composite(**{topic: last_seq}), "record", topic=topic, records=found, **data)


def gone(topic: str = "jobs", head_seq: int = 9) -> bytes:
    return frame(composite(**{topic: head_seq}), "topic-deleted", topic=topic, head_seq=head_seq)


def short(item: Watched[Any]) -> Any:
    """An item as a test compares it: `jobs 4`, `jobs lost 1-3 cap`, `jobs gone`."""
    match item:
        case (topic, Record(seq=seq)):
            return f"{topic} {seq}"
        case (topic, Tombstone() as lost):
            return f"{topic} lost {lost.gap_from}-{lost.gap_to} {lost.reason}"
        case (topic, TopicGone()):
            return f"{topic} gone"
    return item


class Follow:
    """A watch run by either face until it ends or raises; `got` is what came, `cursors` where the
    watch stood with each item in hand."""

    def __init__(self, *topics: Any, stop: int | None = None, **options: Any) -> None:
        self.topics, self.options, self.stop = topics, options, stop
        self.got: list[Any] = []
        self.items: list[Any] = []
        self.cursors: list[str | None] = []
        self.watch: Any = None

    def __call__(self, client: Any) -> Any:
        self.watch = client.watch(*self.topics, **self.options)
        return self._sync() if isinstance(client, Client) else self._async()

    def _sync(self) -> list[Any]:
        for item in self.watch:
            if self._take(item):
                break
        self.watch.close()
        return self.got

    async def _async(self) -> list[Any]:
        async for item in self.watch:
            if self._take(item):
                break
        await self.watch.aclose()
        return self.got

    def _take(self, item: Any) -> bool:
        self.items.append(item)
        self.got.append(short(item))
        self.cursors.append(self.watch.cursor)
        return len(self.got) == self.stop


class Model:
    """A server with `heads` records in each topic, `limit` to a frame; it ends a stream with the
    deletion of every topic, so that a watch comes to its end.

    `cut` is asked before each stream for the bytes after which it breaks; None is never.
    """

    def __init__(
        self,
        heads: dict[str, int],
        *,
        limit: int = 3,
        cut: Callable[[int], int | None] = lambda _n: None,
        forgets: bool = False,
    ) -> None:
        self.heads, self.limit, self.cut, self.forgets = heads, limit, cut, forgets
        self.sessions: dict[str, dict[str, int]] = {}
        self.posts = 0
        self.streams = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return self._post(json.loads(request.content))
        return self._stream(request)

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        self.posts += 1
        wid = f"w{self.posts}"
        seqs = {
            name: self.heads[name] if begin.get("tail") else begin.get("from_seq", 0)
            for name, begin in body["topics"].items()
        }
        self.sessions[wid] = {**seqs, **positions(body["cursor"])} if "cursor" in body else seqs
        return session_of(wid, self.sessions[wid])

    def _stream(self, request: httpx.Request) -> httpx.Response:
        self.streams += 1
        wid = request.url.path.rpartition("/")[2]
        if wid not in self.sessions:
            return error(404, "not_found")
        at = self.sessions[wid]
        known = request.headers.get("last-event-id")
        if known is not None:
            at.update({name: min(at[name], seq) for name, seq in positions(known).items()})
        text = PREAMBLE + b"".join(self._frames(at))
        cut_at = self.cut(self.streams)
        if cut_at is None or cut_at >= len(text):
            return httpx.Response(200, headers=EVENT_STREAM, stream=Pieces([text], None))
        if self.forgets:
            self.sessions.clear()
        broken = httpx.ReadError("broken")
        return httpx.Response(200, headers=EVENT_STREAM, stream=Pieces([text[:cut_at]], broken))

    def _frames(self, at: dict[str, int]) -> Iterator[bytes]:
        """All there is, in turns; the session's positions run ahead of what may arrive."""
        while any(at[name] < self.heads[name] for name in at):
            for name, head_seq in self.heads.items():
                if name in at and at[name] < head_seq:
                    from_seq, at[name] = at[name], min(at[name] + self.limit, head_seq)
                    yield self._record_frame(name, from_seq, at)
        for name in at:
            data = {"topic": name, "head_seq": self.heads[name]}
            yield frame(composite(**at), "topic-deleted", **data)

    def _record_frame(self, name: str, from_seq: int, at: dict[str, int]) -> bytes:
        found = [{"$seq": s, "$ts": 5, "data": s} for s in range(from_seq + 1, at[name] + 1)]
        data = {"from_seq": from_seq, "to_seq": at[name], "head_seq": self.heads[name]}
        return frame(composite(**at), "record", topic=name, records=found, **data)
