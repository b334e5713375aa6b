"""How a node stands from its start on: before it has joined, while it catches up, and as its host says.

Implements `standing.Standing`, and owns what is made of the other nodes' heartbeats: who is there, how
far this replica lags, and where the leader is that this node has not read of.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.unit import FORMAT
from topics.protocol.faces.http.cluster import TrimBody
from topics.server.cluster.kafka.heartbeats import Beat, Roster
from topics.server.cluster.node.host import ClusterHost, NodeName
from topics.server.cluster.node.lag import Lag
from topics.server.cluster.node.status import ClusterStatus, NodeStatus, TrimStatus
from topics.server.cluster.node.trimmer import Trimmed, Trimmer
from topics.server.cluster.peers import not_leader
from topics.server.cluster.snapshots import Donor
from topics.server.http.store_files import StoreFiles


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class NodeStanding:
    """Of one node.

    Args:
        process: Of this start, 32 hexadecimal digits.
        session_ms: Silence after which a node counts as away.
        retain_ms: Silence after which it is not told of.

    Attributes:
        host: None before this node has joined.
        roster: Whom it heard of.
        waits_for: As `ClusterStatus` has it.
        log_start, log_end: As well, when it was asked last.
        holds: Offset from which on the log has to stay for a snapshot that this node gives or takes, so
            that it can be compared with the log and read on from; -1: none.
        trimmer: None before this node has joined.
        log_kept_ms: For how long Kafka may keep a record of which nothing is true any more, where all
            nodes live; 0 before this node has joined.
    """

    def __init__(
        self,
        name: NodeName,
        shard: int,
        files: StoreFiles,
        *,
        process: str,
        session_ms: int,
        retain_ms: int,
    ) -> None:
        self.name = name
        self.shard = shard
        self.host: ClusterHost | None = None
        self.format: int | None = None
        self.roster = Roster()
        self.waits_for: str | None = "Kafka's brokers"
        self.log_start: int | None = None
        self.log_end: int | None = None
        self._files = files
        self.holds = self._given = -1
        self.trimmer: Trimmer | None = None
        self.log_kept_ms = 0
        self._process = process
        self._session_ms, self.retain_ms = session_ms, retain_ms
        self._lag = Lag()

    # ------------------------------------------------------------------ Standing

    @property
    def leads(self) -> bool:
        return self.host is not None and self.host.leads

    @property
    def leader_url(self) -> str | None:
        return None if self.host is None else self.host.leader_url

    @property
    def term(self) -> int:
        return 0 if self.host is None else self.host.term

    @property
    def index(self) -> int:
        return 0 if self.host is None else self.host.index

    async def wait_for(self, index: int, wait_ms: int) -> bool:
        if self.host is None:
            await asyncio.sleep(wait_ms / 1000)
            return False
        return await self.host.wait_for(index, wait_ms)

    async def wait_for_end(self, wait_ms: int) -> bool:
        if self.host is None:
            await asyncio.sleep(wait_ms / 1000)
            return False
        return await self.host.wait_for_end(wait_ms)

    async def trim(self, asked: TrimBody) -> Trimmed:
        if self.trimmer is None:
            raise not_leader("this node has not joined the cluster yet", None)
        return await self.trimmer.by_hand(asked)

    def log_retained_until_ms(self, now_ms: int) -> int:
        return now_ms + self.log_kept_ms

    def status(self) -> ClusterStatus:
        name, host = self.name, self.host
        if host is None:
            return ClusterStatus(
                cluster=name.cluster,
                shard=self.shard,
                node=name.node,
                leader=None,
                term=0,
                index=0,
                waits_for=self.waits_for,
            )
        found, index = host.status(), host.index
        snapshot = msgspec.structs.replace(found.snapshot, served=self._files.taken)
        leaders = (node.node for node in found.nodes if node.role == "leader")
        return msgspec.structs.replace(
            found,
            leader=found.leader or next(leaders, None),
            lag_units=max(found.lag_units, self._lag.units(index)),
            lag_ms=self._lag.ms(index, monotonic_ms()),
            log_start=self._log_start,
            log_end=max(
                (end for end in (found.log_end, self.log_end) if end is not None), default=None
            ),
            snapshot=snapshot,
            waits_for=snapshot.what if snapshot.taking else self.waits_for,
            trim=self._trim,
        )

    def sources(self) -> list[Donor]:
        """The nodes of which a snapshot may be taken, the best first: followers, which have no clients
        that wait for them, before the leader, and those that are farther before others."""
        own = self.name.node
        live = self.roster.live(monotonic_ms(), self._session_ms)
        able = [beat for beat in live if beat.node != own and beat.role != "lost" and beat.index]
        able.sort(key=lambda beat: (beat.role == "leader", -beat.index))
        return [Donor(beat.node, beat.url) for beat in able]

    def units_elsewhere(self) -> int:
        """How many units the other nodes that live have applied, at most."""
        own = self.name.node
        live = self.roster.live(monotonic_ms(), self._session_ms)
        return max((b.index for b in live if b.node != own and b.role != "lost"), default=0)

    def _held(self, host: ClusterHost) -> int:
        """What a copy of this node's store has is no older than what was on its disk when the copying
        began; what was brought here has to be there until it is in its place."""
        given = -1
        if self._files.is_giving:
            given = host.durable if self._given < 0 else self._given
        self._given = given
        held = [offset for offset in (given, host.offered) if offset >= 0]
        return min(held, default=-1)

    @property
    def _log_start(self) -> int | None:
        """As it was asked last, or as this node has trimmed it since."""
        if self.log_start is None or self.trimmer is None:
            return self.log_start
        return max(self.log_start, self.trimmer.log_start)

    @property
    def _trim(self) -> TrimStatus | None:
        """The newest that is known: of this node's own looks, and of the others'."""
        own = None if self.trimmer is None else self.trimmer.status
        known = [said for said in (own, self.roster.trim) if said is not None]
        return max(known, key=lambda said: said.looked_ms, default=None)

    def mark_time(self) -> None:
        """Have the log say what time it is, if this node leads."""
        if self.host is not None:
            self.host.mark_time()

    # ------------------------------------------------------------------ heartbeats

    def look(self) -> None:
        """Note what this node knows of, and how far it is: every now and then."""
        host = self.host
        if host is None or host.member.node is None:
            return
        self.holds = self._held(host)
        live = self.roster.live(monotonic_ms(), self._session_ms)
        told = [beat.index for beat in live if beat.role != "lost" and beat.term <= host.term]
        self._lag.note(max(host.member.node.anchor.index, *told, 0), host.index, monotonic_ms())

    def beat(self) -> Beat:
        """What this node says of itself; it has a host."""
        host = self.host
        assert host is not None
        index = host.index
        return Beat(
            node=self.name.node,
            process=self._process,
            url=self.name.url,
            role=self._role,
            term=host.term,
            index=index,
            durable=host.durable,
            durable_epoch=host.durable_mark.epoch,
            lag_units=self._lag.units(index),
            lag_ms=self._lag.ms(index, monotonic_ms()),
            needs_log=host.needs_log,
            holds=self.holds,
            trim=self._trim,
            kafka=self.name.kafka,
            reads_format=FORMAT,
        )

    @property
    def _role(self) -> Literal["leader", "follower", "lost"]:
        host = self.host
        assert host is not None
        if host.member.state is NodeState.ASIDE:
            return "lost"
        return "leader" if host.leads else "follower"

    def nodes(self) -> Sequence[NodeStatus]:
        """Every node that was heard of, ordered by id; of this one what is true now."""
        at_ms = monotonic_ms()
        beats = {beat.node: beat for beat in self.roster.live(at_ms, self.retain_ms)}
        own = self.name.node
        return [
            self._own() if node == own else self._other(beats[node], at_ms)
            for node in sorted({*beats, own})
        ]

    def _own(self) -> NodeStatus:
        host = self.host
        assert host is not None
        index = host.index
        return NodeStatus(
            node=self.name.node,
            url=self.name.url,
            role=self._role,
            index=index,
            lag_units=self._lag.units(index),
            lag_ms=self._lag.ms(index, monotonic_ms()),
            durable=host.durable,
            kafka=self.name.kafka,
        )

    def _other(self, beat: Beat, at_ms: int) -> NodeStatus:
        silent_ms = self.roster.silent_ms(beat.node, at_ms) or 0
        return NodeStatus(
            node=beat.node,
            url=beat.url,
            role="away" if silent_ms > self._session_ms else beat.role,
            index=beat.index,
            lag_units=beat.lag_units,
            lag_ms=beat.lag_ms,
            seen_ms_ago=silent_ms,
            durable=beat.durable,
            kafka=beat.kafka,
        )
