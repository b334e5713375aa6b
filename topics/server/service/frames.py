"""The frames of one stream, with the text of their records.

Owns the moment in which a thread reads what is neither in memory nor warm: until then the stream gives
nothing more.  A topic of which records cannot be read ends alone.  Knows nothing of how frames look on a
wire.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from topics.protocol.driver.streams import DamagedFrame, Frame, Pulled, RecordFrame
from topics.protocol.model.errors import Rejection
from topics.protocol.model.records import Buffer
from topics.server.service.shell import Shell, ThreadCall
from topics.server.service.texts import read, refusal_of


class Unreadable(msgspec.Struct, frozen=True):
    """The next records of a topic, or of one of its partitions, cannot be read: no more frames of it come."""

    topic: str
    refusal: Rejection
    partition: int | None = None


class FrameText(NamedTuple):
    """A frame, and the text of its records with their commas."""

    frame: Frame
    texts: Sequence[Buffer] = ()


Found: TypeAlias = FrameText | Unreadable


class Pulling(Protocol):
    """A stream that frames are pulled from."""

    def next_frame(self, now_ms: int) -> "Pulled | Found | None": ...

    def unreadable(self, frame: "RecordFrame | DamagedFrame") -> None: ...


class Frames:
    """The frames of one stream.

    Args:
        wake: Called when a frame that a thread has read is there.
        encoder: By which a frame's text may be written out already (`RecordFrame.texts`): then its
            records are not read.
    """

    def __init__(
        self, stream: Pulling, shell: Shell, wake: Callable[[], None], encoder: str = ""
    ) -> None:
        self._stream = stream
        self._shell = shell
        self._wake = wake
        self._encoder = encoder
        self._kept: Found | None = None
        self.is_reading = False
        """A thread reads the next frame."""
        self._is_closed = False

    @property
    def has_kept(self) -> bool:
        """Whether a frame that was pulled from the stream is still to be given."""
        return self.is_reading or self._kept is not None

    def next(self) -> Found | None:
        """The next frame; None where there is none before `wake`, or the stream's own, is called."""
        if self.is_reading:
            return None
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        frame = self._stream.next_frame(self._shell.now_ms)
        if frame is None or isinstance(frame, FrameText | Unreadable):
            return frame
        return self.read(frame)

    def read(self, frame: Pulled) -> Found | None:
        """A frame that was pulled, with its text; None where a thread reads it first."""
        if isinstance(frame, DamagedFrame):
            self._stream.unreadable(frame)
            return Unreadable(frame.topic, refusal_of(frame.damage), frame.partition)
        if not isinstance(frame, RecordFrame) or self._encoder in frame.texts:
            return FrameText(frame)
        texts = read(frame.records, blocking=False)
        if texts is not None:
            return self._found(frame, texts)
        self._read_apart(frame)
        return None

    def text_now(self, frame: RecordFrame) -> Sequence[Buffer] | None:
        """The text of a frame that was given without being pulled; None where it is not at hand."""
        if self._encoder in frame.texts:
            return ()
        texts = read(frame.records, blocking=False)
        return texts if isinstance(texts, list) else None

    def _found(self, frame: RecordFrame, texts: list[Buffer] | Rejection) -> Found:
        if isinstance(texts, list):
            return FrameText(frame, texts)
        self._stream.unreadable(frame)
        return Unreadable(frame.topic, texts, frame.partition)

    def _read_apart(self, frame: RecordFrame) -> None:
        self.is_reading = True

        def on_read(done: ThreadCall[list[Buffer] | Rejection | None]) -> None:
            self.is_reading = False
            if self._is_closed:
                return
            texts = done.result()
            assert texts is not None
            self._kept = self._found(frame, texts)
            self._wake()

        records = frame.records.still()
        reading = self._shell.read_in_thread(lambda: read(records, blocking=True))
        reading.add_done_callback(on_read)

    def close(self) -> None:
        """Nothing more is wanted."""
        self._is_closed = True
        self._kept = None
