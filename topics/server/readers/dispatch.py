"""Which process serves a request of a connection that a reader carries whole (HTTP/2, WebSocket).

Implements `interface.Exchange`.  A read of a topic that is this reader's, a list, and the stream of a
watch session that is lent to it are its own exchange's; every other request is relayed.  Where that
depends on what the log has yet to say, it is decided once that is applied.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics.protocol.model.access import Caller
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import (
    Admission,
    Answer,
    Exchange,
    Head,
    Opening,
    Pending,
    Streaming,
)
from topics.server.readers.relay import Relay, body_bytes_max, refusal_of
from topics.server.readers.shell import ReaderShell
from topics.server.readers.sorting import Kind, asked_by


class Sessions(Protocol):
    """The watch sessions that are lent to this reader."""

    def has(self, wid: str) -> bool:
        """Whether a session is here."""

    def serves(self, wid: str) -> bool:
        """Whether a session that is here can be served here, which is from now on in use; one that
        cannot be goes back."""

    def take(self, image: bytes) -> None:
        """A session was lent."""


class Dispatch:
    """The requests of one connection that stays here.

    Args:
        local: This process's exchange.
    """

    def __init__(
        self, local: TopicsExchange, relay: Relay, shell: ReaderShell, sessions: Sessions
    ) -> None:
        self._local = local
        self._relay = relay
        self._shell = shell
        self._sessions = sessions
        self._lane = relay.number()

    def begin(self, head: Head) -> Answer | Admission:
        match asked_by(head.method, head.path):
            case (Kind.RECORDS, name):
                return self._begin_read(head, name)
            case (Kind.LIST, _) if self._shell.asks_promptly:
                return self._local.begin(head)
            case (Kind.STREAM, wid):
                return self._begin_stream(head, wid)
            case _:
                return self._relay.ask(head, self._lane)

    def connect(self, head: Head) -> Opening:
        # It needs what a reader loads once it serves.
        from topics.server.readers.joint_socket import Handshake, JointSocket

        relay, shell, local = self._relay, self._shell, self._local
        relayed = relay.connect(head, self._lane)

        def open_joint() -> JointSocket:
            limits, make_local = relay.limits, partial(local.connect, head)
            return JointSocket(relayed, shell, limits, make_local, self._may_watch)

        return Handshake(relayed, open_joint)

    def _may_watch(self, name: str) -> bool:
        """Whether a watch of a topic is this reader's."""
        follower = self._shell.follower
        topic = follower.state.topics.get(name)
        return topic is not None and follower.is_whole(topic)

    # ------------------------------------------------------------------ reads

    def _begin_read(self, head: Head, name: str) -> Answer | Admission:
        if self._shell.look():
            return self._whose(head, name)
        if not self._shell.can_follow:
            return self._relay.ask(head, self._lane)
        undecided = self._undecided(head, lambda: self._whose(head, name))
        self._shell.when_current(undecided.decide)
        return undecided

    def _undecided(self, head: Head, begin: "Callable[[], Answer | Admission]") -> "Undecided":
        relay = self._relay
        refuse = partial(refusal_of, relay.local, head)
        return Undecided(body_bytes_max(head, relay.limits), begin, refuse)

    def _whose(self, head: Head, name: str) -> Answer | Admission:
        """The shared heads are applied: a read is answered here, or by the engine's process."""
        if self._shell.serves(name):
            return self._local.begin(head)
        return self._relay.ask(head, self._lane)

    # ------------------------------------------------------------------ streams

    def _begin_stream(self, head: Head, wid: str) -> Answer | Admission:
        if self._sessions.has(wid) and self._shell.look():
            return self._stream(head, wid)
        # A stream that may not be opened takes over from none.
        admitted = self._local.begin(head)
        if isinstance(admitted, Answer):
            return admitted
        admitted.close()
        undecided = self._undecided(head, lambda: self._stream(head, wid))
        self._have(wid, admitted.caller, undecided.decide)
        return undecided

    def _stream(self, head: Head, wid: str) -> Answer | Admission:
        if self._sessions.has(wid) and self._sessions.serves(wid):
            return self._local.begin(head)
        return self._relay.ask(head, self._lane)

    def _have(self, wid: str, caller: Caller, go_on: Callable[[], None]) -> None:
        """Have the session here if it can be, and all that it may have seen."""

        def lent(image: bytes) -> None:
            if image:
                self._sessions.take(image)
            if self._shell.look():
                go_on()
            else:
                self._shell.when_current(go_on)

        if self._sessions.has(wid):
            self._shell.when_current(go_on)
        else:
            self._relay.borrow(wid, caller.name, lent)


class Upgrading:
    """The exchange of HTTP/1.1 connections, which come here for this process's requests alone, and of
    the WebSockets that they become.  Implements `interface.Exchange`."""

    def __init__(self, local: Exchange, dispatch: Callable[[], Dispatch]) -> None:
        self.begin = local.begin
        self._dispatch = dispatch

    def connect(self, head: Head) -> Opening:
        return self._dispatch().connect(head)


class Undecided:
    """A request of which it is not known yet whose it is.  Implements `interface.Admission`, and
    `Pending` for its answer.

    Args:
        max_body_bytes: Of the route.
        begin: Begins it with the process that serves it; called once that is known.
        refuse: Spells the refusal of a body that comes before that.
    """

    def __init__(
        self,
        max_body_bytes: int,
        begin: Callable[[], Answer | Admission],
        refuse: Callable[[Callable[[Admission], Answer]], Answer],
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self._begin = begin
        self._refuse = refuse
        self._verdict: Answer | Admission | None = None
        self._pieces: list[bytes] | None = None
        self._pending: Pending | None = None
        self._answer: Answer | Streaming | None = None
        self._deliver: Callable[[Answer | Streaming], None] | None = None
        self._is_over = False

    def decide(self) -> None:
        """It is known whose it is."""
        if self._is_over or self._verdict is not None:
            return
        verdict = self._verdict = self._begin()
        if not isinstance(verdict, Answer):
            self.max_body_bytes = verdict.max_body_bytes
        if self._pieces is not None:
            pieces, self._pieces = self._pieces, None
            made = self._finish(verdict, pieces)
            if isinstance(made, Answer | Streaming):
                self._done(made)

    def finish(self, pieces: list[bytes]) -> "Answer | Streaming | Pending":
        if self._verdict is None:
            self._pieces = pieces
            return self
        made = self._finish(self._verdict, pieces)
        return made if isinstance(made, Answer | Streaming) else self

    def _finish(
        self, verdict: Answer | Admission, pieces: list[bytes]
    ) -> Answer | Streaming | Pending:
        if isinstance(verdict, Answer):
            return verdict
        made = verdict.finish(pieces)
        if not isinstance(made, Answer | Streaming):
            self._pending = made
            made.then(self._done)
        return made

    def _done(self, answer: Answer | Streaming) -> None:
        self._pending = None
        self._answer = answer
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(answer)

    def then(self, deliver: Callable[[Answer | Streaming], None]) -> None:
        if self._answer is None:
            self._deliver = deliver
        else:
            deliver(self._answer)

    @property
    def waits_for_news(self) -> bool:
        return self._pending is not None and self._pending.waits_for_news

    @property
    def is_apart(self) -> bool:
        return self._pending is not None and self._pending.is_apart

    def too_large(self) -> Answer:
        return self._refused(lambda admission: admission.too_large())

    def too_slow(self) -> Answer:
        return self._refused(lambda admission: admission.too_slow())

    def _refused(self, refuse: Callable[[Admission], Answer]) -> Answer:
        verdict = self._verdict
        if verdict is None:
            return self._refuse(refuse)
        return verdict if isinstance(verdict, Answer) else refuse(verdict)

    def cancel(self) -> None:
        """The client is gone."""
        self._is_over = True
        self._deliver = None
        if self._pending is not None:
            self._pending.cancel()

    def close(self) -> None:
        self._is_over = True
        verdict, self._verdict = self._verdict, None
        if verdict is not None and not isinstance(verdict, Answer):
            verdict.close()
