"""Both ends of a link on one loop: one over an engine in memory, and one that asks."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson

from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import Command
from topics.protocol.model.limits import Limits as EngineLimits
from topics.server.access.key_ring import KeyRing
from topics.server.links.desk import Desk
from topics.server.links.link import Link
from topics.server.links.messages import SMALL_BYTES
from topics.server.links.served_streams import STREAMS
from topics.server.service.service import LocalService
from topics.server.service.slots import Slot, Slots
from topics.server.transport.budget import Budget
from topics.server.transport.limits import TransportLimits
from topics.server.transport.shared import Shared
from topics.testing import START_MS, _Shell

LIMITS = EngineLimits()


class Line:
    """One direction of a channel.  Implements `outlet.Wire`."""

    def __init__(self) -> None:
        self.when_low: Callable[[], None] | None = None
        self.is_open = self.is_low = self.is_clear = True
        self.sent: deque[bytes] = deque()
        self.sent_bytes = 0
        self.receive: Callable[[bytes], None] | None = None

    def relay(self, data: bytes) -> None:
        self.sent.append(data)
        self.sent_bytes += len(data)
        if self.receive is not None:
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        if self.sent and self.receive is not None:
            self.receive(self.sent.popleft())


class Nothing:
    """The exchange of a process that no client is connected to."""


class Joined:
    """A link and the desk that it asks.

    Args:
        keys: Of the process that decides; None: it has none.
        theirs: The keys of the one that asks; None: the same.
        limits: Of what the connections of each share.
    """

    def __init__(
        self,
        limits: TransportLimits | None = None,
        *,
        keys: KeyRing | None = None,
        theirs: KeyRing | None = None,
        engine_limits: EngineLimits = LIMITS,
        shell: Any = None,
        reports: Any = None,
        whole_bytes: int = SMALL_BYTES,
    ) -> None:
        self.there, self.back = Line(), Line()
        self.shell = shell or _Shell(engine_limits, START_MS)
        exchange: Any = Nothing()
        self.engine = Shared(exchange, limits=limits)
        self.slots = Slots(engine_limits)
        self.desk = Desk(
            self.engine,
            self.back,
            LocalService(self.shell),
            self.slots,
            (lambda digest: None) if keys is None else keys.by_digest,
            STREAMS,
            reports or {},
        )
        self.answers = Budget((limits or TransportLimits()).answers_bytes)
        ring = theirs or keys
        self.link = Link(
            self.there,
            self.answers,
            (lambda _: b"") if ring is None else ring.digest_of,
            whole_bytes=whole_bytes,
        )
        self.there.receive, self.back.receive = self.desk.received, self.link.received

    def slot(self, caller: Caller = ANYONE, queue: int = 1) -> Slot:
        return Slot(Slots(LIMITS), "192.0.2.1", caller, queue)

    async def ask(self, command: Command, slot: Slot | None = None) -> Any:
        """The reply to a command."""
        found: list[Reply] = []
        self.link.submit(command, found.append, slot or self.slot())
        await until(lambda: found)
        return found[0]

    def do(self, command: Command) -> Any:
        """Have a command decided in the other process, by nobody's asking."""
        reply: Any = self.shell.submit(command, lambda _: None)
        return reply.result


async def until(probe: Callable[[], object]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(20):
        while not probe():
            await asyncio.sleep(0)


async def rest() -> None:
    """Let the loop do all that is ready."""
    for _ in range(60):
        await asyncio.sleep(0)


def appended(topic: str, *datas: bytes) -> Command:
    records = b",".join(b'{"data":%b}' % data for data in datas)
    body = b'{"records":[%b]}' % records
    return parse_append(topic, body, LIMITS, return_seqs=True, header_key=None)


def read(topic: str, **fields: Any) -> Command:
    return parse_diff(topic, orjson.dumps({"from_seq": 0, **fields}), LIMITS)


def put(topic: str, **config: Any) -> Command:
    return parse_put(topic, orjson.dumps(config))
