"""Hypothesis plays client and clock over a store in memory; the model says what each answer may be.

The store on a disk, which is cut, killed and stopped, has the simulation (`tests/sim`).
"""

import dataclasses
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sim.reading import Ask
from sim.script import PLAIN
from sim.world import World

from topics.protocol.model.ports import Store
from topics.store.memory import MemoryStore

CLASSES = st.sampled_from(("disk", "fsync", "ephemeral", "memory"))
SEQS = st.integers(0, 60)
MATCHES = st.sampled_from((None, "x", "x*", "y.1", "*"))
SUBJECTS = st.sampled_from((None, "x", "x.*", "y.>", ">"))

PROFILE = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class MemoryWorld(World):
    """A world whose store keeps nothing beyond its process."""

    def store(self) -> Store:
        return MemoryStore()


class Topics(RuleBasedStateMachine):
    """One topic, every command, maintenance at any moment."""

    @initialize(durability=CLASSES)
    def begin(self, durability: str) -> None:
        self.world: World = MemoryWorld(1, PLAIN)
        self.world.start()
        self.put(durability, {})

    def _turn(self) -> None:
        self.world.end_turn()
        self.world.settle()

    @rule(count=st.integers(1, 9), key=st.sampled_from((None, "k1", "k2")))
    def append(self, count: int, key: str | None) -> None:
        self.world.traffic.append_some("a", count, key)
        self._turn()

    @rule(
        from_seq=SEQS,
        limit=st.sampled_from((1, 3, 1000)),
        budget_bytes=st.sampled_from((1, 400, 1 << 20)),
        nodes=st.sampled_from(((), ("n1",))),
        match=MATCHES,
        from_ts=st.booleans(),
    )
    def diff(self, from_ts: bool, **ask: Any) -> None:
        ask["from_ts"] = self.world.clock_ms - 50 if from_ts else None
        self.world.traffic.read("a", Ask(**ask))

    @rule(before_seq=SEQS, match=MATCHES, erase=st.booleans())
    def delete(self, before_seq: int, match: str | None, erase: bool) -> None:
        self.world.traffic.delete_some("a", before_seq, match, erase=erase)
        self._turn()

    @rule(seq=st.none() | SEQS, keep=st.integers(0, 5), subject=SUBJECTS)
    def purge(self, seq: int | None, keep: int, subject: str | None) -> None:
        self.world.traffic.purge_some("a", seq, keep if seq is None else None, subject)
        self._turn()

    @rule(
        durability=CLASSES,
        fields=st.fixed_dictionaries(
            {},
            optional={
                "cap_records": st.sampled_from((1, 2, 10)),
                "cap_bytes": st.sampled_from((300, 2000)),
                "ttl_ms": st.sampled_from((50, 500)),
                "discard": st.sampled_from(("old", "reject")),
                "idempotency_window_ms": st.sampled_from((0, 100)),
            },
        ),
    )
    def put(self, durability: str, fields: dict[str, Any]) -> None:
        self.world.traffic.put_class("a", durability, **fields)
        self._turn()

    @rule(ms=st.sampled_from((1, 30, 60, 600)))
    def expire(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(steps=st.integers(1, 12), checkpoint=st.booleans())
    def maintain(self, steps: int, checkpoint: bool) -> None:
        """Seals, drops, flips and checkpoints, as far as `steps` go."""
        for _ in range(steps):
            self.world.process.step_maintenance(checkpoint=checkpoint)
        self.world.settle()

    @invariant()
    def state_is_counted(self) -> None:
        """Count, bytes, head and floor equal a recount. (§1.2)"""
        if hasattr(self, "world"):
            self.world.traffic.get("a")


NODE = st.sampled_from(("n1", "n2", "n3"))
JOBS = st.lists(st.integers(1, 25), max_size=4)


class Jobs(RuleBasedStateMachine):
    """One queue and its dead-letter topic `c`, every command of §10, maintenance at any moment."""

    @initialize(durability=CLASSES, leases_durable=st.booleans())
    def begin(self, durability: str, leases_durable: bool) -> None:
        self.world: World = MemoryWorld(1, dataclasses.replace(PLAIN, queues=("a",)))
        self.world.start()
        self.put(durability, {"leases_durable": leases_durable})

    def _turn(self) -> None:
        self.world.end_turn()
        self.world.settle()

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.world.traffic.append_some("a", count, None)
        self._turn()

    @rule(node=NODE, limit=st.integers(1, 4), lease_ms=st.sampled_from((None, 100, 1000)))
    def claim(self, node: str, limit: int, lease_ms: int | None) -> None:
        self.world.traffic.claim("a", node, limit, lease_ms)
        self._turn()

    def _leases(self, seqs: list[int], fenced: bool) -> list[int] | None:
        known = self.world.model.topics["a"].jobs.known
        return [known[seq].lease if seq in known else 7 for seq in seqs] if fenced else None

    @rule(node=NODE, seqs=JOBS, fenced=st.booleans())
    def ack(self, node: str, seqs: list[int], fenced: bool) -> None:
        self.world.traffic.ack("a", node, seqs, self._leases(seqs, fenced))
        self._turn()

    @rule(node=NODE, seqs=JOBS, fenced=st.booleans(), delay_ms=st.sampled_from((0, 30, 600)))
    def nack(self, node: str, seqs: list[int], fenced: bool, delay_ms: int) -> None:
        self.world.traffic.nack("a", node, seqs, self._leases(seqs, fenced), delay_ms)
        self._turn()

    @rule(node=NODE, seqs=JOBS, fenced=st.booleans(), lease_ms=st.sampled_from((100, 5000)))
    def extend(self, node: str, seqs: list[int], fenced: bool, lease_ms: int) -> None:
        self.world.traffic.extend("a", node, seqs, self._leases(seqs, fenced), lease_ms)
        self._turn()

    @rule(node=NODE, fenced=st.booleans())
    def ack_all(self, node: str, fenced: bool) -> None:
        """What somebody holds, or held until its time ran out."""
        known = self.world.model.topics["a"].jobs.known
        seqs = [seq for seq, job in known.items() if job.node == node and job.lease]
        self.ack(node, seqs[:1000], fenced)

    @rule(before_seq=st.integers(0, 25), match=MATCHES)
    def delete(self, before_seq: int, match: str | None) -> None:
        self.world.traffic.delete_some("a", before_seq, match)
        self._turn()

    @rule(
        durability=CLASSES,
        fields=st.fixed_dictionaries(
            {"leases_durable": st.booleans()},
            optional={
                "cap_records": st.sampled_from((1, 2, 10)),
                "ttl_ms": st.sampled_from((50, 500)),
                "discard": st.sampled_from(("old", "reject")),
                "lease_ms": st.sampled_from((100, 1000)),
                "max_deliveries": st.sampled_from((1, 2)),
                "dead_letter": st.just("c"),
                "auto_create": st.booleans(),
            },
        ),
    )
    def put(self, durability: str, fields: dict[str, Any]) -> None:
        self.world.traffic.put_class("a", durability, type="queue", **fields)
        self._turn()

    @rule(cap_records=st.sampled_from((0, 1)), discard=st.sampled_from(("old", "reject")))
    def put_dead(self, cap_records: int, discard: str) -> None:
        self.world.traffic.put_class("c", "disk", cap_records=cap_records, discard=discard)
        self._turn()

    @rule(ms=st.sampled_from((1, 29, 30, 100, 101, 600)))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(steps=st.integers(1, 12), checkpoint=st.booleans())
    def maintain(self, steps: int, checkpoint: bool) -> None:
        for _ in range(steps):
            self.world.process.step_maintenance(checkpoint=checkpoint)
        self.world.settle()

    @invariant()
    def counters_are_a_recount(self) -> None:
        """`ready + in_flight + delayed == count`, and each is what the model counts. (§10.7)"""
        if hasattr(self, "world"):
            self.world.traffic.get("a")


TestTopics = Topics.TestCase
TestTopics.settings = PROFILE
TestJobs = Jobs.TestCase
TestJobs.settings = PROFILE
