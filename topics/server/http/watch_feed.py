"""A watch session's stream as Server-Sent Events (§7.3-§7.6).

The driver takes one frame at a time; for a client that does not read, only a cursor is kept.
The stream sends a heartbeat when nothing was sent for a while, and a last `error` frame when the
server ends it.  A topic that cannot be read from the disk ends alone.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from topics.protocol.driver.streams import DamagedFrame, Gather, Pulled, RecordFrame, Streams
from topics.protocol.http import sse
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.errors import Rejection
from topics.protocol.model.records import Buffer
from topics.server.http.beats import TICK_S, Beats
from topics.server.service.shell import Phase, Shell, ThreadCall
from topics.server.service.texts import read, refusal_of

SAME_BYTES_MAX: Final = 4 << 10
"""A larger event is not kept beside its data: joining the two takes less than sending them."""

SHUTTING_DOWN: Final = (503, "the server is stopping; connect again")


class WatchFeed:
    """Implements `interface.Source`.

    Args:
        rewind: A composite id that the client remembers.
        beats: What times heartbeats; None: one of its own.

    Raises:
        Rejection: No such session, another key's session, or too many connections.
    """

    def __init__(
        self,
        shell: Shell,
        wid: str,
        rewind: str | None,
        caller: Caller = ANYONE,
        beats: Beats | None = None,
    ) -> None:
        self._shell = shell
        self._loop = asyncio.get_running_loop()
        self._beats = Beats() if beats is None else beats
        # Of the engine that is there now: a node of a cluster may open another, and this stream ends
        # with this one.
        self._stream = Streams(shell.engine).session(
            wid, rewind, self._on_news, shell.now_ms, caller
        )
        self._beat_s = self._stream.heartbeat_ms / 1000
        self._sent_s = 0.0
        self._is_begun = False
        self._is_over = False
        self._kept: bytes | None = None
        """A frame that a thread has read."""
        self._wake: Callable[[], None] | None = None
        self._push: Callable[[bytes], bool] | None = None
        """Set by a driver that writes heartbeats without a turn."""
        self._push_frames: Callable[[RecordFrame], bool] | None = None
        """Set where frames can be pushed, too."""
        self._beat: int | None = None
        """The tick at which one may be due."""
        self._is_beat_due = False
        self._is_reading = False
        """A thread reads the next frame."""

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
            and self._kept is None
            and not self._is_reading
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
        event = frame.texts.get("event")
        if event is None:
            made = self._written_now(frame)
            if not isinstance(made, bytes):
                return False
            event = made
        if not push(event):
            return False
        self._sent_s = self._loop.time()
        self._is_beat_due = False
        return True

    def take(self) -> bytes | None:
        if self._is_over or self._is_reading:
            return None
        piece = self._take_newest() or self._take()
        if piece is not None:
            self._sent_s = self._loop.time()
            self._is_beat_due = False
        return piece

    def _take_newest(self) -> bytes | None:
        """The event that all live streams of the topic get, where another stream has made it; most
        of what a stream takes, and nothing in it depends on the time."""
        if self._kept is not None or self._shell.phase is not Phase.READY:
            return None
        frame = self._stream.newest_frame("event")
        return None if frame is None else frame.texts["event"]

    def _take(self) -> bytes | None:
        shell = self._shell
        if not self._is_begun:
            self._is_begun = True
            return sse.opening(self._stream.id) + sse.heartbeat(shell.now_ms)
        kept, self._kept = self._kept, None
        if kept is not None:
            self._stream.push_by(self._push_frames)
            return kept
        if (last := self._last_word()) is not None:
            return self._end(last)
        frame = None
        if not self._stream.is_drained:
            frame = self._stream.next_frame(shell.now_ms)
        if frame is None:
            return sse.heartbeat(shell.now_ms) if self._is_beat_due else None
        piece = self._written_now(frame)
        if isinstance(piece, bytes):
            return piece
        if isinstance(frame, DamagedFrame):
            return self._unreadable(frame, refusal_of(frame.damage))
        assert isinstance(frame, RecordFrame)
        self._read_apart(frame)
        return None

    def _read_apart(self, frame: RecordFrame) -> None:
        """Have a thread read the frame's records, and wake the driver for them."""
        self._is_reading = True
        self._stream.push_by(None)  # until what is read was taken

        def on_read(done: ThreadCall[list[Buffer] | Rejection | None]) -> None:
            self._is_reading = False
            if self._is_over:
                return
            texts = done.result()
            assert texts is not None
            if isinstance(texts, Rejection):
                self._kept = self._unreadable(frame, texts)
            else:
                self._kept = sse.encode(frame, self._stream.id, texts)
            if self._wake is not None:
                self._wake()

        records = frame.records.still()
        reading = self._shell.read_in_thread(lambda: read(records, blocking=True))
        reading.add_done_callback(on_read)

    # ------------------------------------------------------------------ pieces

    def _on_news(self) -> None:
        if self._wake is not None:
            self._wake()

    def _end(self, last: bytes) -> bytes:
        self._is_over = True
        return last

    def _written_now(self, frame: Pulled) -> Pulled | bytes:
        """The frame's bytes, or the frame where its records are not in memory."""
        if isinstance(frame, DamagedFrame):
            return frame
        if not isinstance(frame, RecordFrame):
            return sse.encode(frame, self._stream.id)
        # Streams that share the frame stand at the same place in this topic: where they watch no
        # other, their ids are the same, and so is the whole event.
        is_same = self._stream.is_shared
        if is_same and (event := frame.texts.get("event")) is not None:
            return event
        texts: Sequence[Buffer] = ()
        if "sse" not in frame.texts:
            found = read(frame.records, blocking=False)
            if found is None or isinstance(found, Rejection):
                return frame
            texts = found
        event = sse.encode(frame, self._stream.id, texts)
        if is_same and len(event) <= SAME_BYTES_MAX:
            frame.texts["event"] = event
        return event

    def _unreadable(self, frame: RecordFrame | DamagedFrame, refusal: Rejection) -> bytes:
        self._stream.unreadable(frame)
        return sse.unreadable(frame.topic, refusal)

    def close(self) -> None:
        self._is_over = True
        self._wake = self._push = self._push_frames = None
        self._stream.push_by(None)
        self._stream.wake_by(self._on_news)
        if self._beat is not None:
            self._beats.forget(self._beat, self._on_beat)
        self._stream.close(self._shell.now_ms)
