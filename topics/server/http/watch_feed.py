"""A watch session's stream as Server-Sent Events (§7.3-§7.6).

The driver takes one frame at a time; for a client that does not read, only a cursor is kept.
The stream sends a heartbeat when nothing was sent for a while, and a last `error` frame when the
server ends it.  A topic that cannot be read from the disk ends alone.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from topics.protocol.driver.streams import Frame, Gather, RecordFrame
from topics.protocol.faces.http import sse
from topics.protocol.model.records import Buffer
from topics.server.http.beats import TICK_S, Beats
from topics.server.service.clients import Client
from topics.server.service.frames import Frames, Unreadable
from topics.server.service.service import WatchSession
from topics.server.service.shell import Phase, Shell

SAME_BYTES_MAX: Final = 4 << 10
"""A larger event is not kept beside its data: joining the two takes less than sending them."""

SHUTTING_DOWN: Final = (503, "the server is stopping; connect again")


class WatchFeed:
    """Implements `interface.Source`.

    Args:
        stream: Which is open.
        beats: What times heartbeats; None: one of its own.
        client: Leaves with the stream.
    """

    def __init__(
        self,
        shell: Shell,
        stream: WatchSession,
        beats: Beats | None = None,
        client: Client | None = None,
    ) -> None:
        self._shell = shell
        self._loop = asyncio.get_running_loop()
        self._beats = Beats() if beats is None else beats
        self._stream = stream
        self._client = client
        stream.wake_by(self._on_news)
        self._frames = Frames(stream, shell, self._on_news, "sse")
        self._beat_s = self._stream.heartbeat_ms / 1000
        self._sent_s = 0.0
        self._is_begun = False
        self._is_over = False
        self._wake: Callable[[], None] | None = None
        self._push: Callable[[bytes], bool] | None = None
        """Set by a driver that writes heartbeats without a turn."""
        self._push_frames: Callable[[RecordFrame], bool] | None = None
        """Set where frames can be pushed, too."""
        self._beat: int | None = None
        """The tick at which one may be due."""
        self._is_beat_due = False
        self._is_apart = False
        """A thread reads the next frame, or has read it: none is pushed before that."""

    def _last_word(self) -> bytes | None:
        """Why the server ends the stream; None while it does not."""
        if (why := self._stream.ended_by) is not None:
            return sse.ended(why)
        if self._shell.phase is not Phase.READY:
            return sse.encode_error(*SHUTTING_DOWN)
        return None

    # ------------------------------------------------------------------ what the driver takes

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def is_drained(self) -> bool:
        # What else there may be to take, a frame that was read, a heartbeat, an end, comes with a
        # wake of its own.
        return self._is_begun and self._stream.is_drained and not self._is_over

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._stream.wake_by(wake)
        self._sent_s = self._loop.time()
        self._arm_beat()
        wake()

    def _arm_beat(self) -> None:
        self._beat = self._beats.set(self._sent_s + self._beat_s, self._on_beat)

    def _on_beat(self, now_s: float) -> None:
        if now_s - self._sent_s > self._beat_s - TICK_S:
            self._sent_s = now_s
            if not self._push_beat():
                self._is_beat_due = True
                if self._wake is not None:
                    self._wake()
        self._arm_beat()

    def _push_beat(self) -> bool:
        """Write a heartbeat without a turn, as nothing else is to be sent."""
        stream, shell, push = self._stream, self._shell, self._push
        is_idle = (
            push is not None
            and stream.is_drained
            and stream.ended_by is None
            and self._is_begun
            and not self._is_apart
            and shell.phase is Phase.READY
        )
        return is_idle and push is not None and push(sse.heartbeat(shell.now_ms))

    def push_by(self, push: Callable[[bytes], bool], gather: Gather | None = None) -> None:
        self._push = push
        if gather is not None and self._stream.gather_by(gather, lambda: self._shell.now_ms):
            self._push_frames = self._push_frame
            self._stream.push_by(self._push_frame)

    def _push_frame(self, frame: RecordFrame) -> bool:
        """The stream's `push`: what a walk over all streams of the topic gives to this one.  While
        something else comes first, a frame that a thread reads or an end, the stream has none."""
        push = self._push
        if push is None or not self._stream.is_shared:
            return False
        event = frame.texts.get("event") or self._event_now(frame)
        if event is None or not push(event):
            return False
        self._sent_s = self._loop.time()
        self._is_beat_due = False
        return True

    def take(self) -> bytes | None:
        if self._is_over or self._frames.is_reading:
            return None
        piece = self._take_newest() or self._take()
        if piece is not None:
            self._sent_s = self._loop.time()
            self._is_beat_due = False
        return piece

    def _take_newest(self) -> bytes | None:
        """The event that all live streams of the topic get, where another stream has made it; most
        of what a stream takes, and nothing in it depends on the time."""
        if self._is_apart or self._shell.phase is not Phase.READY:
            return None
        frame = self._stream.newest_frame("event")
        return None if frame is None else frame.texts["event"]

    def _take(self) -> bytes | None:
        shell = self._shell
        if not self._is_begun:
            self._is_begun = True
            return sse.opening(self._stream.id) + sse.heartbeat(shell.now_ms)
        if not self._is_apart:
            if (last := self._last_word()) is not None:
                return self._end(last)
            if self._stream.is_drained:
                return sse.heartbeat(shell.now_ms) if self._is_beat_due else None
        found = self._frames.next()
        if found is None:
            if self._frames.is_reading:
                self._is_apart = True
                self._stream.push_by(None)  # until what is read was taken
                return None
            return sse.heartbeat(shell.now_ms) if self._is_beat_due else None
        if self._is_apart:
            self._is_apart = False
            self._stream.push_by(self._push_frames)
        if isinstance(found, Unreadable):
            return sse.unreadable(found.topic, found.refusal, found.partition)
        return self._event(found.frame, found.texts)

    # ------------------------------------------------------------------ pieces

    def _on_news(self) -> None:
        if self._wake is not None:
            self._wake()

    def _end(self, last: bytes) -> bytes:
        self._is_over = True
        return last

    def _event_now(self, frame: RecordFrame) -> bytes | None:
        """The frame's bytes; None where its records are not in memory."""
        found = self._frames.text_now(frame)
        return None if found is None else self._event(frame, found)

    def _event(self, frame: Frame, texts: Sequence[Buffer]) -> bytes:
        if not isinstance(frame, RecordFrame) or not self._stream.is_shared:
            return sse.encode(frame, self._stream.id, texts)
        # Streams that share the frame stand at the same place in this topic: where they watch no
        # other, their ids are the same, and so is the whole event.
        event = frame.texts.get("event")
        if event is None:
            event = sse.encode(frame, self._stream.id, texts)
            if len(event) <= SAME_BYTES_MAX:
                frame.texts["event"] = event
        return event

    def close(self) -> None:
        self._is_over = True
        self._wake = self._push = self._push_frames = None
        self._frames.close()
        self._stream.push_by(None)
        self._stream.wake_by(self._on_news)
        if self._beat is not None:
            self._beats.forget(self._beat, self._on_beat)
        self._stream.close(self._shell.now_ms)
        if self._client is not None:
            self._client.leave()
