"""The host of one node: performs the rule's effects, beside the runtime.

Owns who is to lead, how this node stands (`standing.Standing`), and the store's change for another
node's.  What concerns the log that nodes share, `log_work` does.  It decides nothing:
`protocol.cluster` does, on the same event loop.

Invariant: the rule hears of each step once.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from topics.protocol.cluster.acceptance import UnitAcceptance
from topics.protocol.cluster.member import LogEffect, Member
from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.ports import (
    ReplicatedLog,
)
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.steps import (
    AskEnd,
    Halt,
    HistoryLost,
    Input,
    Install,
    Offered,
    Prove,
    ReadOn,
    Send,
    TakeSnapshot,
)
from topics.protocol.cluster.rule.unit import Shard
from topics.protocol.cluster.turns import NOTHING_DURABLE, Durable
from topics.protocol.driver.loop_time import LoopTime
from topics.protocol.model.errors import StoreError
from topics.server.cluster.node.log_work import AGAIN_S, LogWork
from topics.server.cluster.node.runtime import ClusterRuntime
from topics.server.cluster.node.status import ClusterStatus, HistoryLoss, NodeStatus, SnapshotStatus
from topics.server.cluster.node.tasks import Tasks

log = logging.getLogger("topics.cluster")

TICK_S: Final = 0.1
"""How often is looked at what takes too long, and at who is to lead."""
STILL_MS: Final = 500
"""Twice this between two looks: the process did not run."""
SNAPSHOT_AGAIN_S: Final = 15.0
"""The longest pause between two attempts to take a snapshot."""
LEAD_AGAIN_MS: Final = 1000
"""Between two attempts to lead."""
GIVE_UP_MS: Final = 10_000
"""A client waits no longer for a unit to be accepted."""

READING: Final = frozenset(NodeState) - {NodeState.JOINING, NodeState.ASIDE, NodeState.HALTED}


class NodeName(msgspec.Struct, frozen=True, kw_only=True):
    """What this node is called.

    Attributes:
        cluster: `TOPICS_CLUSTER_NAME`.
        node: Its id.
        url: Where the other nodes reach it.
        kafka: Where Kafka's clients do, as `host:port`; "": it serves none.
    """

    cluster: str
    node: str
    url: str
    kafka: str = ""


class Snapshots(Protocol):
    """Other nodes' data, for one that cannot go on from its own."""

    async def fetch(self) -> tuple[Place, Mark]:
        """Bring another node's snapshot here, whole, beside the data directory; its place and mark.

        Raises:
            OSError: There is none now.
        """

    def install(self, *, is_empty: bool) -> str | None:
        """*Blocking.* Set the data directory aside, whole, and put what was fetched last into its
        place; nothing, where that is what a node begins with.  No store is open.  Raises OSError.

        Args:
            is_empty: What would be set aside never had data, and goes.

        Returns:
            Where the data are that were set aside.
        """

    def abort(self) -> None:
        """Let what is fetched now fail, soon."""

    @property
    def status(self) -> SnapshotStatus:
        """How far that is."""


class ClusterHost:
    """One node on the running event loop.  Implements `member.MemberHost` and `standing.Standing`.

    Args:
        message_bytes_max: The largest record that the log takes.
        snapshots: None: this node has to be given another's data by hand.
        needs_snapshot: Whether an empty store at this place needs one before the log is read.
        nodes: What the other nodes say of themselves.

    Attributes:
        halted: Why this process cannot go on with this log; it has to end.
    """

    def __init__(
        self,
        runtime: ClusterRuntime,
        shared: ReplicatedLog,
        shard: Shard,
        name: NodeName,
        *,
        message_bytes_max: int,
        snapshots: Snapshots | None = None,
        nodes: Callable[[], Sequence[NodeStatus]] = tuple,
        give_up_ms: int = GIVE_UP_MS,
        needs_snapshot: Callable[[Place], bool] = lambda place: False,
    ) -> None:
        self.name = name
        self.halted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.member = Member(
            shard,
            name.node,
            self,
            message_bytes_max=message_bytes_max,
            needs_snapshot=needs_snapshot,
        )
        self.member.moved = self._moved
        self._runtime = runtime
        self._shard = shard
        self._tasks = Tasks(self._step_failed)
        self._work = LogWork(
            shared,
            shard,
            self._tell,
            self._tasks,
            may_read=lambda: self.member.may_read,
            term=lambda: self.term,
            moved=self._moved,
        )
        self._snapshots = snapshots
        self._nodes = nodes
        self._give_up_ms = give_up_ms
        self._ticker: asyncio.Task[None] | None = None
        self._is_to_lead = False
        self._lead_at_s = 0.0
        self._tried_s = 0.0
        self._ran = LoopTime(STILL_MS)
        self._awake_ms = 0
        """When this process went on after it was stopped, by the steady clock."""
        self._news: asyncio.Event = asyncio.Event()
        self._loss: HistoryLoss | None = None
        self._losses = 0
        self._attempts = 0
        """To take a snapshot, since the last that was put into its place."""
        self.offered = -1
        """Offset of the mark of a snapshot that was brought and is not in its place yet; -1: none."""
        self._has_data = False
        """Whether the store that a snapshot replaces ever had any."""
        self._durable = NOTHING_DURABLE
        runtime.opened = self._opened
        runtime.when_failed = self._log_failed

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Replay this node's own log, and begin to read the shared one.

        Raises:
            StoreError, OSError: The data directory cannot be used.
        """
        runtime = self._runtime
        await runtime.start()
        ready = asyncio.ensure_future(runtime.wait_ready())
        failed = asyncio.ensure_future(runtime.wait_failed())
        await asyncio.wait((ready, failed), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            raise failed.result()
        failed.cancel()
        if self.halted.done():
            raise StoreError(self.halted.result())
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Let go of leading, once what is on its way is accepted or takes too long, and read no more.
        The runtime is stopped afterwards."""
        if self._snapshots is not None:
            self._snapshots.abort()
        await self.lost()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        self._work.stop_reading()
        await self._tasks.cancel()

    # ------------------------------------------------------------------ who is to lead

    def gained(self) -> None:
        """This node is to lead."""
        self._is_to_lead = True
        self._try_to_lead()

    async def lost(self) -> None:
        """This node is not to lead any more; returns once it has let go."""
        self._is_to_lead = False
        self.member.cease()
        until_s = time.monotonic() + self._give_up_ms / 1000
        while self._holds and time.monotonic() < until_s:
            await self._wait_for_news(TICK_S)
        if self._holds:
            self.member.give_up()
        while self.member.acceptance is None and not self.halted.done():
            await self._wait_for_news(TICK_S)

    @property
    def _holds(self) -> bool:
        return self.member.state in (NodeState.LEADING, NodeState.DRAINING)

    def _try_to_lead(self) -> None:
        now_s = time.monotonic()
        if self.member.state is NodeState.FOLLOWING and now_s >= self._lead_at_s:
            self._lead_at_s = now_s + LEAD_AGAIN_MS / 1000
            self._tried_s = now_s
            self.member.lead(os.urandom(16))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._note_pause()
            if self._takes_too_long():
                self.member.give_up()
            if self._is_to_lead:
                self._try_to_lead()

    def _note_pause(self) -> None:
        """A process that was stopped has waited for nothing meanwhile, and what Kafka has answered is
        heard first: its patience begins anew."""
        now_ms = self._runtime.steady_ms
        self._ran.look(now_ms)
        if self._ran.was_still:
            self._awake_ms, self._tried_s = now_ms, max(self._tried_s, time.monotonic())

    def _takes_too_long(self) -> bool:
        acceptance, state = self.member.acceptance, self.member.state
        if state in (NodeState.SEEKING, NodeState.BEGINNING, NodeState.PROVING):
            return (time.monotonic() - self._tried_s) * 1000 > self._give_up_ms
        since_ms = None if acceptance is None else acceptance.turns.proposed_ms
        if since_ms is None:
            return False
        return self._runtime.steady_ms - max(since_ms, self._awake_ms) > self._give_up_ms

    # ------------------------------------------------------------------ Standing

    @property
    def leads(self) -> bool:
        return self.member.leads

    @property
    def leader_url(self) -> str | None:
        if self.leads:
            return self.name.url
        if self._work.leader == self.name.node:
            return None  # its term is over, and the next has not begun here
        nodes = self._nodes()
        by_term = [node.url for node in nodes if node.node == self._work.leader]
        by_role = [node.url for node in nodes if node.role == "leader"]
        return next(iter(by_term or by_role), None)

    @property
    def term(self) -> int:
        return 0 if self.member.node is None else self.member.node.place.term

    @property
    def shard(self) -> int:
        return self._shard.number

    @property
    def index(self) -> int:
        return self.member.index

    @property
    def durable(self) -> int:
        """Offset of this node's mark, as far as it is synced here; -1: none."""
        return self.durable_mark.offset

    @property
    def durable_mark(self) -> Durable:
        """The same, with the epoch that the log gave with it."""
        acceptance = self.member.acceptance
        if (
            acceptance is not None
        ):  # while the store is opened anew, what it holds stays on the disk
            self._durable = acceptance.turns.durable
        return self._durable

    @property
    def needs_log(self) -> bool:
        """Whether this node reads on from where its data end, and not from another's snapshot."""
        node = self.member.node
        if node is None:
            return True
        is_empty = node.anchor.index == 0 and self._snapshots is not None
        return node.state is not NodeState.ASIDE and not is_empty

    def write_format(self, format_: int) -> None:
        """Records from here are written in this format from now on."""
        self.member.write_format(format_)

    def mark_time(self) -> None:
        """Have the log say what time it is, if this node leads."""
        acceptance = self.member.acceptance
        if acceptance is not None:
            acceptance.mark_time()
            self._runtime.rouse()

    async def wait_for(self, index: int, wait_ms: int) -> bool:
        return await self._wait_until(lambda: self.index >= index, wait_ms)

    async def wait_for_end(self, wait_ms: int) -> bool:
        until_s = time.monotonic() + wait_ms / 1000
        end = await self._work.end_within(wait_ms)
        if end is None:
            return False

        def has_read() -> bool:
            node = self.member.node
            return node is not None and node.state in READING and node.place.read >= end - 1

        def left_ms() -> int:
            return max(0, int((until_s - time.monotonic()) * 1000))

        if not await self._wait_until(has_read, left_ms()):
            return False
        assert self.member.node is not None
        return await self.wait_for(self.member.node.anchor.index, left_ms())

    async def _wait_until(self, holds: Callable[[], bool], wait_ms: int) -> bool:
        until_s = time.monotonic() + wait_ms / 1000
        while not holds():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            await self._wait_for_news(left_s)
        return True

    def status(self) -> ClusterStatus:
        node, nodes = self.member.node, tuple(self._nodes())
        accepted = 0 if node is None else node.anchor.index
        acceptance = self.member.acceptance
        return ClusterStatus(
            cluster=self.name.cluster,
            shard=self.shard,
            node=self.name.node,
            leader=self.name.node if self.leads else self._work.leader,
            term=self.term,
            index=self.index,
            lag_units=max(0, accepted - self.index),
            log_end=self._work.end,
            in_flight=0 if acceptance is None else acceptance.turns.under_way,
            nodes=nodes,
            loss=self._loss,
            losses=self._losses,
            snapshot=SnapshotStatus() if self._snapshots is None else self._snapshots.status,
        )

    def _tell(self, event: Input) -> None:
        """An input of the rule."""
        self.member.hear(event)
        self._runtime.rouse()

    # ------------------------------------------------------------------ news

    def _moved(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _wait_for_news(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            return

    # ------------------------------------------------------------------ MemberHost

    def carry(self, effect: LogEffect) -> None:
        match effect:
            case ReadOn() | Prove() | AskEnd() | Send():
                self._work.carry(effect)
            case TakeSnapshot():
                self._work.stop_reading()
                self._note_data()
                self._tasks.begin(self._take_snapshot())
            case Install():
                self._tasks.begin(self._reopen(self._install))
            case HistoryLost(place):
                self._tell_loss(place)
            case Halt(why):
                self._work.stop_reading()
                self._halt(why)

    def reopen(self) -> None:
        self._tasks.begin(self._reopen())

    def log(self, level: str, what: str) -> None:
        getattr(log, level)("%s", what)

    def _opened(self, acceptance: UnitAcceptance) -> None:
        try:
            self.member.opened(acceptance)
        except Exception as error:
            # It was replayed, and this node still does not serve: nobody else hears of it.
            log.critical("this node's data cannot be used", exc_info=error)
            self._halt(f"this node's data cannot be used: {error!r}")

    async def _reopen(self, between: Callable[[], None] = lambda: None) -> None:
        try:
            await self._runtime.reopen(between)
        except (StoreError, OSError) as error:
            self._halt(f"this node's data cannot be opened again: {error}")

    def _log_failed(self, error: Exception) -> None:
        self._is_to_lead = False
        self.member.failed()
        self._work.stop_reading()

    def _halt(self, why: str) -> None:
        log.critical("this node cannot go on: %s", why)
        if not self.halted.done():
            self.halted.set_result(why)

    def _step_failed(self, error: BaseException) -> None:
        log.critical("a step of this node failed", exc_info=error)
        self._halt(repr(error))

    def _note_data(self) -> None:
        acceptance, node = self.member.acceptance, self.member.node
        assert acceptance is not None
        at = 0 if node is None else node.anchor.index
        self._has_data = at > 0 or acceptance.driver.engine.topic_count > 0

    def _install(self) -> None:
        """*Blocking.*"""
        assert self._snapshots is not None
        aside = self._snapshots.install(is_empty=not self._has_data)
        self._attempts, self.offered = 0, -1
        if self._loss is not None:
            self._loss = msgspec.structs.replace(self._loss, set_aside=aside)

    def _tell_loss(self, place: Place) -> None:
        what = (
            f"the cluster's log has lost records that this node had applied up to unit {place.index}, "
            f"at offset {place.offset}; its data is left as it is, and set aside once it has another "
            "node's"
        )
        log.critical("%s", what)
        at_ms = self._runtime.clock_ms
        self._losses += 1
        self._loss = HistoryLoss(at_ms=at_ms, index=place.index, what=what)

    # ------------------------------------------------------------------ another node's data

    async def _take_snapshot(self) -> None:
        if self._snapshots is None:
            log.critical("this node needs another's data, and has no way to get it")
            return
        while True:
            if self._attempts:
                # What came did not pass the look, or nothing came: the node that gave it may be no better.
                await asyncio.sleep(min(AGAIN_S * 2 ** min(self._attempts, 6), SNAPSHOT_AGAIN_S))
            self._attempts += 1
            try:
                place, mark = await self._snapshots.fetch()
            except OSError as error:
                log.warning("no snapshot of another node yet: %s", error.strerror or error)
            else:
                self.offered = mark.place.offset
                self._tell(Offered(place, mark))
                return
