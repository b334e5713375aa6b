"""A node's life as a server has it: joins its cluster, serves, and goes.

Implements `serving.ServedRuntime`.  Owns the order of both ends.  At the start: the directory is
held, Kafka's topics are verified (requests are refused meanwhile, and `/v0/ready` says what is waited for),
the node's own log is replayed, the shared one is read to its end, and only then is the node a candidate.
At the stop: no candidate any more, the shard handed over, the engine, the heartbeats, the writer.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.unit import FORMAT_OLDEST, Shard
from topics.protocol.model.errors import StoreError
from topics.protocol.model.ports import Store
from topics.server.cluster.exchange import ClusterExchange
from topics.server.cluster.kafka import checks
from topics.server.cluster.kafka.asking import Brokers
from topics.server.cluster.kafka.failures import CannotStart
from topics.server.cluster.kafka.heartbeats import BEAT_MS, Heartbeats
from topics.server.cluster.kafka.log import KafkaLog
from topics.server.cluster.kafka.placement import Placement
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import Writer
from topics.server.cluster.kafka_face import namesake_of
from topics.server.cluster.node.candidacy import Candidacy
from topics.server.cluster.node.directory import NodeDirectory
from topics.server.cluster.node.host import ClusterHost
from topics.server.cluster.node.node_standing import NodeStanding, monotonic_ms
from topics.server.cluster.node.runtime import ClusterRuntime
from topics.server.cluster.node.tasks import Tasks
from topics.server.cluster.node.trimmer import Trimmer
from topics.server.cluster.peers import Peers
from topics.server.cluster.snapshots import NodeSnapshots

LOOK_S: Final = 0.1
"""How often is looked at how this node stands."""
START_EVERY_S: Final = 10.0
"""How often is asked where the log begins."""
END_WAIT_MS: Final = 5000
SNAPSHOT_UNITS: Final = 1000
"""So far have others to be that an empty node takes a snapshot rather than read the log."""
ROSTER_S: Final = 2.5
"""A node that lives says so more often (`BEAT_MS`)."""
HISTORY_BYTES: Final = 8
GONE_MS: Final = 900_000
"""From the trim that reaches a segment of Kafka's log to the end of its file: a look of ours, one of the
broker's cleaner (`log.retention.check.interval.ms`, 5 min) and the delay of a deletion (1 min)."""
LEADS: Final = {True: "leads", False: "does not lead any more"}

log = logging.getLogger("topics.cluster")


def history_of(cluster: bytes) -> bytes:
    """The history of a cluster's stores, of which clients see epochs made."""
    return cluster[:HISTORY_BYTES]


class ClusterNode:
    """One node on the running event loop.

    Args:
        exchange: Over this runtime and this standing.
        open_store: Makes a store of this history, not yet recovered.
    """

    def __init__(
        self,
        runtime: ClusterRuntime,
        exchange: ClusterExchange,
        standing: NodeStanding,
        peers: Peers,
        directory: NodeDirectory,
        kafka: KafkaSettings,
        open_store: Callable[[bytes], Store],
    ) -> None:
        self.exchange = exchange
        self._runtime, self._standing = runtime, standing
        self._peers, self._directory, self._kafka = peers, directory, kafka
        self._open_store = open_store
        self._ready = asyncio.Event()
        self._failed: asyncio.Future[Exception]
        self._writer: Writer | None = None
        self._log: KafkaLog | None = None
        self._heartbeats: Heartbeats | None = None
        self._placement: Placement | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._tasks = Tasks(self._fail)
        self._is_going = False
        self._candidacy = Candidacy()
        self._said: tuple[str, int] | None = None
        """The role that was said last, and when."""

    # ------------------------------------------------------------------ ServedRuntime

    @property
    def topics(self) -> int:
        return self._runtime.topics

    async def start(self) -> None:
        """Begin to join; returns at once."""
        self._failed = asyncio.get_running_loop().create_future()
        self._runtime.attach()
        self._tasks.begin(self._join())

    async def wait_ready(self) -> None:
        """Returns when this node's own log is replayed."""
        await self._ready.wait()

    async def wait_failed(self) -> Exception:
        return await asyncio.shield(self._failed)

    async def wait_space(self) -> None:
        await self._runtime.wait_space()

    def recovers(self) -> None:
        self._runtime.recovers()

    def leave(self) -> None:
        self._go(self._runtime.leave)

    @property
    def has_threads_at_work(self) -> bool:
        return self._runtime.has_threads_at_work

    def end_turns_by(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._runtime.end_turns_by(soon)

    def drain(self) -> None:
        """Take no more requests, and be no candidate."""
        self._go(self._runtime.drain)

    def _go(self, end_work: Callable[[], None]) -> None:
        self._is_going = True
        end_work()
        if self._placement is not None and self._leaving is None:
            self._leaving = asyncio.create_task(self._placement.close())

    async def stop(self) -> None:
        self.drain()
        await self._tasks.cancel()
        if self._leaving is not None:
            await self._leaving
        host = self._standing.host
        if host is not None and host.member.node is not None:  # else it has nothing yet
            await host.stop()
        await self._runtime.stop()
        if self._heartbeats is not None:
            await self._heartbeats.close()
        if self._log is not None:
            await self._log.close()
        if self._writer is not None:
            await self._writer.close()
        self._peers.close()
        self._directory.close()

    # ------------------------------------------------------------------ the start

    async def _join(self) -> None:
        standing = self._standing
        brokers = Brokers(self._kafka)
        joined = await self._known_to(brokers)
        shared = self._log = KafkaLog(
            self._kafka,
            shard=standing.shard,
            topic_id=joined.log_id,
            writer=joined.writer,
            brokers=brokers,
        )
        host, snapshots = self._host_over(shared, joined)
        heartbeats = self._heartbeats = Heartbeats(
            self._kafka,
            joined.writer,
            brokers,
            monotonic_ms=monotonic_ms,
            now_ms=lambda: self._runtime.clock_ms,
        )
        heartbeats.skew_ms = joined.skew_ms
        standing.roster = heartbeats.roster
        if not self._directory.has_store:
            # An empty node asks them for a snapshot; where none says anything it reads the log.
            standing.waits_for = "what the other nodes say of themselves"
            with suppress(TimeoutError):
                await asyncio.wait_for(heartbeats.has_read.wait(), ROSTER_S)
        standing.waits_for = "its own log to be replayed"
        standing.host = host
        await host.start()
        standing.waits_for = "the end of the cluster's log"
        self._ready.set()
        self._tasks.begin(self._watch_host(host))
        self._tasks.begin(self._look(heartbeats))
        self._tasks.begin(self._ask_start(brokers))
        self._tasks.begin(self._trimmer_of(shared, heartbeats, joined).run())
        while not await host.wait_for_end(END_WAIT_MS):
            await asyncio.sleep(LOOK_S)
        # What an attempt left that was interrupted, and is not needed any more.
        await asyncio.to_thread(snapshots.clean)
        await heartbeats.has_read.wait()
        self._require_number(heartbeats)
        standing.waits_for = None
        self._placement = Placement(
            self._kafka,
            gained=lambda shard: host.gained(),
            lost=lambda shard: host.lost(),
        )

    def _require_number(self, heartbeats: Heartbeats) -> None:
        """Raises CannotStart: to Kafka's clients this node would be another."""
        node, known = self._standing.name.node, heartbeats.roster.names
        other = namesake_of(node, known)
        if other is not None:
            raise CannotStart(
                f"node {node} has the number of node {other} for Kafka's clients: begin with an empty directory, "
                "which gives this node another id"
            )

    async def _known_to(self, brokers: Brokers) -> checks.Joined:
        """Verify Kafka's topics, and that the directory belongs to the cluster they are of."""
        joined = await checks.join(
            self._kafka,
            brokers,
            known=self._directory.membership.cluster,
            brings_base=self._directory.membership.is_adopted,
            now_ms=lambda: self._runtime.clock_ms,
        )
        self._writer = joined.writer
        await asyncio.to_thread(self._directory.belong, joined.cluster)
        self._peers.know(joined.secret)
        return joined

    def _host_over(
        self, shared: KafkaLog, joined: checks.Joined
    ) -> tuple[ClusterHost, NodeSnapshots]:
        standing, history = self._standing, history_of(joined.cluster)
        self._runtime.prepare(lambda: self._open_store(history))
        shard = Shard(joined.cluster, standing.shard)
        snapshots = NodeSnapshots(
            self._directory.path,
            shard,
            history,
            standing.sources,
            lambda: self._peers.token,
            may_begin=not joined.has_base,
        )
        host = ClusterHost(
            self._runtime,
            shared,
            shard,
            standing.name,
            message_bytes_max=shared.record_bytes_max,
            snapshots=snapshots,
            nodes=standing.nodes,
            needs_snapshot=lambda place: (
                joined.has_base or standing.units_elsewhere() >= SNAPSHOT_UNITS
            ),
        )
        return host, snapshots

    def _trimmer_of(
        self, shared: KafkaLog, heartbeats: Heartbeats, joined: checks.Joined
    ) -> Trimmer:
        standing = self._standing
        trimmer = standing.trimmer = Trimmer(
            shared,
            standing,
            heartbeats,
            retain_ms=standing.retain_ms,
            near_ms=self._kafka.session_ms,
            monotonic_ms=monotonic_ms,
            now_ms=lambda: self._runtime.clock_ms,
        )
        standing.log_kept_ms = (
            max(standing.retain_ms, joined.segment_ms) + trimmer.mark_ms + GONE_MS
        )
        return trimmer

    def _fail(self, error: BaseException) -> None:
        """This process cannot go on."""
        if not self._failed.done() and not self._is_going:
            if isinstance(error, CannotStart):
                error = StoreError(str(error))
            self._failed.set_result(
                error if isinstance(error, Exception) else StoreError(repr(error))
            )

    # ------------------------------------------------------------------ while it serves

    async def _watch_host(self, host: ClusterHost) -> None:
        why = await asyncio.shield(host.halted)  # it is the host's, and outlives this task
        raise StoreError(f"this node cannot go on: {why}")

    async def _look(self, heartbeats: Heartbeats) -> None:
        every_ms = min(BEAT_MS, self._kafka.session_ms // 4)
        beating: asyncio.Task[None] | None = None
        led = False
        while True:
            self._standing.look()
            self._judge(heartbeats.skew_ms)
            self._choose_format(heartbeats)
            if self._standing.leads != led:
                led = not led
                log.info("this node %s, term %d", LEADS[led], self._standing.term)
            beat = self._standing.beat()
            said = self._said
            is_due = said is None or said[0] != beat.role or monotonic_ms() - said[1] >= every_ms
            if is_due and (beating is None or beating.done()):
                beating = self._tasks.begin(self._beat(heartbeats))
            await asyncio.sleep(LOOK_S)

    def _choose_format(self, heartbeats: Heartbeats) -> None:
        """What this node writes has to be read by all that live; before it has heard of them, by the
        oldest there may be."""
        host, newest = self._standing.host, FORMAT_OLDEST
        if heartbeats.has_read.is_set():
            newest = heartbeats.roster.format(monotonic_ms(), self._standing.retain_ms)
            self._standing.format = newest
        if host is not None:
            host.write_format(newest)

    async def _beat(self, heartbeats: Heartbeats) -> None:
        beat, at_ms = self._standing.beat(), monotonic_ms()
        if await heartbeats.beat(beat):
            self._said = (beat.role, at_ms)

    def _judge(self, skew_ms: int) -> None:
        """Be a candidate or none."""
        placement, host = self._placement, self._standing.host
        if placement is None or host is None:
            return
        # Of the driver that serves: one that is being replaced is read-only for a moment.
        acceptance = host.member.acceptance
        if not self._candidacy.judge(
            skew_ms=skew_ms,
            is_read_only=acceptance is not None and acceptance.driver.engine.read_only,
            has_data=host.member.state not in (NodeState.ASIDE, NodeState.HALTED),
        ):
            return
        refusal = self._candidacy.refusal
        if refusal is None:
            log.info("this node may lead again")
            placement.enter()
        else:
            log.error("this node does not lead: %s", refusal)
            placement.withdraw()

    async def _ask_start(self, brokers: Brokers) -> None:
        kafka, standing = self._kafka, self._standing
        while True:
            # A broker that forbids it, or a topic that is gone, is the log's to tell.
            with suppress(Exception):
                bounds = await brokers.bounds(kafka.log_topic, standing.shard)
                standing.log_start, standing.log_end = bounds
            await asyncio.sleep(START_EVERY_S)
