"""Links to the other nodes: each made when it is first needed, and let go when it has broken.

Owns what is asked while a link is not open yet, and what a failure means.  A refusal says whether the command
may have taken effect: `detail.outcome` is `not_applied` where nothing of it was sent, or where all that it does
is read, and `unknown` everywhere else.  Asks nothing of what is asked for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from topics.protocol.driver.reply import Ticket
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.link_wire import LinkBroken, LinkWire, connect, peer_at
from topics.server.cluster.tokens import token_of
from topics.server.links.link import Link
from topics.server.links.messages import WINDOW_BYTES
from topics.server.transport.budget import Budget

log = logging.getLogger("topics.cluster")

ANSWERS_BYTES: Final = 64 << 20
"""Of answers in hand, where nothing else says so; the largest page has 8 MiB."""
LOOK_S: Final = 2.0
"""How often a link to the leader is held against who leads by now."""
WAITING_MAX: Final = 8192
"""Of what waits for a link to open."""

Send = Callable[[Link], Ticket]
Refused = Callable[[Rejection], None]


class Counts(msgspec.Struct):
    """What metrics say of what other nodes were asked; since the start."""

    forwarded: int = 0
    failed: int = 0
    unknown: int = 0
    """Of the failed, those that may have taken effect."""


class Peers:
    """The links of one node.

    Args:
        secret: Known to the nodes of the cluster alone, at least 16 bytes.
        leader_url: Where the leader is now; None where none is known.
        key_of: The digest of a caller's key.

    Attributes:
        answers: The memory that the text of replies may hold.
    """

    def __init__(
        self,
        secret: bytes,
        leader_url: Callable[[], str | None] = lambda: None,
        key_of: Callable[[Caller], bytes] = lambda _: b"",
        open_wire: Callable[..., Awaitable[LinkWire]] = connect,
    ) -> None:
        assert len(secret) >= 16
        self.token = token_of(secret)
        self.answers = Budget(ANSWERS_BYTES)
        self.counts = Counts()
        self.leader_url = leader_url
        self.key_of = key_of
        self.open_wire = open_wire
        self._peers: dict[tuple[str, bool], Peer] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def know(self, secret: bytes) -> None:
        """The cluster's secret, where it was not known at the start."""
        assert len(secret) >= 16
        self.token = token_of(secret)

    def leader(self, url: str) -> "Peer":
        """The link to who leads at this URL: it ends once another node does."""
        return self._peer(url, is_leader=True)

    def node(self, url: str) -> "Peer":
        """The link to a node, whoever leads."""
        return self._peer(url, is_leader=False)

    def _peer(self, url: str, *, is_leader: bool) -> "Peer":
        peer = self._peers.get((url, is_leader))
        if peer is None:
            peer = self._peers[url, is_leader] = Peer(self, url)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        return peer

    @property
    def open_count(self) -> int:
        """Links that are open."""
        return sum(peer.is_open for peer in self._peers.values())

    def _look(self) -> None:
        """End what is asked of a node that leads no more.  A node that was deposed says so by itself;
        one that is asked twice as long is silent."""
        leader = self.leader_url()
        for (url, is_leader), peer in list(self._peers.items()):
            if is_leader and url != leader:
                if peer.is_doubted:
                    peer.give_up("it does not lead any more")
                peer.is_doubted = True
            else:
                peer.is_doubted = False
            if peer.is_idle:
                del self._peers[url, is_leader]
        self._timer = None
        if self._peers and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def drain(self) -> None:
        """End what waits for news, and streams; what is answered soon is waited for."""
        for peer in self._peers.values():
            peer.drain()

    def close(self) -> None:
        """End all; what is under way is refused."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for peer in list(self._peers.values()):
            peer.give_up("this node stops")
        self._peers.clear()


class _Waiting:
    """What is asked of a node whose link is not open yet."""

    def __init__(self, send: Send, refused: Refused) -> None:
        self.send = send
        self.refused = refused
        self.is_cancelled = False
        self.ticket: Ticket | None = None

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.ticket is not None:
            self.ticket.cancel()


class Peer:
    """The link to one node.

    Attributes:
        is_doubted: It was no leader's at the last look.
    """

    def __init__(self, peers: Peers, url: str) -> None:
        self._peers = peers
        self._url = url
        self._link: Link | None = None
        self._wire: LinkWire | None = None
        self._waiting: list[_Waiting] = []
        self._opening: asyncio.Task[None] | None = None
        self.is_doubted = False

    @property
    def is_open(self) -> bool:
        return self._link is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is kept for it."""
        return self._link is None and self._opening is None

    def ask(self, send: Send, refused: Refused, *, waits_for_news: bool = False) -> Ticket:
        """Have something asked over the link, once it is open.

        Args:
            send: Asks it.
            refused: Called with 503 where there is no link: nothing was asked.
        """
        if self._link is not None:
            return send(self._link)
        if len(self._waiting) >= WAITING_MAX:
            limit = {"limit": "cluster_connections"}
            raise Rejection(ErrorCode.THROTTLED, "too many requests wait for the leader", limit)
        waiting = _Waiting(send, refused)
        self._waiting.append(waiting)
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        return Ticket(waiting.cancel, waits_for_news=waits_for_news)

    async def _open(self) -> None:
        peers = self._peers
        try:
            wire = await peers.open_wire(
                peer_at(self._url), peers.token, self._received, self._ended
            )
        except Exception as error:
            if not isinstance(error, LinkBroken):
                log.exception("a link could not be opened")
            self._opening = None
            self._refuse(not_leader(f"the leader cannot be reached: {error}", self._url))
            return
        self._opening = None
        self._wire = wire
        link = self._link = Link(wire, peers.answers, peers.key_of, whole_bytes=WINDOW_BYTES)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.is_cancelled:
                each.ticket = each.send(link)

    def _received(self, data: bytes) -> None:
        if self._link is None:
            return
        try:
            self._link.received(data)
        except Exception:
            log.exception("%s says what no node of this version says", self._url)
            self.give_up("what it said is not understood")

    def _ended(self, why: str) -> None:
        """The link has broken."""
        link, self._link, self._wire = self._link, None, None
        if link is not None:
            url = self._url
            link.broke(
                lambda may_be_done: not_leader(
                    f"the leader gave no answer: {why}", url, is_unknown=may_be_done
                )
            )

    def give_up(self, why: str) -> None:
        """End the link, and what is asked over it."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._wire is not None:
            self._wire.close()
        self._ended(why)
        self._refuse(not_leader(f"the leader gave no answer: {why}", self._url))

    def _refuse(self, refusal: Rejection) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.is_cancelled:
                each.refused(refusal)

    def drain(self) -> None:
        if self._link is not None:
            self._link.drain(Rejection(ErrorCode.SHUTTING_DOWN, "the server is stopping"))


def not_leader(why: str, url: str | None, *, is_unknown: bool = False) -> Rejection:
    """503; `detail` names the leader, where it is known, and says what became of the request."""
    detail = {"leader": url, "outcome": "unknown" if is_unknown else "not_applied"}
    return Rejection(ErrorCode.NOT_LEADER, why, detail)
