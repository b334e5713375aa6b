"""What a WebSocket on a node is subscribed to: its replica's topics here, the leader's there (§7.7).

A subscription to a place that this replica does not have yet waits for it, or for the end of the log, also
where it leads: a leader that was deposed while it was paused does not know it yet.  A subscription with a topic
of class `ephemeral` is the leader's.
"""

from collections.abc import Callable, Iterable, Mapping

from topics.protocol.driver.reply import Ticket
from topics.protocol.driver.streams import StreamEnd
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.errors import Rejection
from topics.server.cluster.node.standing import Standing
from topics.server.cluster.peers import Peers
from topics.server.cluster.positions import parse_position
from topics.server.cluster.second_look import END_MS, behind
from topics.server.links import remote_streams
from topics.server.links.joint_socket import Decided, JointSocket
from topics.server.links.remote_streams import RemoteSocket
from topics.server.service.later import later
from topics.server.service.service import LocalSocket
from topics.server.service.shell import Shell
from topics.server.service.slots import Slot


class NodeSocket(JointSocket):
    """One WebSocket.

    Args:
        require_leader_url: Where the leader is asked; raises Rejection.
        local: The half here.
    """

    def __init__(
        self,
        shell: Shell,
        standing: Standing,
        peers: Peers,
        require_leader_url: Callable[[], str],
        local: LocalSocket,
        slot: Slot,
    ) -> None:
        super().__init__(shell.limits.max_watch_topics)
        self._shell = shell
        self._standing = standing
        self._peers = peers
        self._require_leader_url = require_leader_url
        self._local = self._here_half = local
        self._slot = slot

    def _is_here(
        self, topics: Mapping[str, Begin], view: View, position: str | None, decided: Decided
    ) -> bool | None:
        standing, index = self._standing, 0
        if position is not None:
            text = position.encode() if isinstance(position, str) else b""
            index = parse_position(text, shard=standing.shard, path="$.position")
        if self._is_theirs(topics):
            self._require_leader_url()
            return False
        if index <= standing.index and not self._is_beyond(topics):
            return True
        later(self._when_shown(topics, index), decided)
        return None

    async def _when_shown(self, topics: Mapping[str, Begin], index: int) -> bool:
        standing = self._standing
        if not await standing.wait_for(index, END_MS):
            raise behind(f"this replica does not show unit {index} yet")
        if self._is_beyond(topics) and not await standing.wait_for_end(END_MS):
            raise behind()
        return not self._is_theirs(topics)  # it may be known only now

    def _is_theirs(self, names: Iterable[str]) -> bool:
        """Whether the leader alone has the records of one of them."""
        return not self._standing.leads and self._shell.engine.has_ephemeral(tuple(names))

    def _is_beyond(self, topics: Mapping[str, Begin]) -> bool:
        """Whether it begins in a topic, or at a place, that is not known here."""
        return self._shell.engine.begins_beyond(topics)

    def _open_local(self) -> LocalSocket | None:
        raise AssertionError("the half here lives as long as the socket")

    def _open_remote(self, deliver: "Callable[[RemoteSocket | Rejection], None]") -> Ticket:
        url = self._require_leader_url()
        return self._peers.leader(url).ask(
            lambda link: remote_streams.open_socket(link, self._slot, deliver), deliver
        )

    @property
    def ended_by(self) -> StreamEnd | None:
        """Either half ends it: what it has is not whole any more."""
        why = self._here_half.ended_by
        if why is None and self._remote is not None:
            why = self._remote.ended_by
        return why
