"""Clients of streams without a wire: what is pulled is looked at as frames.

Owns sessions and sockets of one engine in a test's hands, and a short notation for frames, so that
a test can be read as a transcript.
"""

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

import orjson

from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.cursor import composite
from topics.protocol.state.frames import (
    CaughtUpFrame,
    DeletedFrame,
    Frame,
    RecordFrame,
    TombstoneFrame,
)
from topics.protocol.state.watched import Stream
from topics.protocol.state.watches import Session

from .harness import Harness, _records, shown

_wids = count(1)


def records_of(frame: RecordFrame) -> list[Any]:
    found: list[Any] = json.loads(b"[" + _records(frame.records) + b"]")
    return found


def short(frame: Frame) -> str:
    """`t 1-3` or `t 1,3` records; `t lost 1-2 cap`; `t caught up at 3`; `t deleted at 3`; where the topic has
    several partitions `t#0 1-3`."""
    where = frame.topic if frame.partition is None else f"{frame.topic}#{frame.partition}"
    match frame:
        case RecordFrame():
            return f"{where} {_ranges([r['$seq'] for r in records_of(frame)])}"
        case TombstoneFrame():
            stone = frame.stone
            return f"{where} lost {stone.gap_from}-{stone.gap_to} {stone.reason}"
        case CaughtUpFrame():
            return f"{where} caught up at {frame.head_seq}"
        case DeletedFrame():
            return f"{where} deleted at {frame.head_seq}"


def _ranges(seqs: list[int]) -> str:
    spans: list[list[int]] = []
    for seq in seqs:
        if spans and spans[-1][1] == seq - 1:
            spans[-1][1] = seq
        else:
            spans.append([seq, seq])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in spans)


class Pulling:
    """A stream that is pulled by hand; `woken` counts what its driver would have heard."""

    def __init__(self, engine: Harness) -> None:
        self.engine = engine
        self.woken = 0
        self.stream: Stream

    def wake(self) -> None:
        self.woken += 1

    def pull(self) -> Frame | None:
        """One frame; a look that only skipped is followed by the next, as a driver does."""
        while True:
            before = self.woken
            frame = self.engine.engine.watch_commands.next_frame(self.stream, self.engine.now_ms)
            if frame is not None or self.woken == before:
                return frame

    def frames(self, most: int = 1000) -> list[Frame]:
        found: list[Frame] = []
        while len(found) < most and (frame := self.pull()) is not None:
            found.append(frame)
        return found

    def told(self, most: int = 1000) -> list[str]:
        """What comes now, in short."""
        return [short(frame) for frame in self.frames(most)]


class Viewer(Pulling):
    """A session and its stream; `topics` is the map of the POST, or names read from the start."""

    def __init__(
        self, engine: Harness, *names: str, topics: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(engine)
        lenient = options.pop("lenient", False)
        chosen = topics if topics is not None else {name: {} for name in names or ("t",)}
        body = orjson.dumps({"topics": chosen, **options})
        wid = f"wid_{next(_wids)}"
        command = parse_watch(body, engine.limits, wid=wid, lenient=lenient)
        self.posted = shown(engine.ask(command))
        self.wid: str = self.posted["wid"]

    @property
    def session(self) -> Session:
        return self.engine.engine.watches.sessions[self.wid]

    def open(self, last_id: str | None = None) -> "Viewer":
        _, self.stream = self.engine.engine.watch_commands.open_stream(
            self.wid, last_id, self.wake, self.engine.now_ms
        )
        return self

    def close(self) -> None:
        watches = self.engine.engine.watches
        watches.close_session_stream(self.session, self.stream, self.engine.now_ms)

    @property
    def id(self) -> str:
        """The id that a frame pulled last carries."""
        return composite(self.session.watched.values()).decode()

    @property
    def cursors(self) -> dict[str, int]:
        return {name: watched.cursor for name, watched in self.session.watched.items()}


class Socket(Pulling):
    """A WebSocket's stream."""

    def __init__(self, engine: Harness) -> None:
        super().__init__(engine)
        self.stream = engine.engine.watch_commands.open_socket(self.wake)

    def subscribe(self, *names: str, begin: Begin | None = None, **view: Any) -> None:
        asked = View(**{"limit": 256, "budget_bytes": 1 << 20, **view})
        topics = {name: begin or Begin() for name in names}
        self.engine.engine.watch_commands.subscribe(self.stream, topics, asked, self.engine.now_ms)

    def unsubscribe(self, name: str) -> bool:
        return self.engine.engine.watches.unsubscribe(self.stream, name)

    def close(self) -> None:
        self.engine.engine.watches.close_socket(self.stream)
