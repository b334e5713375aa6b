"""A node of a cluster as a process of its own: the rule over Kafka, with the simulation's small engine.

    python -m tests.server.cluster.kafka.node_process BOOTSTRAP CLUSTER NUMBER REPLICATION MIN_ISR

It tells what happens in lines: `leads TERM`; `accepted MARK` and `unknown MARK` of what it decides while
it leads, which it does without an end; on SIGTERM `holds MARK MARK …`, all that it has applied, in order.
"""

import asyncio
import secrets
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from tests.cluster.ledger import Ledger
from tests.cluster.process import Store
from topics.protocol.cluster.rule.leading import Node as Rule
from topics.protocol.cluster.rule.ports import (
    AppendRefused,
    LogTrimmed,
    LogTruncated,
    OutcomeUnknown,
)
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.steps import (
    AnswerClients,
    Apply,
    AskEnd,
    Cease,
    ClientReply,
    Decided,
    Effect,
    EndIs,
    Found,
    GiveUp,
    Halt,
    Input,
    Lead,
    Leads,
    NotElected,
    NotShown,
    OpenAnew,
    Prove,
    ReadFailed,
    ReadOn,
    Send,
    SendFailed,
    Sent,
    Shown,
    StepDown,
    TakeSnapshot,
)
from topics.protocol.cluster.rule.unit import Shard, body_of
from topics.server.cluster.kafka.log import KafkaLog
from topics.server.cluster.kafka.placement import Placement
from topics.server.cluster.kafka.settings import KafkaSettings

from .joined import joined

TURNS = 8
"""In flight at once."""
PATIENCE_SECONDS = 5.0


def tell(*words: object) -> None:
    print(*words, flush=True)


class Host:
    """Performs the rule's effects in their order, and reports."""

    def __init__(self, number: int, shard: Shard, log: KafkaLog) -> None:
        zero = Place.before_all(shard)
        self.log, self.number, self.marks, self.waiting = log, number, 0, 0
        self.store = Store((zero, Mark(zero), Ledger()))
        self.engine = Ledger()
        self.decides = self.is_candidate = False
        self.drained = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.reader: asyncio.Task[None] | None = None
        self.node = Rule(
            shard, f"n{number}", zero, Mark(zero), message_bytes_max=log.record_bytes_max
        )
        self.perform(self.node.start())

    def hear(self, event: Input) -> None:
        self.perform(self.node.step(event))

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # ------------------------------------------------------------------ placement

    def gained(self, shard: int) -> None:
        self.is_candidate = True
        self.hear(Lead(secrets.token_bytes(16)))

    async def lost(self, shard: int) -> None:
        self.is_candidate = False
        self.drained.clear()
        self.hear(Cease())
        if self.decides:
            await self.drained.wait()

    # ------------------------------------------------------------------ effects

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case ReadOn(from_offset):
                    if self.reader is not None:
                        self.reader.cancel()
                    self.reader = self.begin(self.read(from_offset))
                case Prove():
                    self.begin(self.prove(effect))
                case AskEnd():
                    self.begin(self.ask_end())
                case Send():
                    # Handed over here, in this order; awaited there.
                    self.begin(
                        self.sent(effect, asyncio.ensure_future(self.log.append(effect.raw)))
                    )
                case Apply(unit, place, mark, is_own):
                    events = unit.events()
                    self.store.entries.append((place, mark, events))
                    if not is_own:
                        self.engine.apply(events)
                case AnswerClients(tokens, reply):
                    self.waiting -= len(tokens)
                    for token in tokens:
                        tell("accepted" if reply is ClientReply.ACCEPTED else "unknown", token)
                    asyncio.get_running_loop().call_soon(self.decide)
                case Leads(term):
                    self.decides = True
                    tell("leads", term)
                    asyncio.get_running_loop().call_soon(self.decide)
                case StepDown():
                    self.decides = False
                case OpenAnew():
                    self.decides = False
                    _, _, self.engine = self.store.open()
                    self.drained.set()
                case NotElected(why):
                    tell("not-elected", why)
                    self.begin(self.try_again())
                case TakeSnapshot() | Halt():
                    raise AssertionError(effect)

    def decide(self) -> None:
        """Turns of one mark each."""
        for _ in range(TURNS):
            if not self.decides or self.waiting >= TURNS:
                return
            self.marks, self.waiting = self.marks + 1, self.waiting + 1
            mark = self.number * 1_000_000 + self.marks
            self.hear(Decided((mark,), *body_of([self.engine.add(1, mark)])))

    async def try_again(self) -> None:
        await asyncio.sleep(0.2)
        if self.is_candidate:
            self.hear(Lead(secrets.token_bytes(16)))

    async def read(self, from_offset: int) -> None:
        try:
            async with aclosing(self.log.read(from_offset)) as reading:  # type: ignore[type-var]
                async for offset, raw, epoch in reading:
                    self.hear(Found(offset, raw, epoch))
        except (LogTruncated, LogTrimmed) as failure:
            self.hear(ReadFailed(isinstance(failure, LogTruncated)))

    async def prove(self, asked: Prove) -> None:
        records: list[tuple[int, bytes]] = []
        before = min(asked.last_offset + 1, await self.log.end())
        try:
            if asked.first_offset < before:
                reading = self.log.read(asked.first_offset, asked.epoch)
                async with aclosing(reading):  # type: ignore[type-var]
                    async for offset, raw, _ in reading:
                        records.append((offset, raw))
                        if offset + 1 >= before:
                            break
        except (LogTruncated, LogTrimmed) as failure:
            self.hear(NotShown(asked.proof, isinstance(failure, LogTruncated)))
        else:
            self.hear(Shown(asked.proof, records))

    async def ask_end(self) -> None:
        self.hear(EndIs(await self.log.end()))

    async def sent(self, effect: Send, written: "asyncio.Future[int]") -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                offset = await asyncio.shield(written)
        except TimeoutError:
            self.hear(GiveUp())
        except (AppendRefused, OutcomeUnknown) as failure:
            self.hear(SendFailed(effect.ticket, isinstance(failure, AppendRefused)))
        else:
            self.hear(Sent(effect.ticket, effect.part, offset))


async def main(servers: str, name: str, number: int, copies: int, in_sync: int) -> None:
    settings = KafkaSettings(
        servers,
        name=name,
        node=f"n{number}",
        replication=copies,
        min_isr=in_sync,
        session_ms=2000,
    )
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    async with joined(settings) as found:
        host = Host(number, Shard(found.found.cluster), found.log)
        placement = Placement(settings, gained=host.gained, lost=host.lost)
        tell("joined")
        await ends.wait()
        host.decides = False
        while not host.node.is_settled:
            await asyncio.sleep(0.01)
        tell("holds", *host.engine.topics.get(1, []))
        await placement.close()
        for task in list(host.tasks):
            task.cancel()
        await asyncio.gather(*host.tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], *(int(word) for word in sys.argv[3:6])))
