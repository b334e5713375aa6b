"""Slots: what requests hold of the shares of those who send them (§11).

Owns the counts of requests in flight and of long polls.  Streams and watch sessions are counted where
they live, in the core.  Invariant: what a request holds is given back once, when it is closed or
becomes a stream, however it ends.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from topics.protocol.driver.client_states import ClientState
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import Claim, Command, Diff, GetJob
from topics.protocol.model.holder import NOBODY, Holder, holder_at, holder_of
from topics.protocol.model.limits import Limits
from topics.protocol.model.names import partition_name
from topics.protocol.model.shares import Shares
from topics.server.service.clients import Client, Clients, Kind
from topics.server.service.in_flight import InFlight


class Revocable(Protocol):
    """What waits for a request of a key."""

    def revoke(self) -> None:
        """The key was removed: an answer that waits for news is one that says so."""


class Slots:
    """The slots of one process.

    Args:
        peer: In whose share a request from an address counts.
        clients: Who is connected; None: that is not told.

    Attributes:
        inflight: Requests, streams not counted, by holder.
        bounds_requests: Anything bounds how many may be in flight.
        of_keys: Requests of keys, which are bounded by themselves, and end with their key.
        polls: Of all, those that may wait for records or jobs.
    """

    def __init__(
        self,
        limits: Limits,
        peer: Callable[[str], Holder] = holder_at,
        clients: Clients | None = None,
    ) -> None:
        self.peer = peer
        self.clients = clients
        self.inflight = Shares("max_inflight", 0, per_ip=limits.max_inflight_per_ip)
        self.bounds_requests = limits.max_inflight_per_ip > 0
        self.of_keys: InFlight[Slot] = InFlight(limits.max_inflight_per_key)
        self.polls = Shares(
            "max_long_polls", limits.max_long_polls, per_ip=limits.max_long_polls_per_ip
        )

    def revoke(self, caller: Caller) -> None:
        """A key was removed: end what its requests wait for."""
        for slot in self.of_keys.of(caller):
            if slot.waiting is not None:
                slot.waiting.revoke()


class Slot(msgspec.Struct, eq=False):
    """What one request holds; nothing at first.

    Attributes:
        address: Where it came from; says who sent it where no key does.
        connection: Its connection: what one connection asks of another process has its turns together.
        waiting: What waits for its answer.
        at_end: Called once the request is over.
        index: How far the log is to be shown at least, on a node of a cluster.
        elsewhere: Called with the URL of another node, where that is asked.
        header: A header of the request by its name; None: another process has the request, and tells of its
            client.
        client: What is told of who waits for its answer.
    """

    _slots: Slots
    address: str
    caller: Caller = ANYONE
    connection: int = 0
    waiting: Revocable | None = None
    at_end: Callable[[], None] | None = None
    index: int = 0
    elsewhere: Callable[[str], None] | None = None
    header: Callable[[bytes], bytes | None] | None = None
    client: Client | None = None
    _holder: Holder | None = None
    _has_request: bool = False
    _has_poll: bool = False

    @property
    def holder(self) -> Holder:
        """Who sent the request; of most it is never asked."""
        if self._holder is None:
            if self.caller.is_key:
                self._holder = holder_of(self.caller, NOBODY)
            else:
                self._holder = self._slots.peer(self.address)
        return self._holder

    def begin_request(self) -> None:
        """Raises Rejection: 429 for too many requests of this holder in flight."""
        inflight = self._slots.inflight
        if inflight.bounds(self.holder):
            inflight.require(self.holder)
            inflight.take(self.holder)
            self._has_request = True

    def begin_poll(self) -> None:
        """The request may wait for records or jobs.  Raises Rejection: 429."""
        if not self._has_poll:
            polls = self._slots.polls
            polls.require(self.holder)
            polls.take(self.holder)
            self._has_poll = True

    def connect(
        self, kind: Kind, state: Callable[[], ClientState], node: str = ""
    ) -> Client | None:
        """Its client stays connected, and is told of until it leaves; None where it is not told of here."""
        header, clients = self.header, self._slots.clients
        if header is None or clients is None:
            return None
        self.header = None  # a stream may last for days, and its key is among the headers
        agent = (header(b"user-agent") or b"").decode("utf-8", "replace")
        return clients.enter(kind, self.address, state, caller=self.caller, agent=agent, node=node)

    def park(self, command: Command) -> None:
        """Its answer waits for news."""
        if self.header is None:
            return
        match command:
            case Diff(topic=topic, partition=partition):
                seq = command.from_seq if command.from_ts is None else None
                state = ClientState({partition_name(topic, partition or 0): seq})
                self.client = self.connect("read", lambda: state)
            case Claim(topic=topic) if command.wait_ms:
                state = ClientState({topic: None})
                self.client = self.connect("claim", lambda: state, command.node)
            case GetJob(topic=topic):
                state = ClientState({topic: None})
                self.client = self.connect("job", lambda: state)

    def close(self) -> None:
        """The request is over, or has become a stream, which is counted as one."""
        if self.client is not None:
            self.client.leave()
        if self.caller.is_key:
            self._slots.of_keys.leave(self.caller, self)
        if self.at_end is not None:
            at_end, self.at_end = self.at_end, None
            at_end()
        if self._has_request:
            self._has_request = False
            self._slots.inflight.give_back(self.holder)
        if self._has_poll:
            self._has_poll = False
            self._slots.polls.give_back(self.holder)
