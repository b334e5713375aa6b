"""Readers of streams that move between nodes: server-sent events, WebSockets, and the Python client.

Each keeps its position as its protocol says, and goes on from there at another node: when it has seen
enough, and when the stream breaks or is silent.  It writes down each record once, and what it finds out
of order, doubled, or missing without a word.
"""

import http.client
import json
import random
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import websockets.exceptions
from websockets.sync.client import connect

from tests.nodes import NodeServer
from topics import Client as TopicsClient
from topics import Record, TopicsError
from topics.client.retry import Retry

from .load import (
    AGING,
    CAPPED,
    COPIES,
    LOGS,
    LOSSY,
    PASSING,
    WAKE,
    Client,
    Load,
    NotApplied,
    Unknown,
)

HEARTBEAT_MS: Final = 1000
SILENT_S: Final = 6.0
"""A stream without a byte for so long is left."""
WATCHED: Final = (*LOGS, *COPIES.values(), CAPPED, AGING)
LAST: Final = "the end"
"""The last record of a topic."""


class Seen:
    """What one watcher saw of one topic.

    Attributes:
        records: Text by seq.
        position: The seq that was passed last.
        skipped: Seqs without a record and without a tombstone: they have to be deleted ones.
        faults: What may not be.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records: dict[int, str] = {}
        self.position = 0
        self.skipped: set[int] = set()
        self.lost = 0
        self.faults: list[str] = []

    def record(self, seq: int, text: str) -> None:
        if seq <= self.position:
            self.faults.append(f"{self.topic}: seq {seq} after {self.position}: {text}")
            return
        self.pass_to(seq - 1)
        self.position = seq
        self.records[seq] = text

    def pass_to(self, seq: int) -> None:
        """Positions up to here had no record."""
        self.skipped.update(range(self.position + 1, seq + 1))
        self.position = max(self.position, seq)

    def tombstone(self, first: int, last: int, reason: str) -> None:
        reasons = LOSSY.get(self.topic, set())
        # A stream that begins anew below the earliest record calls caps and expiry by another name.
        if reason not in reasons | ({"from_seq_too_old"} if reasons else set()):
            self.faults.append(f"{self.topic}: {first} to {last} are lost, {reason}")
        if first <= self.position:
            self.faults.append(f"{self.topic}: {first} is lost after {self.position} was passed")
        self.pass_to(first - 1)
        self.lost += last - first + 1
        self.position = max(self.position, last)


class Watcher(Client):
    """One stream after another over topics.

    Attributes:
        seen: By topic.
        moves: Streams that it has opened.
    """

    def __init__(self, load: Load, seed: int, topics: tuple[str, ...] = WATCHED) -> None:
        super().__init__(load, seed)
        self.seen = {topic: Seen(topic) for topic in topics}
        self.moves = 0

    @property
    def is_at_end(self) -> bool:
        ends = self.load.ends
        return bool(ends) and all(seen.position >= ends[name] for name, seen in self.seen.items())

    def call(self) -> None:
        self.move()
        self.follow(self.rng.choice((3, 30, 300)))

    def finish(self) -> None:
        while not self.is_at_end and not self.load.is_cut.is_set():
            self.call()

    @abstractmethod
    def follow(self, most: int) -> None:
        """See this many frames, or what there is until the stream breaks."""

    def take(self, event: str, frame: dict[str, Any]) -> None:
        """A frame, whose names are those of both protocols."""
        match event:
            case "record":
                seen = self.seen[frame["topic"]]
                for record in frame["records"]:
                    seen.record(record["$seq"], record["data"])
                seen.pass_to(frame["to_seq"])
            case "tombstone":
                gap = frame["gap_from"], frame["gap_to"], frame["reason"]
                self.seen[frame["topic"]].tombstone(*gap)
            case "caught_up" | "caught-up":
                self.seen[frame["topic"]].pass_to(frame["head_seq"])
            case "topic_deleted" | "topic-deleted":
                self.seen[frame["topic"]].faults.append(f"deleted: {frame}")


class EventWatcher(Watcher):
    """Server-sent events.  Its session is sometimes taken to another node, which forwards to the first
    one; else it makes a new one from the last id."""

    def __init__(self, load: Load, seed: int, topics: tuple[str, ...] = WATCHED) -> None:
        super().__init__(load, seed, topics)
        self._cursor: str | None = None

    def follow(self, most: int) -> None:
        body: dict[str, object] = {
            "topics": {topic: {"from_seq": 0} for topic in self.seen},
            "heartbeat_ms": HEARTBEAT_MS,
        }
        if self._cursor is not None:
            body["cursor"] = self._cursor
        try:
            session, _ = self.asker.ask(self.node, "/v0/watch", body)
        except (Unknown, NotApplied):
            return
        if self.rng.random() < 0.3:
            self.move()
        self.moves += 1
        with suppress(OSError, http.client.HTTPException):
            self.stream(self.node, session["stream_url"], session["cursor"], most)

    def stream(self, node: NodeServer, url: str, cursor: str, most: int) -> None:
        wire = http.client.HTTPConnection("127.0.0.1", node.port, timeout=SILENT_S)
        try:
            wire.request("GET", f"{url}?last_event_id={cursor}")
            answer = wire.getresponse()
            if answer.status != 200:
                # The node that has the session is dead, or was: the next call makes a new one.
                assert answer.status in (404, 429, 503), (answer.status, answer.read())
                return
            for block in blocks(answer):
                fields = dict(line.split(": ", 1) for line in block if not line.startswith(":"))
                if fields.get("event") == "error":
                    return
                if "event" in fields:
                    self.take(fields["event"], json.loads(fields["data"]))
                    most -= 1
                self._cursor = fields.get("id", self._cursor)
                if most <= 0 or self.is_at_end:
                    return
        finally:
            wire.close()


def blocks(answer: http.client.HTTPResponse) -> Iterator[list[str]]:
    """Whole ones: what a broken stream has begun is nothing."""
    lines: list[str] = []
    while line := answer.readline():
        if line == b"\n":
            yield lines
            lines = []
        else:
            lines.append(line.decode().rstrip("\n"))


class SocketWatcher(Watcher):
    """A WebSocket, which keeps positions by topic."""

    def follow(self, most: int) -> None:
        topics = {name: {"from_seq": seen.position} for name, seen in self.seen.items()}
        try:
            with connect(
                f"ws://127.0.0.1:{self.node.port}/v0/ws",
                open_timeout=SILENT_S,
                close_timeout=1,
                compression=None,
            ) as socket:
                self.moves += 1
                socket.send(json.dumps({"op": "subscribe", "topics": topics}))
                while most > 0 and not self.is_at_end:
                    frame = json.loads(socket.recv(timeout=SILENT_S))
                    if frame["op"] == "error":
                        return
                    self.take(frame["op"], frame)
                    most -= 1
        except (OSError, websockets.exceptions.WebSocketException):
            return


class PythonWatcher(Watcher):
    """`Client.watch`, whose cursor another client takes on.  It waits for as long as nothing comes, and
    may have seen all before it is known that this was all: a record in a topic more ends that wait."""

    def __init__(self, load: Load, seed: int, topics: tuple[str, ...] = WATCHED) -> None:
        super().__init__(load, seed, topics)
        self._cursor: str | None = None

    def follow(self, most: int) -> None:
        retry = Retry(for_s=2.0)
        with TopicsClient(self.node.url, retry=retry, timeout_s=SILENT_S) as client:
            self.moves += 1
            try:
                with client.watch(
                    [*self.seen, WAKE],
                    from_seq=0,
                    cursor=self._cursor,
                    heartbeat_ms=HEARTBEAT_MS,
                ) as watch:
                    for topic, item in watch:
                        seen = self.seen.get(topic)
                        if seen is None:
                            pass
                        elif isinstance(item, Record):
                            seen.record(item.seq, item.data)
                        elif hasattr(item, "gap_from"):
                            seen.tombstone(item.gap_from, item.gap_to, item.reason)
                        else:
                            seen.faults.append(f"{topic}: {item}")
                        self._cursor = watch.cursor
                        most -= 1
                        if most <= 0 or self.is_at_end:
                            return
            except TopicsError:
                return


def watchers(load: Load, rng: random.Random) -> list[Watcher]:
    """One of each kind, and one for records that are in the leader's memory only."""
    return [
        EventWatcher(load, rng.randrange(1 << 30)),
        SocketWatcher(load, rng.randrange(1 << 30)),
        PythonWatcher(load, rng.randrange(1 << 30)),
        EventWatcher(load, rng.randrange(1 << 30), (PASSING,)),
    ]
