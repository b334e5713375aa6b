"""Streams of another process, as those of an engine that is here: their messages, taken one by one."""

from collections import deque
from collections.abc import Callable, Mapping

from topics.protocol.driver.client_states import ClientState
from topics.protocol.driver.reply import Ticket
from topics.protocol.driver.streams import (
    DamagedFrame,
    Gather,
    RecordFrame,
    SessionTopic,
    StreamEnd,
)
from topics.protocol.model.commands import Begin, Claim, View
from topics.protocol.model.cursor import positions_in
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.links import streams
from topics.server.links.codec import decode_frame, decode_rejection, encode_command
from topics.server.links.framing import Message
from topics.server.links.link import Link, RemoteStream
from topics.server.links.streams import ENDED, FRAME, MessageKind
from topics.server.service.frames import Found
from topics.server.service.jobs import Job
from topics.server.service.service import Opened, Positions, WatchSession
from topics.server.service.slots import Slot


class _RemoteFrames:
    """A stream of frames."""

    def __init__(self, stream: RemoteStream) -> None:
        self._stream = stream
        self._ended_by: StreamEnd | None = None

    @property
    def ended_by(self) -> StreamEnd | None:
        self._look()
        return self._ended_by

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._stream.wake_by(wake)

    def unreadable(self, frame: RecordFrame | DamagedFrame) -> None:
        """Where the text was read, its topic has ended."""

    def _look(self) -> None:
        """Take what is no frame."""
        stream = self._stream
        while (message := stream.next) is not None and message.kind != FRAME:
            self._on_message(stream.take())
        if self._ended_by is None and stream.is_lost:
            self._ended_by = StreamEnd.MOVED

    def _on_message(self, message: Message) -> None:
        if message.kind == ENDED and message.head:
            self._ended_by = StreamEnd[streams.decode_name(message.head)]

    def _next(self) -> tuple[bytes, Found] | None:
        self._look()
        if self._stream.next is None:
            return None
        message = self._stream.take()
        head = streams.decode_frame_head(message.head)
        return head.id, decode_frame(head.frame, message.text)


class RemoteSession(_RemoteFrames):
    """Implements `service.WatchSession`."""

    is_shared = False

    def __init__(self, stream: RemoteStream) -> None:
        super().__init__(stream)
        opened = streams.decode_session_opened(stream.head)
        self.heartbeat_ms = opened.heartbeat_ms
        self.id = opened.id

    @property
    def is_drained(self) -> bool:
        self._look()
        return self._stream.next is None and self._ended_by is None

    def push_by(self, push: Callable[[RecordFrame], bool] | None) -> None:
        """Frames of another process are pulled."""

    def gather_by(self, gather: Gather, now_ms: Callable[[], int]) -> bool:
        return False

    def newest_frame(self, made: str) -> RecordFrame | None:
        return None

    def next_frame(self, now_ms: int) -> Found | None:
        found = self._next()
        if found is None:
            return None
        self.id = found[0]
        return found[1]

    def state(self) -> ClientState:
        return ClientState(there=positions_in(self.id), asked=self._stream.number)

    def close(self, now_ms: int) -> None:
        self._stream.close()


class RemoteSocket(_RemoteFrames):
    """Implements `service.WatchSocket`."""

    def __init__(self, stream: RemoteStream) -> None:
        super().__init__(stream)
        self._asked: deque[Callable[[Message], None] | None] = deque()
        """Who wants the replies to come, in their order."""

    def next_frame(self, now_ms: int) -> Found | None:
        found = self._next()
        return None if found is None else found[1]

    def wake_by(self, wake: Callable[[], None]) -> None:
        def look() -> None:
            self._look()  # replies wait for nobody to take them
            wake()

        self._stream.wake_by(look)

    def _on_message(self, message: Message) -> None:
        if message.kind == ENDED:
            super()._on_message(message)
            return
        deliver = self._asked.popleft()
        if deliver is not None:
            deliver(message)

    def _ask(self, kind: MessageKind, head: bytes, deliver: Callable[[Message], None]) -> Ticket:
        self._asked.append(deliver)
        self._stream.say(kind, head)
        return Ticket(_nothing)

    def subscribe(
        self,
        topics: Mapping[str, Begin],
        view: View,
        now_ms: int,
        deliver: Opened[Positions],
        position: str | None = None,
    ) -> Ticket:
        def told(message: Message) -> None:
            if message.kind == MessageKind.REFUSED:
                deliver(decode_rejection(message.head))
            else:
                deliver(streams.decode_positions(message.head))

        asked = streams.Subscribe(dict(topics), view)
        return self._ask(MessageKind.SUBSCRIBE, streams.encode(asked), told)

    def unsubscribe(self, name: str, deliver: Callable[[bool], None]) -> Ticket:
        return self._ask(
            MessageKind.UNSUBSCRIBE,
            streams.encode(name),
            lambda message: deliver(streams.decode_flag(message.head)),
        )

    def adopt(self, standing: SessionTopic) -> None:
        """Go on there with what is watched here."""
        self._stream.say(MessageKind.ADOPT, streams.encode(standing))

    @property
    def number(self) -> int:
        """By which the other process knows it."""
        return self._stream.number

    def close(self) -> None:
        self._asked.clear()
        self._stream.close()


class RemoteJobs:
    """Implements `jobs.PushedJobs`."""

    is_making = False

    def __init__(self, stream: RemoteStream, queue: str) -> None:
        self._stream = stream
        self._queue = queue
        self._ended_by: Rejection | None = None

    @property
    def ended_by(self) -> Rejection | None:
        message = self._stream.next
        if message is not None and message.kind == ENDED:
            self._stream.take()
            self._ended_by = decode_rejection(message.head) if message.head else None
        if self._ended_by is None and self._stream.is_lost:
            self._ended_by = self._stream.ended_by or _moved()
        return self._ended_by

    @property
    def is_drained(self) -> bool:
        return self._stream.next is None and not self._stream.is_over

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._stream.wake_by(wake)

    def take(self) -> list[Job]:
        message = self._stream.next
        if message is None or message.kind != MessageKind.JOB:
            return []
        self._stream.take()
        return [(streams.decode_number(message.head), message.text)]

    def state(self) -> ClientState:
        return ClientState(there={self._queue: None}, asked=self._stream.number)

    def close(self) -> None:
        self._stream.close()


def _moved() -> Rejection:
    """The other process has ended a stream, and did not say why."""
    return Rejection(ErrorCode.NOT_LEADER, StreamEnd.MOVED.value)


# ---------------------------------------------------------------------- opening


def open_session(
    link: Link, wid: str, rewind: str | None, slot: Slot, deliver: Opened[WatchSession]
) -> Ticket:
    def opened(stream: RemoteStream | Rejection) -> None:
        deliver(stream if isinstance(stream, Rejection) else RemoteSession(stream))

    head = streams.encode(streams.OpenSession(wid, rewind))
    return link.open(streams.SESSION, head, slot, opened)


def open_socket(
    link: Link, slot: Slot, deliver: "Callable[[RemoteSocket | Rejection], None]"
) -> Ticket:
    def opened(stream: RemoteStream | Rejection) -> None:
        deliver(stream if isinstance(stream, Rejection) else RemoteSocket(stream))

    return link.open(streams.SOCKET, b"", slot, opened)


def open_jobs(
    link: Link, asked: Claim, slot: Slot, deliver: "Callable[[RemoteJobs | Rejection], None]"
) -> Ticket:
    def opened(stream: RemoteStream | Rejection) -> None:
        deliver(stream if isinstance(stream, Rejection) else RemoteJobs(stream, asked.topic))

    _, head, _ = encode_command(asked)
    return link.open(streams.JOBS, head, slot, opened)


def require_session(link: Link, wid: str, slot: Slot, deliver: Opened[None]) -> Ticket:
    return link.open(streams.HAS_SESSION, streams.encode(wid), slot, _known(deliver))


def require_queue(link: Link, name: str, slot: Slot, deliver: Opened[None]) -> Ticket:
    return link.open(streams.HAS_QUEUE, streams.encode(name), slot, _known(deliver))


def _known(deliver: Opened[None]) -> "Callable[[RemoteStream | Rejection], None]":
    def opened(stream: RemoteStream | Rejection) -> None:
        if isinstance(stream, Rejection):
            deliver(stream)
        else:
            stream.close()
            deliver(None)

    return opened


def _nothing() -> None:
    return
