"""The oracle: what the contract says that a server shows, in dicts and lists.

Owns topics, records, floors, holes and keys as the contract words them, and the check of every
answer.  Refuses to know how the engine decides, stores or recovers.  Invariant: the model is
changed only by what a client asked, by time, and by `survive`, which lets a restart take no more
than the classes of durability permit.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from topics.protocol.model.config import TopicConfig
from topics.protocol.state.job import JobPlace

from .invariants import check, i7_a_delete_touches_nothing_later
from .jobs import Jobs

if TYPE_CHECKING:
    from .routing import Router


class Refused(Exception):
    """The contract says that the command must be refused with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Entry:
    """One record that a client asks to append; `data` and `meta` are JSON text."""

    data: bytes
    tag: str | None = None
    node: str | None = None
    meta: bytes | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One live record; `volatile` if it was acknowledged in class `ephemeral`, and how often it was
    copied within a ring of routers."""

    seq: int
    ts_ms: int
    entry: Entry
    volatile: bool
    hops: int = 0

    def text(self, *, tags: bool = False, meta: bool = True) -> bytes:
        entry = self.entry
        parts = [b'{"$seq":%d,"$ts":%d' % (self.seq, self.ts_ms)]
        if entry.node is not None:
            parts.append(b',"$node":' + orjson.dumps(entry.node))
        if tags and entry.tag is not None:
            parts.append(b',"$tag":' + orjson.dumps(entry.tag))
        parts.append(b',"data":' + entry.data)
        if meta and entry.meta is not None:
            parts.append(b',"meta":' + entry.meta)
        return b"".join([*parts, b"}"])


@dataclass(slots=True)
class Key:
    """The write that an idempotency key was used for.

    Attributes:
        certain: False where a crash, or a window that was widened again, leaves both answers open.
        before: What it stood for in the log, under a batch that lives in memory only.
        forgotten: Its window had closed; a replay under a wider one may find it again.
        rivals: Other writes that a crash may have left it with.
    """

    first_seq: int
    count: int
    ts_ms: int
    volatile: bool
    certain: bool = True
    before: "Key | None" = None
    forgotten: bool = False
    rivals: tuple["Key", ...] = ()

    def copy(self) -> "Key":
        known = self.first_seq, self.count, self.ts_ms, self.volatile, self.certain
        return Key(*known, self.before, self.forgotten, self.rivals)

    def surviving(self) -> "Key | None":
        """The part of it that a restart keeps."""
        left = self.before if self.volatile else self
        if left is None or not (self.volatile or self.forgotten):
            return left
        return dataclasses.replace(left, certain=False, forgotten=False)


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as a recovered server shows it.

    Attributes:
        texts: Seq -> served text, tags included, of every live record.
        jobs: Of a queue: what is known of each job that was delivered (`Job.shown`).
        evict_floor, holes: The losses that a cursor will get as tombstones.
    """

    epoch: str
    config: TopicConfig
    head_seq: int
    evict_floor: int
    holes: tuple[tuple[int, int], ...]
    texts: dict[int, bytes]
    count: int
    size_bytes: int
    jobs: dict[int, tuple[Any, ...]] | None = None
    dead_lettered: int = 0

    @property
    def ends_with_a_loss(self) -> bool:
        """The head is the last seq that was reserved, and no batch's: a crash took what lay there."""
        is_hole = any(last == self.head_seq for _, last in self.holes)
        return is_hole or self.evict_floor > self.head_seq


@dataclass(slots=True)
class Topic:
    """One instance of a name.

    Attributes:
        records: Live records by seq, ascending.
        head_seq: Greatest seq given out, acknowledged or not.
        evict_floor: One more than the greatest seq that was lost, not deleted.
        holes: Seqs (first, last) that a crash took above the floor.
        lost: Seqs of live records that caps or time took.
        switches: How often the class of durability changed.
        volatile: All seqs given out in class `ephemeral`, whatever became of them.
        jobs: What is known of jobs, where it is a queue.
        deleted_at: The head when records were last deleted on request.
    """

    name: str
    config: TopicConfig
    epoch: str = ""
    records: dict[int, Record] = field(default_factory=dict)
    head_seq: int = 0
    evict_floor: int = 1
    holes: list[tuple[int, int]] = field(default_factory=list)
    keys: dict[str, Key] = field(default_factory=dict)
    last_ts_ms: int = 0
    volatile: frozenset[int] = frozenset()
    switches: int = 0
    lost: set[int] = field(default_factory=set)
    jobs: Jobs = field(default_factory=Jobs)
    deleted_at: int = 0

    def copy(self) -> "Topic":
        return Topic(
            self.name,
            self.config,
            self.epoch,
            dict(self.records),
            self.head_seq,
            self.evict_floor,
            list(self.holes),
            {name: key.copy() for name, key in self.keys.items()},
            self.last_ts_ms,
            self.volatile,
            self.switches,
            set(self.lost),
            self.jobs.copy(),
            self.deleted_at,
        )  # fmt: skip

    @property
    def is_volatile(self) -> bool:
        return self.config.durability == "ephemeral"

    @property
    def size_bytes(self) -> int:
        return sum(len(r.text()) for r in self.records.values())

    def shown(self, head_seq: int) -> list[Record]:
        """Live records up to a head, ascending."""
        return [record for seq, record in self.records.items() if seq <= head_seq]

    def earliest(self, head_seq: int) -> int:
        """The first live seq that is shown, else the one after the head. (§0.10)"""
        return next((seq for seq in self.records if seq <= head_seq), head_seq + 1)

    def floor(self, head_seq: int) -> int:
        """The evict floor, as far as the shown head determines it: a write in progress may have
        evicted records that were never shown."""
        return min(self.evict_floor, head_seq + 1)

    # -- loss ----------------------------------------------------------------------------------

    def lose(self, seqs: Iterable[int]) -> None:
        """Live records are lost: the floor rises after them."""
        for seq in list(seqs):
            del self.records[seq]
            self.jobs.forget([seq])
            self.lost.add(seq)
            self.evict_floor = max(self.evict_floor, seq + 1)
        self.holes = [hole for hole in self.holes if hole[1] >= self.evict_floor]

    def expire(self, now_ms: int) -> None:
        ttl_ms = self.config.ttl_ms
        if ttl_ms:
            self.lose(s for s, r in self.records.items() if now_ms - r.ts_ms > ttl_ms)

    def doubt_keys(self, now_ms: int) -> None:
        """A key whose window has closed may be forgotten at any time; a window that is widened
        later may restore it or not."""
        for key in self.keys.values():
            if now_ms - key.ts_ms >= self.config.idempotency_window_ms:
                key.certain = False

    def make_room(self) -> None:
        """The oldest are evicted until the caps hold; the record at the head stays, and what
        follows a live lease."""
        if self.config.discard == "old":
            self.lose(self._too_many())

    def require_leased_room(self, rows: list[Record]) -> None:
        """Live leases may keep a queue over its caps, up to twice. (§0.10)"""
        if self.config.discard != "old" or self.jobs.first_held() is None:
            return
        trial = self.copy()
        trial.records |= {row.seq: row for row in rows}
        trial.lose(trial._too_many())
        for cap, used in (
            (self.config.cap_records, len(trial.records)),
            (self.config.cap_bytes, trial.size_bytes),
        ):
            if cap and used > 2 * cap:
                raise Refused("topic_full")

    def _too_many(self) -> list[int]:
        cap_records, cap_bytes = self.config.cap_records, self.config.cap_bytes
        count, size_bytes = len(self.records), self.size_bytes
        newest = max(self.records, default=0)
        held = self.jobs.first_held()
        gone = list[int]()
        for seq, record in self.records.items():
            over = (cap_records and count > cap_records) or (cap_bytes and size_bytes > cap_bytes)
            if not over or (seq == newest and seq == self.head_seq) or seq == held:
                break
            gone.append(seq)
            count, size_bytes = count - 1, size_bytes - len(record.text())
        return gone

    def require_room(self, entries: list[Record]) -> None:
        """`discard: "reject"` refuses what does not fit; nothing is evicted."""
        config = self.config
        if config.discard != "reject":
            return
        if config.cap_records and len(self.records) + len(entries) > config.cap_records:
            raise Refused("topic_full")
        more = sum(len(r.text()) for r in entries)
        if config.cap_bytes and self.size_bytes + more > config.cap_bytes:
            raise Refused("topic_full")

    # -- a restart -----------------------------------------------------------------------------

    def survive(self, found: Found, *, how: str, clean: bool, seen_seq: int, now_ms: int) -> None:
        """Be what a restart showed, if the class of every record permits it.

        Args:
            how: `clean`, `kill` (the page cache survived) or `cut`.
            clean: The process before had left its mark, however it ended then.
            seen_seq: The greatest seq of this instance that any client was sent.
        """
        self.expire(now_ms)
        self.jobs.settle(now_ms)
        stays = {s: r.text(tags=True) for s, r in self.records.items() if not r.volatile}
        check(self.epoch == found.epoch, "I29", f"{self.name}: {self.epoch} is {found.epoch}")
        check(self.config == found.config, "I30", f"{self.name}: {found.config}")
        i7_a_delete_touches_nothing_later(self.name, self.deleted_at, stays, found.texts)
        check(stays == found.texts, "I1", _difference(self.name, stays, found.texts))
        self._check_head(found, how=how, seen_seq=seen_seq)
        lost = {s for s, r in self.records.items() if r.volatile}
        self._check_loss(found, lost, first_seq=min(stays, default=found.head_seq + 1))
        self.jobs.forget(lost)
        self._check_jobs(found, clean=clean)
        self.records = {s: r for s, r in self.records.items() if not r.volatile}
        self.head_seq, self.evict_floor = found.head_seq, found.evict_floor
        self.holes = list(found.holes)
        self.keys = {n: left for n, k in self.keys.items() if (left := k.surviving()) is not None}

    def _check_jobs(self, found: Found, *, clean: bool) -> None:
        """Leases survive if they are durable, or none is left; delivery counts likewise."""
        if found.jobs is None:
            return
        keeps = clean or self.config.leases_durable
        wrong = self.jobs.survive(found.jobs, live=found.texts.keys(), keeps=keeps, clean=clean)
        check(wrong is None, "I22", f"{self.name}: {wrong}")
        told = self.jobs.dead_lettered
        check(found.dead_lettered <= told, "I23", f"{self.name}: {found.dead_lettered} of {told}")
        if not self.volatile:
            check(found.dead_lettered == told, "I23", f"{self.name}: {found.dead_lettered}, {told}")
        self.jobs.dead_lettered = found.dead_lettered

    def _check_head(self, found: Found, *, how: str, seen_seq: int) -> None:
        is_exact = how == "clean" or self.config.durability == "fsync"
        if how == "kill" and not self.is_volatile:
            is_exact = True
        fact = found.head_seq == self.head_seq if is_exact else found.head_seq >= self.head_seq
        check(fact, "I5", f"{self.name}: {found.head_seq} after {self.head_seq}, {how}")
        check(
            found.head_seq >= seen_seq,
            "I5",
            f"{self.name}: head {found.head_seq}, a client knows {seen_seq}",
        )

    def _check_loss(self, found: Found, lost: set[int], *, first_seq: int) -> None:
        """Every lost seq is below the floor or in a hole, and no other seq newly is."""
        head_seq, floor, told = found.head_seq, found.evict_floor, found.holes
        check(floor <= first_seq, "I8", f"{self.name}: floor {floor}")
        lost |= self.lost
        untold = [(seq, seq) for seq in lost if seq >= floor and not _is_in(seq, told)]
        untold += _outside(max(self.head_seq + 1, floor), head_seq, told)
        check(not untold, "I9", f"{self.name}: {sorted(untold)[:5]}")
        filled = [
            part for first, last in self.holes for part in _outside(max(first, floor), last, told)
        ]
        check(not filled, "I9", f"{self.name}: {filled}")
        live = [seq for seq in found.texts if _is_in(seq, told)]
        check(not live, "I9", f"{self.name}: live records in a hole: {_brief(live)}")
        if floor > self.evict_floor:
            # A floor rises behind what was lost, and nothing else. (§0.10)
            last = floor - 1
            is_lost = last in lost or last in self.volatile or _is_in(last, self.holes)
            is_lost |= self.head_seq < last <= head_seq
            check(is_lost, "I10", f"{self.name}: floor {floor} rose for nothing")


Holes = Sequence[tuple[int, int]]


def _is_in(seq: int, holes: Holes) -> bool:
    return any(first <= seq <= last for first, last in holes)


def _outside(first: int, last: int, holes: Holes) -> list[tuple[int, int]]:
    """The parts of [first, last] that no hole has; holes ascend."""
    out = []
    for hole in holes:
        if hole[0] > first:
            out.append((first, min(last, hole[0] - 1)))
        first = max(first, hole[1] + 1)
    return [part for part in [*out, (first, last)] if part[0] <= part[1]]


def _brief(seqs: Iterable[int]) -> str:
    ordered = sorted(seqs)
    return f"{ordered[:5]}{'...' if len(ordered) > 5 else ''} ({len(ordered)})"


def _difference(name: str, expected: dict[int, bytes], found: dict[int, bytes]) -> str:
    missing = sorted(set(expected) - set(found))
    extra = sorted(set(found) - set(expected))
    other = [s for s in expected if s in found and expected[s] != found[s]]
    return f"{name}: missing {_brief(missing)}, extra {_brief(extra)}, other {_brief(other)}"


@dataclass(slots=True)
class Model:
    """All topics, the routers between them, and a time that never decreases."""

    topics: dict[str, Topic] = field(default_factory=dict)
    now_ms: int = 0
    routers: "dict[str, Router]" = field(default_factory=dict)
    logged_ms: int = 0
    """The time of the newest event in the log."""
    removed: tuple[str, list[int]] = ("", [])
    """What was last deleted on request: the instance, and the seqs."""

    def copy(self) -> "Model":
        topics = {name: topic.copy() for name, topic in self.topics.items()}
        routers = {name: dataclasses.replace(one) for name, one in self.routers.items()}
        return Model(topics, self.now_ms, routers, self.logged_ms)

    def pass_time(self, now_ms: int) -> None:
        """Records expire with the clock, whether or not a client reads."""
        self.now_ms = max(self.now_ms, now_ms)
        for topic in self.topics.values():
            topic.expire(self.now_ms)
            topic.jobs.settle(self.now_ms)
            topic.doubt_keys(self.now_ms)

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise Refused("topic_not_found")
        return self.topics[name]

    def get(self, name: str) -> dict[str, Any]:
        """§1.2; what it shows depends on the head that is shown."""
        return {"topic": self.topic(name).name}

    # -- commands: each returns what the answer must say ---------------------------------------

    def put(self, name: str, config: TopicConfig) -> dict[str, Any]:
        """§1.1"""
        topic = self.topics.get(name)
        if topic is None:
            self.topics[name] = Topic(name, config)
            return {"created": True}
        if config.type != topic.config.type:
            raise Refused("topic_exists_incompatible")
        if config == topic.config:
            return {"created": False}
        topic.switches += topic.config.durability != config.durability
        if topic.config.leases_durable != config.leases_durable:
            topic.jobs.doubt()
        topic.config = config
        topic.make_room()
        topic.expire(self.now_ms)
        topic.doubt_keys(self.now_ms)
        return {"created": False}

    def delete_topic(self, name: str) -> dict[str, Any]:
        """§1.4: with the routers at either end of it"""
        ends = [(r.name, (r.config.source, r.config.dest)) for r in self.routers.values()]
        removed = sorted(router for router, both in ends if name in both)
        for router in removed:
            del self.routers[router]
        deleted = self.topics.pop(name, None) is not None
        return {"deleted": deleted, "routers_removed": removed}

    def append(
        self, name: str, entries: list[Entry], key: str | None, config: TopicConfig
    ) -> dict[str, Any]:
        """§2: all or nothing; `config` is that of a topic which this write creates."""
        if name not in self.topics and not config.auto_create:
            raise Refused("topic_not_found")
        topic = self.topics.get(name) or Topic(name, config)
        hit = self._remembered(topic, key)
        if hit is not None:
            return {"first_seq": hit.first_seq, "count": hit.count, "deduped": True}
        first = topic.head_seq + 1
        created = name not in self.topics
        rows = self.add(topic, entries)
        self.topics[name] = topic
        if key is not None and topic.config.idempotency_window_ms:
            old = topic.keys.pop(key, None)
            before = old.before if old is not None and old.volatile else old
            topic.keys[key] = Key(first, len(rows), self.now_ms, topic.is_volatile, before=before)
        return {"first_seq": first, "count": len(rows), "deduped": False, "created": created}

    def add(self, topic: Topic, entries: list[Entry]) -> list[Record]:
        """Append to a topic, by a client or a router; its config governs."""
        ts_ms = max(self.now_ms, topic.last_ts_ms)
        first = topic.head_seq + 1
        rows = [
            Record(first + i, ts_ms, entry, topic.is_volatile) for i, entry in enumerate(entries)
        ]
        topic.require_room(rows)
        topic.require_leased_room(rows)
        topic.records |= {row.seq: row for row in rows}
        topic.head_seq, topic.last_ts_ms = rows[-1].seq, ts_ms
        if topic.is_volatile:
            topic.volatile |= {row.seq for row in rows}
        topic.make_room()
        return rows

    def _remembered(self, topic: Topic, key: str | None) -> Key | None:
        known = topic.keys.get(key) if key is not None else None
        window_ms = topic.config.idempotency_window_ms
        if known is None or known.forgotten or self.now_ms - known.ts_ms >= window_ms:
            return None
        return known

    def is_open_question(self, name: str, key: str | None) -> bool:
        """Whether a crash left open if this key is remembered."""
        topic = self.topics.get(name)
        known = self._remembered(topic, key) if topic is not None else None
        return known is not None and not known.certain

    def settle_key(self, name: str, key: str, *, remembered: bool, first_seq: int) -> None:
        """What the server's answer to a batch with this key says of it."""
        known = self.topics[name].keys[key]
        for rival in known.rivals if remembered else ():
            if rival.first_seq == first_seq:
                known = self.topics[name].keys[key] = rival.copy()
        known.rivals = ()
        known.certain = known.certain or remembered
        known.forgotten = not remembered

    def delete(self, name: str, before_seq: int | None, match: str | None) -> dict[str, Any]:
        """§5"""
        topic = self.topic(name)
        bound = topic.head_seq + 1 if before_seq is None else before_seq
        gone = [
            seq
            for seq, record in topic.records.items()
            if seq < bound and (match is None or tag_matches(match, record.entry.tag))
        ]
        return {"deleted": self._remove(topic, gone)}

    def purge(
        self, name: str, seq: int | None, keep: int | None, subject: str | None
    ) -> dict[str, Any]:
        """NATS ADR-10"""
        topic = self.topic(name)
        gone = [
            at
            for at, record in topic.records.items()
            if (seq is None or at < seq)
            and (subject is None or subject_matches(subject, record.entry.tag))
        ]
        if keep is not None:
            gone = gone[: max(0, len(gone) - keep)]
        return {"purged": self._remove(topic, gone)}

    def _remove(self, topic: Topic, seqs: list[int]) -> int:
        self.removed = topic.epoch, seqs
        topic.deleted_at = topic.head_seq
        for seq in seqs:
            del topic.records[seq]
        topic.jobs.forget(seqs)
        return len(seqs)

    # -- work: each returns what the answer must say -------------------------------------------

    def queue(self, name: str) -> Topic:
        topic = self.topic(name)
        if topic.config.type != "queue":
            raise Refused("not_a_queue")
        return topic

    def counters(self, topic: Topic, head_seq: int) -> dict[str, int]:
        """§10.7; a job that is not shown yet is not ready."""
        in_flight, delayed = topic.jobs.in_flight, topic.jobs.delayed
        ready = len(topic.shown(head_seq)) - in_flight - delayed
        return {"ready": ready, "in_flight": in_flight, "delayed": delayed}

    def reap(
        self,
        places: Mapping[str, Mapping[int, JobPlace]],
        *,
        served: Set[str],
        after_ms: int,
        lacked_room: bool = False,
    ) -> None:
        """Jobs that were delivered too often become dead letters when the server says so; the text
        of one that has left its queue, or was refused, is not waited for any more.

        Args:
            places: Where each job is that the server knows of, by queue.
            served: Queues in which a worker may have been about to get a job.
            after_ms: For how long one has to have been claimable in any other.
            lacked_room: The log had no room for something since the last call: then a dead letter may
                be tried again later although its topic takes it.
        """
        moved, stayed = [], []
        for name, topic in self.topics.items():
            known = places.get(name, {})
            for seq, job in topic.jobs.known.items():
                if topic.jobs.is_claimable(seq) and topic.jobs.is_exhausted(seq, topic.config):
                    job.is_dying = known.get(seq) is not JobPlace.AGAIN
                    waited_ms = topic.jobs.claimable_ms(seq, self.now_ms)
                    is_time = name in served or job.refusals or waited_ms >= after_ms
                    check(not job.is_dying or bool(is_time), "I23", f"{name} {seq}: {job}")
            dying = [seq for seq, job in topic.jobs.known.items() if job.is_dying]
            for seq in sorted(seq for seq in dying if known.get(seq) is not JobPlace.DYING):
                (stayed if seq in known else moved).append((topic, seq))
        # A job that stayed may have been refused before another made the topic that both go to.
        later = [(topic, seq) for topic, seq in stayed if lacked_room or self._takes(topic, seq)]
        for topic, seq in stayed:
            if (topic, seq) not in later:
                topic.jobs.refuse(seq, self.now_ms)
        for topic, seq in moved:
            self.bury(topic, seq)
        for topic, seq in later:
            is_hindered = lacked_room or not self._takes(topic, seq)
            check(is_hindered, "I23", f"{topic.name} {seq} has not moved, and nothing hinders it")
            topic.jobs.refuse(seq, self.now_ms)

    def overdue(self, after_ms: int) -> list[tuple[str, int]]:
        """Jobs, by queue, that should have moved without a claim; after a refusal the next attempt
        waits."""
        return [
            (name, seq)
            for name, topic in self.topics.items()
            if not topic.jobs.may_pause(self.now_ms)
            for seq in topic.jobs.known
            if topic.jobs.is_claimable(seq)
            and topic.jobs.is_exhausted(seq, topic.config)
            and topic.jobs.claimable_ms(seq, self.now_ms) > after_ms
        ]

    def bury(self, topic: Topic, seq: int) -> None:
        """To the dead-letter topic."""
        try:
            self._copy(topic, seq)
        except Refused as why:
            check(False, "I23", f"{topic.name} {seq} moved, though {why}")
        self._remove(topic, [seq])
        topic.jobs.dead_lettered += 1

    def _takes(self, topic: Topic, seq: int) -> bool:
        """Whether a job's dead-letter topic would take it now."""
        trial = self.copy()
        try:
            trial._copy(trial.topics[topic.name], seq)
        except Refused:
            return False
        return True

    def _copy(self, topic: Topic, seq: int) -> None:
        name, config = topic.config.dead_letter, TopicConfig()
        if name is None:
            raise Refused("topic_not_found")
        dest = self.topics.get(name)
        if dest is None and not topic.config.auto_create:
            raise Refused("topic_not_found")
        dest = dest or Topic(name, config)
        entry = topic.records[seq].entry
        stamp = {
            "$dead_letter_from": topic.name,
            "$dead_letter_deliveries": topic.jobs.known[seq].deliveries,
            "$dead_letter_src_seq": seq,
        }
        meta = orjson.loads(entry.meta or b"{}")
        meta = {key: value for key, value in meta.items() if key not in stamp} | stamp
        entry = dataclasses.replace(entry, meta=orjson.dumps(meta))
        ts_ms = max(self.now_ms, dest.last_ts_ms)
        row = Record(dest.head_seq + 1, ts_ms, entry, dest.is_volatile)
        dest.require_room([row])
        dest.require_leased_room([row])
        self.topics[name] = dest
        dest.records[row.seq] = row
        dest.head_seq, dest.last_ts_ms = row.seq, ts_ms
        if dest.is_volatile:
            dest.volatile |= {row.seq}
        dest.make_room()

    def ack(
        self, name: str, node: str, seqs: list[int], leases: list[int] | None, head_seq: int
    ) -> dict[str, Any]:
        """§10.4"""
        topic = self.queue(name)
        held, skipped = topic.jobs.held(node, seqs, leases)
        self._remove(topic, held)
        return self._told(topic, {"acked": len(held), "skipped": skipped}, head_seq)

    def nack(
        self,
        name: str,
        node: str,
        seqs: list[int],
        leases: list[int] | None,
        head_seq: int,
        delay_ms: int,
    ) -> dict[str, Any]:
        """§10.5"""
        topic = self.queue(name)
        held, skipped = topic.jobs.held(node, seqs, leases)
        ready_ms = self.now_ms + delay_ms if delay_ms else 0
        lasting = topic.config.leases_durable
        topic.jobs.release(held, ready_ms, now_ms=self.now_ms, lasting=lasting)
        return self._told(topic, {"nacked": len(held), "skipped": skipped}, head_seq)

    def extend(
        self,
        name: str,
        node: str,
        seqs: list[int],
        leases: list[int] | None,
        head_seq: int,
        lease_ms: int,
    ) -> dict[str, Any]:
        """§10.6"""
        topic = self.queue(name)
        held, skipped = topic.jobs.held(node, seqs, leases)
        until_ms = self.now_ms + lease_ms
        topic.jobs.extend(held, until_ms, lasting=topic.config.leases_durable)
        deadlines = {str(seq): until_ms for seq in held}
        told = {"extended": len(held), "skipped": skipped, "deadlines": deadlines}
        return self._told(topic, told, head_seq)

    def _told(self, topic: Topic, told: dict[str, Any], head_seq: int) -> dict[str, Any]:
        counters = self.counters(topic, head_seq)
        return told | {"ready": counters["ready"], "in_flight": counters["in_flight"]}

    # -- a restart -----------------------------------------------------------------------------

    def survive(
        self,
        found: dict[str, Found],
        *,
        how: str,
        clean: bool,
        seen: dict[str, int],
        now_ms: int,
        opened_ms: int = 0,
    ) -> None:
        """Take over what a restart showed, if the class of every record permits it.

        Args:
            opened_ms: The time that the process began with: its clock may have been set back then,
                and corrected since.
        """
        check(set(self.topics) == set(found), "I29", f"{sorted(self.topics)} {sorted(found)}")
        self.now_ms = max(self.now_ms, now_ms)
        for name, topic in self.topics.items():
            epoch = found[name].epoch
            topic.survive(
                found[name],
                how=how,
                clean=clean,
                seen_seq=seen.get(epoch, 0),
                now_ms=self.now_ms,
            )
            topic.jobs.opened_ms = opened_ms or self.now_ms
            check(
                found[name].count == len(topic.records)
                and found[name].size_bytes == topic.size_bytes,
                "I13",
                f"{name}: {found[name].count} records of {found[name].size_bytes} bytes, "
                f"counted {len(topic.records)} of {topic.size_bytes}",
            )


def tag_matches(match: str, tag: str | None) -> bool:
    if tag is None:
        return False
    return tag.startswith(match[:-1]) if match.endswith("*") else tag == match


def subject_matches(pattern: str, tag: str | None) -> bool:
    if tag is None:
        return False
    want, got = pattern.split("."), tag.split(".")
    if want[-1] == ">":
        if len(got) < len(want):
            return False
        want, got = want[:-1], got[: len(want) - 1]
    return len(want) == len(got) and all(w in ("*", g) for w, g in zip(want, got, strict=True))
