"""Workers that wait for jobs: parked claims, and what they get (§10.2).

Owns the clients' end of them, and the check that each grant is one that the contract allows: the
lowest jobs that may be claimed, to a claim that waits, no more than it asked for, and no job idle
while a claim waits.  Refuses to know in which order waiting claims are looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from topics.protocol.model.commands import Claim
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.events import JobsLeased
from topics.protocol.model.outcomes import Outcome

from .invariants import check, i6_what_is_deleted_stays_deleted
from .model import Topic
from .process import payload

if TYPE_CHECKING:
    from .world import World

SLACK_MS = 100
"""How late the loop's timer may be: time passes between the turns of a world."""


@dataclass(eq=False)
class Claimer:
    """A parked claim; `until_ms` is when it is answered at the latest, `cancel` says that its client
    is gone."""

    command: Claim
    until_ms: int
    cancel: Callable[[], None]


class Waiting:
    """All claims that wait for jobs of one process."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.claimers: list[Claimer] = []
        self.grants: dict[str, tuple[JobsLeased, TopicConfig]] = {}
        self._windows: dict[str, int] = {}

    def end(self) -> None:
        """The process has ended, and every connection with it."""
        self.claimers.clear()
        self.grants.clear()

    # -- what the engine says it did -----------------------------------------------------------

    def granted(self, event: JobsLeased) -> None:
        """Jobs are leased: lowest first, and none that cannot be claimed. (I18, I21)"""
        world = self._world
        topic = self._topic(event.topic_id)
        able = self.able(topic)
        # Of one deal some may have gone to those before.
        wrong = [seq for seq in event.seqs if seq not in able]
        check(not wrong, "I18", f"{topic.name}: {wrong} leased, of {able[:9]}: {event}")
        self.grants[f"lease_{event.leases[0]:x}"] = event, topic.config
        for seq, lease, deliveries in zip(event.seqs, event.leases, event.deliveries, strict=True):
            known = topic.jobs.lease(
                seq, event.node, event.until_ms, lasting=topic.config.leases_durable
            )
            known.lease = lease
            check(known.deliveries == deliveries, "I20", f"{known}: {event}")
            check(lease not in world.clients.leases, "I21", f"a lease again: {event}")
            world.clients.leases.add(lease)

    def able(self, topic: Topic) -> list[int]:
        """Jobs that may be delivered now, as far as they are visible."""
        jobs, config = topic.jobs, topic.config
        return [
            record.seq
            for record in topic.shown(self._world.traffic.shown_head(topic.name))
            if jobs.is_claimable(record.seq) and not jobs.is_exhausted(record.seq, config)
        ]

    def _topic(self, topic_id: int) -> Topic:
        world = self._world
        return world.model.topics[world.process.engine.state.by_id[topic_id].name]

    # -- answers -------------------------------------------------------------------------------

    def answered(self, claim: Claim, outcome: Outcome) -> tuple[dict[str, Any], bool]:
        """A claim is answered with what was leased for it.

        Returns:
            The answer, and whether it is of lasting leases that promise a sync.
        """
        is_durable = False
        answer: dict[str, Any] = orjson.loads(payload(outcome)[0])
        world = self._world
        topic = world.model.topics.get(claim.topic) or Topic(claim.topic, TopicConfig())
        seqs = [job["$seq"] for job in answer["claimed"]]
        check(len(seqs) == answer["count"] <= claim.limit, "I18", f"{claim} {answer}")
        check(seqs == sorted(set(seqs)), "C1", f"not ascending: {answer}")
        gone = world.clients.gone.get(topic.epoch, {})
        live = [seq for seq in seqs if seq in topic.records]
        i6_what_is_deleted_stays_deleted(topic.epoch, live, gone)
        if seqs:
            is_durable = self._check_grant(claim, answer["claimed"])
        for job in answer["claimed"]:
            known = topic.jobs.known.get(job["$seq"])
            now = None if known is None else (f"lease_{known.lease:x}", known.until_ms)
            if now == (job["lease_id"], job["deadline"]):
                # Else it was acked, extended or claimed again in the turn that reports this.
                world.traffic.check_job(topic, job)
        return answer, is_durable

    def _check_grant(self, claim: Claim, jobs: list[dict[str, Any]]) -> bool:
        found = self.grants.pop(jobs[0]["lease_id"], None)
        check(found is not None, "I18", f"{jobs} of no grant: {self.grants}")
        assert found is not None
        grant, config = found
        lease_ms = config.lease_ms if claim.lease_ms is None else claim.lease_ms
        until_ms = grant.now_ms + lease_ms
        check((grant.node, grant.until_ms) == (claim.node, until_ms), "I20", f"{grant}: {claim}")
        told = [(j["$seq"], j["lease_id"], j["deadline"], j["deliveries"]) for j in jobs]
        given = zip(grant.seqs, grant.leases, grant.deliveries, strict=True)
        expected = [(seq, f"lease_{lease:x}", until_ms, times) for seq, lease, times in given]
        check(told == expected, "I20", f"{grant}: {jobs}")
        return config.durability == "fsync" and config.leases_durable

    def park(self, claim: Claim) -> "Claimer":
        jitter_ms = self._world.model.topics[claim.topic].config.claim_jitter_ms
        check(bool(claim.wait_ms or jitter_ms), "I33", f"parked: {claim}")
        now_ms = self._world.model.now_ms
        until_ms = now_ms + max(claim.wait_ms, jitter_ms)
        self.may_open_a_window(claim.topic)
        claimer = Claimer(claim, until_ms, self._world.process.cancel)
        self.claimers.append(claimer)
        return claimer

    def may_open_a_window(self, name: str) -> None:
        """Claims of a queue may be gathered from now on; a window that is open closes at its time,
        whatever config follows. (§10.2)"""
        topic = self._world.model.topics.get(name)
        if topic is not None and topic.config.claim_jitter_ms:
            closes_ms = self._world.model.now_ms + topic.config.claim_jitter_ms
            self._windows[name] = max(self._windows.get(name, 0), closes_ms)

    def leave(self, claimer: Claimer) -> None:
        """Its client goes: others that came with it are answered all the same."""
        self.claimers.remove(claimer)
        claimer.cancel()

    def woken(self, claimer: Claimer, result: Outcome | Exception) -> bool:
        """A parked claim is answered; returns whether its response promises a sync."""
        self.claimers.remove(claimer)
        if isinstance(result, Exception):
            check("does not exist" in str(result), "I29", result)
            return False
        return self.answered(claimer.command, result)[1]

    def check_rest(self) -> None:
        """After a turn: every leased job was sent to a worker, no claim waits too long, and no job
        waits while a claim does, except in an open window."""
        world = self._world
        engine = world.process.engine
        for lease, (grant, _) in list(self.grants.items()):
            if grant.topic_id not in engine.state.by_id:
                del self.grants[lease]  # its stream ended with its queue, and sent nothing more
        untold = self.grants.keys() - world.pushing.untaken
        check(not untold, "I18", f"told nobody: {untold}")
        for claimer in self.claimers:
            late = claimer.until_ms < world.model.now_ms - SLACK_MS
            check(not late, "I33", f"not answered at {world.process.now_ms}: {claimer}")
        hungry = set[str]() if world.has_no_space else world.pushing.hungry
        names = {c.command.topic for c in self.claimers}
        for name in sorted((hungry | names) & world.model.topics.keys()):
            topic = world.model.topics[name]
            if topic.config.claim_jitter_ms:
                check(
                    engine.alarm_ms() is not None or name not in names,
                    "I33",
                    f"{name}: no alarm for a window",
                )
            self.may_open_a_window(name)
            if self._windows.get(name, 0) >= world.model.now_ms:
                continue
            idle = self.able(topic)
            check(not idle, "I33", f"{idle} of {name}: {self.claimers} {world.pushing.open}")
