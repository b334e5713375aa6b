"""A queue whose jobs have options, over kills and power losses at any file call: who gets what is compared with a naive queue.

The naive queue has every job in one list and sorts it at each claim.  A world draws how its queue orders jobs: by
priority and time alone, by group one after another, by groups in turn, with bounds on what is in flight or started.  Jobs
have delays, priorities, groups, unique keys and a time to be started in, all at once; the queue may have a cap, and
keep no job for longer than a while.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.job_options import decoded_options
from topics.protocol.state.job import JobPlace

from .lives import SECONDS, Bug, Lives, Patch, require

GROUPS = ("a", "b", "c")
KEYS = ("k", "l", "m")
LEASE_MS = 1000
MOST = 3
"""Deliveries after which a job is a dead letter."""


class Job(msgspec.Struct):
    """As the naive queue knows it."""

    seq: int
    ts_ms: int
    priority: int = 0
    ready_ms: int = 0
    ends_ms: int = 0
    within_ms: int = 0
    """How soon it has to be started."""
    released_ms: int = 0
    """When an operator wanted it tried sooner than was asked."""
    was_started: bool = False
    """It was, and its deliveries count from none again."""
    group: str | None = None
    key: str | None = None
    deliveries: int = 0
    node: str = ""
    """Whose it is, under a lease that may have run out."""
    noted: int = 0
    """Deliveries when it was last given back."""
    until_ms: int = 0
    """Through when it is leased, where it has a node; else from when on it may be claimed again."""

    def is_leased(self, now_ms: int) -> bool:
        return bool(self.node) and now_ms <= self.until_ms

    def rank(self) -> tuple[int, ...]:
        if self.deliveries or self.was_started:
            return -self.priority, 0, self.seq, 0
        return -self.priority, 1, self.released_ms or max(self.ready_ms, self.ts_ms), self.seq


class Naive(msgspec.Struct):
    """The naive queue."""

    config: dict[str, Any]
    jobs: dict[int, Job] = {}
    keys: dict[str, int] = {}
    holds: dict[str, tuple[int, int]] = {}
    dead: int = 0
    dropped: int = 0
    starts: list[int] = []
    began_ms: int = 0
    appends: dict[str, list[int]] = {}

    # ------------------------------------------------------------------ what is there

    def rest_ms(self, job: Job) -> int:
        backoff = self.config.get("backoff")
        if backoff is None:
            return 0
        return min(backoff["base_ms"] * 2 ** (job.deliveries - 1), backoff["max_ms"])

    def may_start_ms(self, job: Job) -> int:
        """From when on it may be claimed."""
        if job.node:
            return job.until_ms + 1 + self.rest_ms(job)
        is_new = not job.deliveries and not job.released_ms
        return max(job.until_ms, job.ready_ms if is_new else 0)

    def is_ready(self, job: Job, now_ms: int) -> bool:
        return self.may_start_ms(job) <= now_ms

    def outlive(self, now_ms: int) -> None:
        """Jobs that the queue keeps no longer are gone, whoever holds them."""
        ttl_ms = self.config.get("ttl_ms")
        for job in list(self.jobs.values()) if ttl_ms else ():
            if now_ms - job.ts_ms > ttl_ms:
                self.end(job)

    def expire(self, now_ms: int) -> None:
        self.outlive(now_ms)
        for job in list(self.jobs.values()):
            if not job.deliveries and 0 < job.ends_ms <= now_ms:
                self.end(job)
                if "dead_letter" in self.config:
                    self.dead += 1
                else:
                    self.dropped += 1

    def end(self, job: Job) -> None:
        del self.jobs[job.seq]
        if job.key is not None and self.keys.get(job.key) == job.seq:
            del self.keys[job.key]

    def pushed_out(self, more: int, replaced: list[int], now_ms: int) -> list[int] | None:
        """The jobs that so many others push out, the oldest, and none from the first that is held on; None where they
        are refused.  They take the room of those that they replace."""
        cap = self.config.get("cap_records")
        count = len(self.jobs) - len(replaced) + more
        over = 0 if cap is None else count - cap
        if over <= 0:
            return []
        if self.config["discard"] == "reject":
            return None
        held = [job.seq for job in self.jobs.values() if job.is_leased(now_ms)]
        left = sorted(self.jobs.keys() - replaced)
        gone = [seq for seq in left if not held or seq < min(held)][:over]
        if held and count - len(gone) > 2 * cap:
            return None
        return gone

    def counters(self, now_ms: int) -> tuple[int, int, int]:
        leased = sum(job.is_leased(now_ms) for job in self.jobs.values())
        ready = sum(
            not job.is_leased(now_ms) and self.is_ready(job, now_ms) for job in self.jobs.values()
        )
        return ready, leased, len(self.jobs) - leased - ready

    # ------------------------------------------------------------------ claims

    @property
    def group_max(self) -> int:
        if self.config.get("order") == "group":
            return 1
        most: int = self.config.get("group_max_in_flight", 0)
        return most

    def allowed(self, now_ms: int) -> int:
        most = 1 << 30
        if "max_in_flight" in self.config:
            most = max(self.config["max_in_flight"] - self.counters(now_ms)[1], 0)
        if "rate" in self.config:
            rate = self.config["rate"]
            if now_ms < self.began_ms + rate["per_ms"]:
                return 0
            used = sum(at > now_ms - rate["per_ms"] for at in self.starts)
            most = min(most, max(rate["max"] - used, 0))
        return most

    def candidates(self, now_ms: int) -> list[Job]:
        """Jobs that may be claimed now, the best first; none of a group beyond its bound."""
        found: list[Job] = []
        flying: dict[str, int] = {}
        heads: dict[str, int] = {}
        for job in self.jobs.values():
            if job.group is not None:
                flying[job.group] = flying.get(job.group, 0) + job.is_leased(now_ms)
                heads[job.group] = min(heads.get(job.group, job.seq), job.seq)
        left = {group: (self.group_max or 1 << 30) - each for group, each in flying.items()}
        is_ordered = self.config.get("order") == "group"
        for job in sorted(self.jobs.values(), key=Job.rank):
            if job.is_leased(now_ms) or not self.is_ready(job, now_ms):
                continue
            if job.group is not None:
                if is_ordered and heads[job.group] != job.seq:
                    continue
                if left[job.group] <= 0:
                    continue
                left[job.group] -= 1
            found.append(job)
        return found

    def claim(self, taken: list[int], limit: int, node: str, now_ms: int) -> None:
        """A worker was given these jobs, of up to so many.  Raises Broken where another queue gave them."""
        limit = min(limit, self.allowed(now_ms))
        if self.config.get("fair"):
            self._fair(taken, limit, now_ms)
        else:
            expected = self._first(limit, now_ms)
            wanted = [job.seq for job in expected]
            require(taken == wanted, f"claimed {taken}, and not {wanted}")
        for seq in taken:
            job = self.jobs[seq]
            job.deliveries += 1
            job.node, job.until_ms = node, now_ms + LEASE_MS
            self.starts.append(now_ms)

    def _first(self, limit: int, now_ms: int) -> list[Job]:
        """Up to so many candidates; those that are dead letters by now let others of their groups go."""
        while True:
            found, over = list[Job](), list[Job]()
            for job in self.candidates(now_ms):
                if len(found) == limit:
                    break
                (over if self._is_over(job) else found).append(job)
            for job in over:
                self.end(job)
                self.dead += 1
            if not over:
                return found

    def release(self, job: Job, action: str, now_ms: int) -> bool:
        """An operator wants a job tried now, with its deliveries or without; whether that changes it."""
        is_rested = self.is_ready(job, now_ms)
        if job.is_leased(now_ms) or (is_rested and (action == "promote" or not job.deliveries)):
            return False
        if not job.deliveries and action == "retry":
            return False  # it has not failed
        if action == "retry":
            job.deliveries = 0
        job.node, job.until_ms, job.noted = "", now_ms, job.deliveries
        if not job.deliveries:
            # It was started, unless that was sooner than was asked, of which nothing is known.
            job.released_ms = now_ms if now_ms < job.ready_ms else 0
            job.was_started = not job.released_ms
            job.ends_ms = now_ms + job.within_ms if job.within_ms and job.released_ms else 0
        return True

    def _is_over(self, job: Job) -> bool:
        return "dead_letter" in self.config and job.deliveries >= MOST

    def _fair(self, taken: list[int], limit: int, now_ms: int) -> None:
        """Groups in turn, and within a group as ever."""
        ready = self.candidates(now_ms)
        lines: dict[tuple[int, str | None], list[Job]] = {}
        for job in ready:
            lines.setdefault((job.priority, job.group), []).append(job)
        served: dict[tuple[int, str | None], int] = dict.fromkeys(lines, 0)
        for seq in taken:
            require(seq in self.jobs, "a job is given that is not there")
            line = self.jobs[seq].priority, self.jobs[seq].group
            require(bool(lines.get(line)), f"job {seq} is given, and may not be")
            while lines[line] and self._is_over(lines[line][0]):
                gone = lines[line].pop(0)
                self.end(gone)
                self.dead += 1
            require(lines[line][0].seq == seq, "another job of its group was first")
            lines[line].pop(0)
            served[line] += 1
        left = {line: [j for j in jobs if not self._is_over(j)] for line, jobs in lines.items()}
        left = {line: jobs for line, jobs in left.items() if jobs}
        if len(taken) < limit:
            require(not left, f"jobs are left: {left}")
        lowest = min((self.jobs[seq].priority for seq in taken), default=math.inf)
        require(all(p <= lowest for p, _ in left), "a less urgent job was given first")
        level = {line: times for line, times in served.items() if line[0] == lowest}
        for line, times in level.items():
            behind = [other for other in level if other in left and level[other] < times - 1]
            require(not behind, f"{line} had its turn before {behind}")


class World(Lives):
    """One queue and its workers."""

    LIMITS: ClassVar[dict[str, int]] = {"segment_max_records": 16, "dead_letter_after_ms": 10**9}
    jumps = SECONDS

    def __init__(self, seed: int, *, harsh: bool) -> None:
        super().__init__(seed, harsh=harsh)
        dice = self.dice
        config: dict[str, Any] = dice.choice(
            (
                {},
                {},
                {"order": "group"},
                {"fair": True},
                {"group_max_in_flight": 2},
                {"fair": True, "group_max_in_flight": 1},
            )
        )
        self.config = dict(config)
        if dice.random() < 0.3:
            self.config["rate"] = {"max": 4, "per_ms": 500}
        if dice.random() < 0.2:
            self.config["max_in_flight"] = 5
        if dice.random() < 0.4 and "fair" not in self.config:
            self.config |= {"dead_letter": "dead", "max_deliveries": MOST}
        if dice.random() < 0.3:
            self.config["backoff"] = {"base_ms": 100, "factor": 2, "max_ms": 300}
        if dice.random() < 0.25:
            self.config["ttl_ms"] = 1500
        if dice.random() < 0.25:
            self.config |= {"cap_records": 12, "discard": dice.choice(("old", "reject"))}
        self.lasting = dice.random() < 0.6
        self.naive = Naive(self.config)
        self.before: Naive | None = None
        """The queue without the command that has no answer yet."""
        self.made = False
        self.numbers = 0

    # ------------------------------------------------------------------ one life

    def begin(self) -> None:
        engine = self.engine
        naive = self.naive
        is_new = "q" not in engine.engine.state.topics
        if is_new:
            require(not self.made, "the queue is gone")
            engine.put(
                "q",
                type="queue",
                durability=self.durability,
                leases_durable=self.lasting,
                lease_ms=LEASE_MS,
                **self.config,
            )
            engine.sync()
            self.naive = naive = Naive(self.config)
            self.before = None
        self.made = True
        engine.work_off()
        now_ms = self.now()
        found = self._content(now_ms)
        for each in (self.naive, self.before):
            if each is not None:
                each.outlive(now_ms)
                may_be = is_new or self._lose_leases(each, now_ms)
                each.began_ms = each.began_ms if is_new else now_ms
                each.expire(now_ms)
                if may_be and self._told(each, now_ms) == found:
                    self.naive, self.before = each, None
                    break
        else:
            require(False, _differ(found, self._told(naive, now_ms)))

    def now(self) -> int:
        return self.engine.engine.advance(self.engine.now_ms)

    def _lose_leases(self, naive: Naive, now_ms: int) -> bool:
        """A crash takes leases that are in no log.  What the log has of jobs that were given back stays, and a
        checkpoint may have more of their deliveries.  Whether this queue may have become what is found."""
        if self.lasting:
            return True
        kept = self.engine.engine.state.queues[self.engine.topic("q").topic_id].jobs
        for job in naive.jobs.values():
            found = kept.get(job.seq)
            deliveries = 0 if found is None else found.deliveries
            if not job.noted <= deliveries <= job.deliveries:
                return False
            is_delayed = found is not None and found.place is JobPlace.DELAYED
            until_ms = found.until_ms if found is not None and is_delayed else 0
            if job.deliveries and not job.node and until_ms != job.until_ms > now_ms:
                return False
            job.deliveries, job.node, job.until_ms = deliveries, "", until_ms
        return True

    def _content(self, now_ms: int) -> tuple[Any, ...]:
        records = self.engine.diff(name="q", limit=1000)["records"]
        state = self.engine.state("q")["queue"]
        counters = state["ready"], state["in_flight"], state.get("delayed", 0)
        ended = state["dead_lettered"], state.get("expired", 0)
        jobs = self.engine.engine.state.queues[self.engine.topic("q").topic_id].jobs
        # What no counter tells once a lease has run out: whether there was a claim.
        deliveries = {seq: job.deliveries for seq, job in sorted(jobs.items()) if job.deliveries}
        return [r["$seq"] for r in records], counters, ended, deliveries

    @staticmethod
    def _told(naive: Naive, now_ms: int) -> tuple[Any, ...]:
        deliveries = {seq: job.deliveries for seq, job in naive.jobs.items() if job.deliveries}
        ended = naive.dead, naive.dropped
        return [*sorted(naive.jobs)], naive.counters(now_ms), ended, deliveries

    def known(self) -> Any:
        return copy.deepcopy((self.naive, self.before, self.made))

    def revert(self, known: Any) -> None:
        self.naive, self.before, self.made = known

    def back_up(self) -> None:
        """In class `fsync`; in others a restored topic tells seqs as lost that were reserved for it."""
        if self.harsh:
            super().back_up()

    def step(self) -> None:
        dice, engine = self.dice, self.engine
        choice = dice.random()
        if choice < 0.35:
            self.append()
        elif choice < 0.6:
            self.claim()
        elif choice < 0.75:
            self.finish()
        elif choice < 0.79:
            self.delete()
        elif choice < 0.83:
            self.change()
        elif choice < 0.86:
            self.look()
        elif choice < 0.9:
            engine.sealing.press()
            engine.seal()
        elif choice < 0.93:
            engine.drive(engine.schedule.round(checkpoint=True))
        else:
            engine.now_ms += dice.choice((1, 50, 100, 400, 1001))
            self.settle()

    def settle(self) -> None:
        """What time does is done; where that is cut, a start does what it may do then."""
        self.before = copy.deepcopy(self.naive)
        self.naive.expire(self.now())
        self.engine.work_off()
        self.engine.sync()
        self.before = None

    def act(self) -> None:
        """A command follows that may be cut."""
        self.settle()
        self.before = copy.deepcopy(self.naive)

    def acted(self) -> None:
        """It was answered, and what it left to do is done."""
        self.engine.sync()
        self.before = None
        self.engine.work_off()

    # ------------------------------------------------------------------ commands

    def append(self) -> None:
        dice = self.dice
        self.act()
        now_ms = self.now()
        records: list[dict[str, Any]] = []
        for _ in range(dice.randint(1, 4)):
            self.numbers += 1
            record: dict[str, Any] = {"data": self.numbers}
            if dice.random() < 0.4:
                record["priority"] = dice.choice((-1, 1, 2))
            if dice.random() < 0.3:
                record["delay_ms"] = dice.choice((1, 100, 700))
            if dice.random() < 0.2:
                record["expires_ms"] = dice.choice((50, 600))
            if dice.random() < 0.5:
                record[dice.choice(("group", "tag"))] = dice.choice(GROUPS)
            if dice.random() < 0.3:
                record["unique"] = {
                    "key": dice.choice(KEYS),
                    "on_conflict": dice.choice(("keep", "replace")),
                    "for_ms": dice.choice((0, 0, 500)),
                }
            records.append(record)
        head = self.engine.topic("q").head_seq
        expected, replaced = self._note(records, now_ms, head)
        if expected is None:
            self._refused(records)
            return
        found = self.engine.append(*records, name="q")
        require(found["seqs"] == expected, f"seqs {found['seqs']}, and not {expected}")
        require(found.get("replaced", []) == sorted(replaced), "another job was replaced")
        self.acted()

    def _refused(self, records: list[dict[str, Any]]) -> None:
        """The queue is full, and stays as it is."""
        assert self.before is not None
        self.naive = copy.deepcopy(self.before)
        try:
            self.engine.append(*records, name="q")
        except Rejection as refusal:
            require(refusal.code is ErrorCode.TOPIC_FULL, str(refusal))
        else:
            require(False, "a full queue takes more")
        self.acted()

    def _note(
        self, records: list[dict[str, Any]], now_ms: int, head: int
    ) -> tuple[list[int] | None, list[int]]:
        """The seqs of these records, None where they are refused, and which jobs they replace."""
        naive, first_seq, there = self.naive, head + 1, copy.deepcopy(self.naive)
        seqs, replaced, own = list[int](), list[int](), dict[str, int]()
        for record in records:
            unique = record.get("unique")
            key = None if unique is None else unique["key"]
            if key is not None and unique is not None:
                held = naive.holds.get(key, (0, 0))
                known = own.get(key) or naive.keys.get(key) or (held[0] if held[1] > now_ms else 0)
                if known and (key in own or unique["on_conflict"] == "keep"):
                    seqs.append(known)
                    continue
                job = naive.jobs.get(known)
                if job is not None and not job.is_leased(now_ms):
                    replaced.append(known)
            head += 1
            ready_ms = now_ms + record.get("delay_ms", 0)
            naive.jobs[head] = Job(
                head,
                now_ms,
                record.get("priority", 0),
                ready_ms if "delay_ms" in record else 0,
                ready_ms + record["expires_ms"] if "expires_ms" in record else 0,
                within_ms=record.get("expires_ms", 0),
                group=record.get("group", record.get("tag")),
                key=key,
            )
            if key is not None and unique is not None:
                own[key] = naive.keys[key] = head
                naive.holds.pop(key, None)
                if unique["for_ms"]:
                    naive.holds[key] = (head, now_ms + unique["for_ms"])
            seqs.append(head)
        more = head + 1 - first_seq
        gone = there.pushed_out(more, replaced, now_ms) if more else []
        if gone is None:
            return None, []
        for seq in {*gone, *replaced}:
            naive.end(naive.jobs[seq])
        return seqs, replaced

    def claim(self) -> None:
        self.act()
        node, limit = self.dice.choice(("w1", "w2")), self.dice.randint(1, 6)
        taken = self.engine.claimed(node=node, max=limit)
        self.naive.claim(taken, limit, node, self.now())
        self.acted()

    def finish(self) -> None:
        """Ack, nack or extend some jobs of a worker."""
        self.act()
        now_ms, dice, naive = self.now(), self.dice, self.naive
        mine = [job for job in naive.jobs.values() if job.node]
        if not mine:
            self.before = None
            return
        node = dice.choice(mine).node
        some = [job for job in mine if job.node == node and dice.random() < 0.6]
        seqs = [job.seq for job in some]
        choice = dice.random()
        if choice < 0.6:
            for job in some:
                naive.end(job)
            require(self.engine.ack(*seqs, node=node)["acked"] == len(seqs), "a holder cannot ack")
        elif choice < 0.9:
            delay_ms = dice.choice((None, 0, 300))
            for job in some:
                rest_ms = naive.rest_ms(job) if delay_ms is None else delay_ms
                job.node, job.until_ms = "", now_ms + rest_ms
                job.noted, job.released_ms, job.was_started = job.deliveries, 0, False
            fields = {} if delay_ms is None else {"delay_ms": delay_ms}
            self.engine.nack(*seqs, node=node, **fields)
        else:
            for job in some:
                job.until_ms = now_ms + LEASE_MS
            self.engine.extend(*seqs, node=node, lease_ms=LEASE_MS)
        self.acted()

    def delete(self) -> None:
        self.act()
        tag = self.dice.choice(GROUPS)
        records = self.engine.diff(name="q", limit=1000, match=tag)["records"]
        for record in records:
            self.naive.end(self.naive.jobs[record["$seq"]])
        require(self.engine.delete("q", match=tag)["deleted"] == len(records), "not all is deleted")
        self.acted()

    def change(self) -> None:
        """Promote or retry one job, or all."""
        self.act()
        now_ms, dice, naive = self.now(), self.dice, self.naive
        action = dice.choice(("promote", "retry"))
        free = [job for job in naive.jobs.values() if not job.is_leased(now_ms)]
        if not free:
            self.before = None
            return
        if dice.random() < 0.6:
            some = dice.choice(free)
            found = self.engine.change(action, some.seq)
            require(found == (1, int(naive.release(some, action, now_ms))), f"{action}: {found}")
        else:
            waiting = [job for job in free if not naive.is_ready(job, now_ms)]
            count = sum([naive.release(job, action, now_ms) for job in waiting])
            found = self.engine.change(action)
            require(found == (count, count), f"{action} of all: {found}, and not {count}")
        self.acted()

    # ------------------------------------------------------------------ what has to hold

    def look(self) -> None:
        self.settle()
        now_ms = self.now()
        self.engine.sync()
        found, told = self._content(now_ms), self._told(self.naive, now_ms)
        require(found == told, _differ(found, told))
        state = self.engine.state("q")["queue"]
        if self.naive.group_max:
            waiting = self.naive.candidates(now_ms)
            blocked = self.naive.counters(now_ms)[0] - len(waiting)
            require(state.get("blocked", 0) == blocked, f"{state} and {blocked} blocked")

    def judge(self) -> None:
        """Every job is given sooner or later, in its order."""
        self.start()
        self.begin()
        for _ in range(300):
            self.engine.now_ms += 400
            self.look()
            if not self.naive.jobs:
                return
            self.claim()
            for node in ("w1", "w2"):
                mine = [job for job in self.naive.jobs.values() if job.node == node]
                for job in mine:
                    self.naive.end(job)
                self.engine.ack(*[job.seq for job in mine], node=node)
            self.engine.sync()
        require(False, f"jobs are never given: {self.naive.jobs}")


def _differ(found: tuple[Any, ...], told: tuple[Any, ...]) -> str:
    seqs = sorted(set(found[0]) ^ set(told[0]))
    return f"found {found[1:]}, and not {told[1:]}; of one only: {seqs}"


def bugs() -> Iterator[Bug]:
    def two_of_a_group_in_flight(patch: Patch) -> None:
        from topics.protocol.state.group_order import GroupOrder

        own = GroupOrder.__init__

        def begun(self: Any, *of: Any) -> None:
            own(self, *of)
            self.group_max = self.group_max and self.group_max + 1
            self.is_ordered = False

        patch.setattr(GroupOrder, "__init__", begun)

    yield Bug(two_of_a_group_in_flight, "claimed|may not be|blocked", 5)

    def priority_ignored_behind_sealed_runs(patch: Patch) -> None:
        _without(patch, "priority")

    yield Bug(priority_ignored_behind_sealed_runs, "claimed|first", 0)

    def delay_lost_at_a_checkpoint(patch: Patch) -> None:
        _without(patch, "ready_ms")

    yield Bug(delay_lost_at_a_checkpoint, "found", 0)

    def options_not_sealed(patch: Patch) -> None:
        from topics.protocol.state.backlog import Backlog

        patch.setattr(Backlog, "sealed", lambda *_: b"")

    yield Bug(options_not_sealed, "found|claimed", 3)

    def unique_key_freed_by_a_claim(patch: Patch) -> None:
        from topics.protocol.state.queue import Queue

        own = Queue.lease

        def lease(self: Any, event: Any) -> None:
            own(self, event)
            for seq in event.seqs:
                if self.backlog is not None and self.unique is not None:
                    self.unique.free(self.backlog.table.digest(seq), seq)

        patch.setattr(Queue, "lease", lease)

    yield Bug(unique_key_freed_by_a_claim, "seqs", 1)

    def hold_forgotten_by_a_checkpoint(patch: Patch) -> None:
        from topics.protocol.state.unique_jobs import UniqueJobs

        patch.setattr(UniqueJobs, "image", lambda _: b"")

    yield Bug(hold_forgotten_by_a_checkpoint, "seqs", 37)

    def rate_forgotten_by_a_start(patch: Patch) -> None:
        from topics.protocol.state.job_starts import JobStarts

        patch.setattr(JobStarts, "begin", lambda *_: None)

    yield Bug(rate_forgotten_by_a_start, "claimed|may not be|jobs are left", 2)

    def expiry_forgotten_after_a_start(patch: Patch) -> None:
        _without(patch, "expires_ms")

    yield Bug(expiry_forgotten_after_a_start, "found", 0)

    def keys_outlive_what_caps_and_time_take(patch: Patch) -> None:
        from topics.protocol.state.queue import Queue

        own = Queue.pass_through

        def passed(self: Any, gone_through: int) -> None:
            unique, self.unique = self.unique, None
            own(self, gone_through)
            self.unique = unique

        patch.setattr(Queue, "pass_through", passed)

    yield Bug(keys_outlive_what_caps_and_time_take, "seqs", 4)

    def caps_take_leased_jobs(patch: Patch) -> None:
        from topics.protocol.commit.admission import Admission

        patch.setattr(Admission, "first_held", lambda *_: None)

    yield Bug(caps_take_leased_jobs, "found|cannot ack", 23)

    def removed_jobs_count_as_delayed(patch: Patch) -> None:
        from topics.protocol.state.backlog import Backlog

        own = Backlog.gone

        def gone(self: Any, *of: Any, **more: Any) -> Any:
            delayed = self.delayed
            found = own(self, *of, **more)
            self.delayed = delayed
            return found

        patch.setattr(Backlog, "gone", gone)

    yield Bug(removed_jobs_count_as_delayed, "found", 0)


def _without(patch: Patch, column: str) -> None:
    """Sealed options lose a column."""
    from topics.store import runs

    def decoded(options: Any, first_seq: int) -> Any:
        return decoded_options(msgspec.structs.replace(options, **{column: b""}), first_seq)

    patch.setattr(runs, "decoded_options", decoded)


BUGS = {bug.sow.__name__: bug for bug in bugs()}
