"""What a WebSocket in a reader is subscribed to: some here, the rest in the engine's process.

Subscriptions to topics that are this reader's are its own; any other is made in the engine's process, which has
the other half of the WebSocket and with it the count of connections and the end.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from topics.protocol.driver.reply import Ticket
from topics.protocol.driver.streams import StreamEnd
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.errors import Rejection
from topics.protocol.model.names import public_name
from topics.server.links.joint_socket import Decided, JointSocket
from topics.server.links.remote_streams import RemoteSocket
from topics.server.service.service import LocalSocket


class Follows(Protocol):
    """The shell of a reader, as far as a socket asks it."""

    @property
    def can_follow(self) -> bool: ...

    def look(self) -> bool: ...

    def when_current(self, call: Callable[[], None]) -> None: ...


class ReaderSocket(JointSocket):
    """One WebSocket.

    Args:
        remote: The half in the engine's process.
        open_local: Opens the half that is this process's.  Raises Rejection.
        is_theirs: Whether this reader may serve a watch of a topic.
    """

    def __init__(
        self,
        remote: RemoteSocket,
        shell: Follows,
        open_local: Callable[[], LocalSocket],
        is_theirs: Callable[[str], bool],
        most: int,
    ) -> None:
        super().__init__(most)
        self._remote = remote
        self._engines = remote
        self._shell = shell
        self._open = open_local
        self._is_theirs = is_theirs
        self._may_be_local = True

    def _is_here(
        self, topics: Mapping[str, Begin], view: View, position: str | None, decided: Decided
    ) -> bool | None:
        def whose() -> bool:
            """All that the heads showed when the order came is applied."""
            is_here = not view.strong and self._shell.can_follow
            return is_here and self._there.isdisjoint(topics) and all(map(self._is_theirs, topics))

        if not self._shell.can_follow or self._shell.look():
            return whose()
        self._shell.when_current(lambda: decided(whose()))
        return None

    def _open_local(self) -> LocalSocket | None:
        if not self._may_be_local:
            return None
        try:
            return self._open()
        except Rejection:
            self._may_be_local = False
            return None

    def _open_remote(self, deliver: "Callable[[RemoteSocket | Rejection], None]") -> Ticket:
        raise AssertionError("it was open before this half")

    def _on_local_end(self, local: LocalSocket) -> None:
        self._may_be_local = False
        if local.ended_by is StreamEnd.MOVED:
            # The engine's process goes on with what is watched here, from where it stands.  That knows
            # whether the topic is there any more, and what its last head was.
            for name, standing in local.standings():
                self._there.add(public_name(name))
                self._engines.adopt(standing)

    @property
    def ended_by(self) -> StreamEnd | None:
        """The engine's half says so."""
        return self._engines.ended_by
