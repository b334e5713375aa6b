"""A WebSocket in a reader: what the reader may serve of it, and what is relayed.

Owns which topic is subscribed where.  Subscriptions to topics that are this reader's are its own, in a
socket of its own exchange; every other command goes to the engine's process, which has the other half
of the WebSocket and with it the handshake, the count of connections and the end.

Invariants: commands are carried out in their order, so one of this process waits for the replies to
those before it; a topic is subscribed in one half.
"""

import pickle
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from topics.protocol.driver.streams import StreamEnd
from topics.protocol.http import websocket
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.server.http.interface import Answer, Socket
from topics.server.http.socket_feed import SocketFeed
from topics.server.readers.message_frames import Kind
from topics.server.readers.relayed_socket import RelayedSocket
from topics.server.readers.shell import ReaderShell
from topics.server.service.shell import Phase

_SUBSCRIBED: Final = b'{"op":"subscribed"'


class _Asked(NamedTuple):
    """A command that was relayed, and has no reply yet.

    Attributes:
        adds: Topics that it subscribes.
        removes: A topic that it unsubscribes.
    """

    adds: tuple[str, ...] = ()
    removes: str = ""


class Handshake:
    """Implements `interface.Opening`: the engine's process judges.

    Args:
        open_joint: Makes the socket, once it is accepted.
    """

    def __init__(self, relayed: RelayedSocket, open_joint: Callable[[], "JointSocket"]) -> None:
        self._relayed = relayed
        self._open_joint = open_joint

    def then(self, deliver: Callable[[Answer | Socket], None]) -> None:
        def judged(refused: Answer | None) -> None:
            deliver(self._open_joint() if refused is None else refused)

        self._relayed.then(judged)

    def cancel(self) -> None:
        self._relayed.cancel()


class JointSocket:
    """Implements `interface.Socket`.

    Args:
        make_local: Opens the half that is this process's; an Answer where it may not be opened.
        is_theirs: Whether this reader may serve a watch of a topic.
    """

    def __init__(
        self,
        relayed: RelayedSocket,
        shell: ReaderShell,
        limits: Limits,
        make_local: Callable[[], object],
        is_theirs: Callable[[str], bool],
    ) -> None:
        self._relayed = relayed
        self._shell = shell
        self._limits = limits
        self._make_local = make_local
        self._is_theirs = is_theirs
        self._local: SocketFeed | None = None
        self._may_be_local = True
        self._asked: deque[_Asked] = deque()
        self._there: set[str] = set()
        """Topics that are subscribed in the engine's process."""
        self._held: bytes | None = None
        """A command that waits: for replies, or for the log."""
        self._replies: deque[bytes] = deque()
        self._is_local_next = False
        self._wake: Callable[[], None] = _nothing

    # ------------------------------------------------------------------ commands

    @property
    def is_busy(self) -> bool:
        if self._held is not None or self._relayed.is_busy:
            return True
        return self._local is not None and self._local.is_busy

    def hear(self, text: bytes) -> None:
        if not self._may_concern(text):
            self._relay(text, _Asked())
        elif self._asked:
            self._held = text  # until those before it have their replies
        else:
            self._carry_out(text)

    def hear_binary(self) -> None:
        self._asked.append(_Asked())
        self._relayed.say(Kind.BINARY)

    def _may_concern(self, text: bytes) -> bool:
        """Whether it may be a subscription, which a larger message is not."""
        if len(text) > self._limits.max_command_bytes:
            return False
        return b"ubscribe" in text or b"\\u" in text

    def _relay(self, text: bytes, asked: _Asked) -> None:
        self._asked.append(asked)
        self._relayed.say(Kind.TEXT, text)

    def _go_on(self) -> None:
        """What a held command waited for may be there."""
        if self._held is not None and not self._asked:
            text, self._held = self._held, None
            self._carry_out(text)
            self._wake()

    def _carry_out(self, text: bytes) -> None:
        """Carry out a command here, or relay it; all before it have their replies."""
        try:
            asked = websocket.parse(text, self._limits)
        except websocket.BadText:
            self._relay(text, _Asked())
            return
        match asked.order:
            case websocket.Subscribe(topics, view):
                if self._shell.can_follow and not self._shell.look():
                    self._held = text
                    self._shell.when_current(self._go_on)
                else:
                    self._subscribe(text, asked.request_id, tuple(topics), strong=view.strong)
            case websocket.Unsubscribe(topic):
                if self._local is not None and topic in self._local.stream.names:
                    self._local.hear(text)
                else:
                    self._relay(text, _Asked(removes=topic))
            case _:
                self._relay(text, _Asked())

    def _subscribe(
        self, text: bytes, request_id: bytes, names: tuple[str, ...], *, strong: bool
    ) -> None:
        here = set() if self._local is None else set(self._local.stream.names)
        most = self._limits.max_watch_topics
        if len(here | self._there | set(names)) > most:
            why = f"a socket watches at most {most} topics"
            refusal = Rejection(ErrorCode.INVALID_REQUEST, why)
            self._replies.append(websocket.refused(request_id, refusal))
            self._wake()
            return
        is_here = not strong and self._shell.can_follow and self._there.isdisjoint(names)
        local = self._local_half() if is_here and all(map(self._is_theirs, names)) else None
        if local is None:
            self._relay(text, _Asked(adds=names))
            return
        local.hear(text)

    def _local_half(self) -> SocketFeed | None:
        if self._local is None and self._may_be_local:
            made = self._make_local()
            if isinstance(made, SocketFeed):
                self._local = made
                made.listen(self._on_news)
            else:
                self._may_be_local = False
        return self._local

    # ------------------------------------------------------------------ messages

    @property
    def is_over(self) -> bool:
        return self._relayed.is_over

    @property
    def is_drained(self) -> bool:
        return False

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._relayed.listen(wake)
        wake()

    def _on_news(self) -> None:
        self._wake()

    def take(self) -> bytes | None:
        if self._replies:
            return self._replies.popleft()
        self._is_local_next = not self._is_local_next
        if self._is_local_next:
            return self._take_local() or self._take_relayed()
        return self._take_relayed() or self._take_local()

    def _take_relayed(self) -> bytes | None:
        taken = self._relayed.take()
        if taken is None:
            return None
        kind, message = taken
        if kind is Kind.REPLY:
            self._on_reply(message)
        return message

    def _on_reply(self, message: bytes) -> None:
        """A command that was relayed has its reply."""
        asked = self._asked.popleft()
        is_done = message.startswith(_SUBSCRIBED)
        if asked.removes:
            self._there.discard(asked.removes)
        elif asked.adds and is_done:
            self._there.update(asked.adds)
            if self._local is not None:
                for name in asked.adds:
                    self._local.stream.unsubscribe(name)
        if not self._asked:
            self._go_on()

    def _take_local(self) -> bytes | None:
        local = self._local
        if local is None:
            return None
        has_ended = self._shell.phase is not Phase.READY or local.stream.ended_by is not None
        if not has_ended or local.has_replies:
            return local.take()
        # The engine's half says so to the client; or it has what this one may not serve any more.
        if local.stream.ended_by is StreamEnd.MOVED:
            if local.has_frame:
                return local.take()
            self._move(local)
        self._local, self._may_be_local = None, False
        local.close()
        return None

    def _move(self, local: SocketFeed) -> None:
        """Have the engine's process go on with what is watched here, from where it stands.  That knows
        whether the topic is there any more, and what its last head was."""
        for name, standing in local.stream.standings():
            self._there.add(name)
            self._relayed.say(Kind.MOVED, pickle.dumps(standing))

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        self._wake = _nothing
        self._held = None
        self._asked.clear()
        self._replies.clear()
        local, self._local = self._local, None
        if local is not None:
            local.close()
        self._relayed.close()


def _nothing() -> None:
    return
