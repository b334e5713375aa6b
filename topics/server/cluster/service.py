"""The commands and streams of a node: what its replica answers, and what goes to the leader.

Implements `service.Service`.  A follower answers from its replica what only reads.  To the leader goes what may
write, whatever names a topic of class `ephemeral` (its records are in the leader's memory and nowhere else), and
a read for which routers have to copy first.  A node that leads answers all by itself, and says with each write
where the log stood then.

What came from another node is not asked of a third: it would go round among nodes that disagree about who leads.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from topics.protocol.cluster.formats import asked_format_of, require_known
from topics.protocol.cluster.rule.unit import FORMAT_OLDEST
from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.driver.streams import Streams
from topics.protocol.model.commands import (
    Claim,
    Command,
    CreateWatch,
    DeleteRecords,
    Diff,
    facts_of,
    waits_for_news,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Deleted
from topics.server.cluster.neighbours import Neighbours
from topics.server.cluster.node_socket import NodeSocket
from topics.server.cluster.peers import Peers, not_leader
from topics.server.cluster.positions import Position
from topics.server.cluster.second_look import END_MS, SecondLook, behind
from topics.server.links import remote_streams
from topics.server.links.link import Link, Told
from topics.server.service.jobs import PushedJobs
from topics.server.service.later import later
from topics.server.service.service import LocalService, Opened, WatchSession, WatchSocket
from topics.server.service.shell import Shell
from topics.server.service.slots import Slot

ANSWER_S: Final = 40.0
"""How long an answer may take beyond the time that its command may wait: a sync of the leader's disk may take
30 s."""
LONG_S: Final = 30.0
"""The longest that a command may wait for news (§3)."""

T = TypeVar("T")


class NodeService:
    """The service of one node.

    Args:
        may_ask: Whether another node may be asked; not for what one has asked.
    """

    has_engine = True

    def __init__(
        self, shell: Shell, neighbours: Neighbours, peers: Peers, *, may_ask: bool = True
    ) -> None:
        self.shell = shell
        self.neighbours = neighbours
        self.peers = peers
        self.standing = neighbours.standing
        self._local = LocalService(shell)
        self._may_ask = may_ask

    # ------------------------------------------------------------------ commands

    def submit(self, command: Command, deliver: Deliver, slot: Slot) -> Reply | Ticket:
        standing = self.standing
        if isinstance(command, CreateWatch) and not self._may_ask:
            # The node that was asked for it has named it after itself.
            command = msgspec.structs.replace(command, wid=self.neighbours.own(command.wid))
        if not facts_of(command).is_read:
            if standing.leads:
                return self._write(command, deliver)
            return self._elsewhere(command, deliver, slot)
        if not standing.leads and self.is_leaders(command):
            return self._elsewhere(command, deliver, slot)
        engine = self.shell.engine
        needs_end = isinstance(command, CreateWatch) and engine.is_beyond(command)
        if slot.index <= standing.index and not needs_end:
            return self._read(command, deliver)
        work = self._when_shown(command, deliver, slot, needs_end=needs_end)

        def found(reply: Reply | Rejection) -> None:
            deliver(Reply(reply) if isinstance(reply, Rejection) else reply)

        return later(work, found, waits_for_news=waits_for_news(command))

    def _write(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        is_erasure = isinstance(command, DeleteRecords) and command.erase
        found = self.shell.submit(command, lambda reply: deliver(self._placed(reply, is_erasure)))
        return found if isinstance(found, Ticket) else self._placed(found, is_erasure)

    def _placed(self, reply: Reply, is_erasure: bool) -> Reply:
        """A write's reply, with the place of the log that has it, and of an erasure until when the log's
        files may have the bytes."""
        result = reply.result
        if isinstance(result, Exception):
            return reply
        standing = self.standing
        # It is given once its unit was applied here.
        position = Position(standing.shard, standing.index).text
        if is_erasure and isinstance(result, Deleted):
            until_ms = standing.log_retained_until_ms(self.shell.now_ms)
            result = msgspec.structs.replace(result, log_retained_until_ms=until_ms)
        return msgspec.structs.replace(reply, result=result, position=position)

    def _read(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        # A leader may lag, too: deposed while it was paused, it does not know it yet; and a follower
        # may have shown a record before its leader hears that the record was accepted.
        submit = self.shell.submit
        if isinstance(command, CreateWatch):
            return submit(command, deliver)
        return SecondLook(self.standing, lambda on: submit(command, on), deliver).begin()

    async def _when_shown(
        self, command: Command, deliver: Deliver, slot: Slot, *, needs_end: bool
    ) -> Reply | Ticket:
        wait_ms = (isinstance(command, Diff) and command.wait_ms) or END_MS
        await self.wait(slot.index, wait_ms, needs_end=needs_end)
        if not self.standing.leads and self.is_leaders(command):
            # What it waited for made it so: copies are owed, or the class is another one.
            return self._elsewhere(command, deliver, slot)
        return self._read(command, deliver)

    async def wait(self, index: int, wait_ms: int, *, needs_end: bool) -> None:
        """Raises Rejection: 503 `replica_behind`."""
        standing = self.standing
        if not await standing.wait_for(index, wait_ms):
            raise behind(f"this replica does not show unit {index} yet")
        if needs_end and not await standing.wait_for_end(END_MS):
            raise behind()

    def is_leaders(self, command: Command) -> bool:
        """Whether the leader alone can answer a read."""
        engine = self.shell.engine
        names = facts_of(command).topics(command)
        return engine.has_ephemeral(names) or engine.barrier_for(command) is not None

    # ------------------------------------------------------------------ the leader

    def _elsewhere(self, command: Command, deliver: Deliver, slot: Slot) -> Ticket:
        url = self.require_leader_url()
        self._require_known(command, url)
        self._note(url, slot)
        return _Asked(self, url, command, deliver, slot).ticket

    def _require_known(self, command: Command, url: str) -> None:
        """Raises Rejection: 409 `upgrade_pending`, where the leader may be too old for a command; 503, where it is not
        known yet how old the nodes are."""
        read = self.standing.format
        if read is not None:
            require_known(command, read)
        elif asked_format_of(command) > FORMAT_OLDEST:
            raise not_leader("this node has not heard of the others yet", url)

    def _note(self, url: str, slot: Slot) -> None:
        """Another node is asked."""
        self.peers.counts.forwarded += 1
        if slot.elsewhere is not None:
            slot.elsewhere(url)

    def require_leader_url(self) -> str:
        """Where the leader is asked.  Raises Rejection: 503 `not_leader`."""
        if not self._may_ask:
            raise not_leader("this node does not lead", self.standing.leader_url)
        return self.neighbours.require_leader_url()

    def _ask(
        self,
        url: str,
        send: Callable[[Link], Ticket],
        deliver: Opened[T],
        slot: Slot,
        *,
        is_leader: bool = True,
    ) -> Ticket:
        """Have a node asked for a stream."""
        self._note(url, slot)
        peer = self.peers.leader(url) if is_leader else self.peers.node(url)
        return peer.ask(send, deliver, waits_for_news=True)

    # ------------------------------------------------------------------ streams

    def session(
        self, wid: str, rewind: str | None, slot: Slot, deliver: Opened[WatchSession]
    ) -> WatchSession | Ticket:
        url = self.neighbours.url_of_session(wid)
        if url is not None and self._may_ask:

            def send(link: Link) -> Ticket:
                return remote_streams.open_session(link, wid, rewind, slot, deliver)

            return self._ask(url, send, deliver, slot, is_leader=False)
        standing = self.standing
        if not standing.leads:
            self._require_here(wid, slot)
        if not rewind and slot.index <= standing.index:
            return self._local.session(wid, rewind, slot)
        return later(self._when_rewound(wid, rewind, slot), deliver)

    async def _when_rewound(self, wid: str, rewind: str | None, slot: Slot) -> WatchSession:
        """A stream that another node has sent farther than this replica is goes on when it has that
        too; before, its cursor would look like one of another instance."""
        await self.wait(slot.index, END_MS, needs_end=True)
        return self._local.session(wid, rewind, slot)

    def require_session(self, wid: str, slot: Slot, deliver: Opened[None]) -> Ticket | None:
        url = self.neighbours.url_of_session(wid)
        if url is not None and self._may_ask:

            def send(link: Link) -> Ticket:
                return remote_streams.require_session(link, wid, slot, deliver)

            return self._ask(url, send, deliver, slot, is_leader=False)
        if not self.standing.leads:
            self._require_here(wid, slot)
        self._local.require_session(wid, slot)
        return None

    def _require_here(self, wid: str, slot: Slot) -> None:
        """Raises Rejection: 404 for a session with a topic of which the leader alone has the records by
        now.  Its client makes another one, which is the leader's."""
        engine, now_ms = self.shell.engine, self.shell.now_ms
        streams = Streams(engine)
        found = streams.topics_of(wid)
        if found is None or not engine.has_ephemeral(found):
            return
        streams.forget(wid, now_ms, slot.caller)
        streams.require_session(wid, now_ms, slot.caller)

    def socket(self, slot: Slot, deliver: Opened[WatchSocket]) -> WatchSocket | Ticket:
        return NodeSocket(
            self.shell,
            self.standing,
            self.peers,
            self.require_leader_url,
            self._local.socket(slot),
            slot,
        )

    def jobs(self, asked: Claim, slot: Slot, deliver: Opened[PushedJobs]) -> PushedJobs | Ticket:
        if self.standing.leads:
            return self._local.jobs(asked, slot)

        def send(link: Link) -> Ticket:
            return remote_streams.open_jobs(link, asked, slot, deliver)

        return self._ask(self.require_leader_url(), send, deliver, slot)

    def require_queue(self, name: str, slot: Slot, deliver: Opened[None]) -> Ticket | None:
        if self.standing.leads:
            self._local.require_queue(name, slot)
            return None

        def send(link: Link) -> Ticket:
            return remote_streams.require_queue(link, name, slot, deliver)

        return self._ask(self.require_leader_url(), send, deliver, slot)

    def report(self, kind: str, arguments: bytes, slot: Slot, deliver: Told) -> Ticket:
        """What the leader does and then tells."""
        return self._ask(
            self.require_leader_url(),
            lambda link: link.report(kind, arguments, slot, deliver, changes=True),
            deliver,
            slot,
        )


class _Asked:
    """A command that the leader is asked for."""

    def __init__(
        self, service: NodeService, url: str, command: Command, deliver: Deliver, slot: Slot
    ) -> None:
        self._service = service
        self._url = url
        self._command = command
        self._deliver: Deliver | None = deliver
        self._slot = slot
        self._is_read = facts_of(command).is_read
        self._is_again = False
        self._asked: Ticket | None = None
        wait_s = ANSWER_S + (LONG_S if waits_for_news(command) else 0)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._give_up)
        self.ticket = Ticket(self._cancel, waits_for_news=waits_for_news(command))
        try:
            self._ask()
        except Rejection:
            self._timer.cancel()
            raise

    def _ask(self) -> None:
        peer = self._service.peers.leader(self._url)
        self._asked = peer.ask(
            lambda link: link.submit(self._command, self._answered, self._slot),
            lambda refusal: self._answered(Reply(refusal)),
            waits_for_news=self.ticket.waits_for_news,
        )

    def _answered(self, reply: Reply) -> None:
        result = reply.result
        if isinstance(result, Rejection) and result.code is ErrorCode.NOT_LEADER:
            is_current = self._service.standing.leader_url == self._url
            # A link that was kept may have broken as the command went out.
            if self._is_read and is_current and not self._is_again and self._deliver is not None:
                self._is_again = True
                self._ask()
                return
            counts = self._service.peers.counts
            counts.failed += 1
            if result.detail is not None and result.detail.get("outcome") == "unknown":
                counts.unknown += 1
        self._done(reply)

    def _give_up(self) -> None:
        if self._asked is not None:
            self._asked.cancel()
        why = "the leader gave no answer: no answer in time"
        self._answered(Reply(not_leader(why, self._url, is_unknown=not self._is_read)))

    def _done(self, reply: Reply) -> None:
        self._timer.cancel()
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(reply)

    def _cancel(self) -> None:
        self._timer.cancel()
        self._deliver = None
        if self._asked is not None:
            self._asked.cancel()
