"""Compacted topics over kills and power losses at any file call: writers, readers and the passes of maintenance.

A world is one compacted topic.  Records of both faces come with few keys, some without a value, also between two steps of a
pass; runs are sealed, checkpoints taken, keys deleted by request, the clock is moved and set back, and a backup is restored.
At any moment the newest record of each key is there, unless it is a tombstone whose time has come; a record that is gone
stays gone; and a reader that follows slowly, over all lives, has the table in the end.
"""

import copy
from base64 import b64encode
from typing import Any, NamedTuple

import msgspec
from protocol.batches.builder import batch, records_of
from protocol.consumer import batches, consume, fetch, records

from topics.protocol.batches.header import BatchError, checked_header
from topics.protocol.maintenance.steps import Task
from topics.protocol.model.commands import AppendBatch

from .lives import SECONDS, Bug, Lives, Patch, require

KEYS = (b"a", b"b", b"c", b"d", b"\xff\xfe")
"""Of which the last is no tag."""
RETENTION_MS = 1000
LAG_MS = 300


class Written(NamedTuple):
    """A record as it was appended; `value` is None where it is a tombstone."""

    key: bytes
    value: bytes | None
    ts_ms: int


class Known(NamedTuple):
    """What was known when a backup was taken."""

    written: dict[int, Written]
    dying: set[int]
    gone: set[int]
    offset: int
    table: dict[bytes, bytes | None]


class World(Lives):
    """A compacted topic, its writers and its readers.

    Attributes:
        written: By seq, what was appended and not deleted by request.
        dying: Seqs whose delete was requested and is not durable yet.
        gone: Seqs that are gone for good.
        offset, table: Where the slow reader is, and what it has of each key.
        task, result: A pass on its way, and what its last step came to.
    """

    jumps = SECONDS

    def __init__(self, seed: int, *, harsh: bool) -> None:
        super().__init__(seed, harsh=harsh)
        self.written: dict[int, Written] = {}
        self.dying: set[int] = set()
        self.gone: set[int] = set()
        self.numbers = 0
        self.offset = 0
        self.table: dict[bytes, bytes | None] = {}
        self.task: Task | None = None
        self.result: Any = None
        self.ratio = self.dice.choice(("0", "0.5"))
        self.lag_ms = self.dice.choice((0, 0, LAG_MS))
        self.config = {
            "compact": True,
            "durability": self.durability,
            "kafka_configs": {
                "min.cleanable.dirty.ratio": self.ratio,
                "min.compaction.lag.ms": str(self.lag_ms),
                "delete.retention.ms": str(RETENTION_MS),
            },
        }

    # ------------------------------------------------------------------ one life

    def begin(self) -> None:
        self.task = None
        if "t" not in self.engine.engine.state.topics:
            require(not self.written and not self.gone, "a topic is gone")
            self.engine.put("t", **self.config)
            self.engine.sync()
        head_seq = self.engine.topic().head_seq
        self.written = {seq: each for seq, each in self.written.items() if seq <= head_seq}
        self._settle_deletes()
        self.look()

    def _settle_deletes(self) -> None:
        """A delete that had no answer was done or was not."""
        if self.dying:
            newest = max(self.dying)
            if not any(seq == newest for seq in self.shown()):
                self._forget()
            self.dying.clear()

    def _forget(self) -> None:
        for seq in self.dying:
            self.written.pop(seq, None)
        self.gone |= self.dying
        self.dying.clear()

    def back_up(self) -> None:
        """In class `fsync`; in others a restored topic tells seqs as lost that were reserved for it."""
        if self.harsh:
            super().back_up()

    def known(self) -> Known:
        return copy.deepcopy(Known(self.written, self.dying, self.gone, self.offset, self.table))

    def revert(self, known: Known) -> None:
        self.written, self.dying, self.gone, self.offset, self.table = known

    def step(self) -> None:
        dice, engine = self.dice, self.engine
        choice = dice.random()
        if choice < 0.4:
            self.append()
        elif choice < 0.5:
            self.look()
        elif choice < 0.6:
            self.follow()
        elif choice < 0.65:
            engine.now_ms += dice.choice((1, 100, 700))
            engine.sync()
        elif choice < 0.68:
            self.delete()
        elif choice < 0.9:
            self.compact(dice.randint(1, 12))
        else:
            # The next task of maintenance begins when one has ended.
            self.compact(1 << 20)
            if choice < 0.95:
                engine.seal()
            else:
                engine.drive(engine.schedule.round(checkpoint=choice > 0.97))
        self.note_time()

    # ------------------------------------------------------------------ clients

    def append(self) -> None:
        """Some records by one of the faces; a sync follows, a write or nothing yet."""
        dice, engine = self.dice, self.engine
        fresh = list[Written]()
        for _ in range(dice.randint(1, 4)):
            value = None if dice.random() < 0.25 else b"%d" % self.numbers
            fresh.append(Written(dice.choice(KEYS), value, 0))
            self.numbers += 1
        if dice.random() < 0.5:
            data = records_of([(key, value, [], 0) for key, value, _ in fresh])
            found: Any = engine.ask(AppendBatch("t", batch(data, len(fresh))))
            first_seq = found.first_seq
        else:
            first_seq = engine.append(*(_body(each) for each in fresh))["first_seq"]
        ts_ms = engine.topic().last_ts_ms
        for seq, each in enumerate(fresh, first_seq):
            self.written[seq] = each._replace(ts_ms=ts_ms)
        if dice.random() < 0.5:
            engine.sync()
        elif dice.random() < 0.5:
            engine.write()

    def delete(self) -> None:
        """All records of a key, by request."""
        key = self.dice.choice(KEYS[:-1])
        self.engine.sync()
        self.dying = {seq for seq, each in self.written.items() if each.key == key}
        self.engine.delete(match=key.decode())
        self.engine.sync()
        self._forget()
        self.look()

    def follow(self) -> None:
        """The slow reader gets a little more."""
        part = fetch(self.engine, self.offset, budget=self.dice.choice((0, 100, 1000)))
        require(part.missing is None, "a reader is told of a loss")
        for each in batches(part):
            header = checked_header(each)
            for record in records(each):
                if record.offset >= self.offset:
                    assert record.key is not None
                    self.table[record.key] = record.value
            self.offset = header.base_offset + header.last_delta + 1

    def compact(self, steps: int) -> None:
        """Some steps of a pass; whatever else happens between two of them."""
        engine = self.engine
        if self.task is None:
            self.task, self.result = engine.schedule.key_compaction.go_on(), None
        for _ in range(steps):
            try:
                self.result = engine.done(self.task.send(self.result))
            except StopIteration:
                self.task = None
                break
        self.look()

    # ------------------------------------------------------------------ what has to hold

    def shown(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        """Every record that a reader finds now, by seq.  Raises Broken."""
        engine = self.engine
        head_seq = engine.topic().published_seq
        try:
            found = consume(engine)
        except (BatchError, IndexError, ValueError, AssertionError) as error:
            require(False, f"a consumer cannot read on: {error!r}")
        page = engine.diff(limit=1000, include_tags=True)
        require(page["tombstone"] is None, "what is compacted is told as a loss")
        require(engine.topic().evict_floor == 1, "compaction moves a floor")
        seqs = [each.offset + 1 for each in found]
        # A page that waits for a thread shows what was written meanwhile, too.
        others = [record["$seq"] for record in page["records"] if record["$seq"] <= head_seq]
        require(others == seqs[: len(others)], f"the faces do not agree: {others}, {seqs}")
        return {each.offset + 1: (each.key, each.value) for each in found}

    def look(self) -> None:
        """Whatever is under way, a reader finds the newest record of each key."""
        topic = self.engine.topic()
        head_seq, shown = topic.published_seq, self.shown()
        for seq, (key, value) in shown.items():
            require(seq in self.written, "a record that was deleted is shown")
            require((key, value) == self.written[seq][:2], "another record has a seq")
            require(seq not in self.gone, "a record that was gone is shown")
        newest = {each.key: seq for seq, each in self.written.items() if seq <= head_seq}
        self.note_time()
        for key, seq in newest.items():
            if seq in shown or seq in self.dying:
                continue
            _, value, ts_ms = self.written[seq]
            require(value is None, f"the newest record of {key!r} is not there")
            require(seq != topic.head_seq, "the record at the head is not there")
            is_due = ts_ms + RETENTION_MS <= self.highest_ms
            require(is_due, f"the tombstone of {key!r} is gone before its time")
            older = [at for at in shown if self.written[at].key == key]
            require(not older, f"a tombstone went before {key!r} was gone")
        gone = {seq for seq in self.written if seq <= head_seq and seq not in shown}
        self._check_lag(gone - set(newest.values()) - self.dying)
        if self.dice.random() < 0.3:
            self.engine.sync()
            self.gone |= gone - self.dying

    def _check_lag(self, superseded: set[int]) -> None:
        """No record is gone that is too young, or that only records supersede that are."""
        oldest_ms = self.highest_ms - self.lag_ms
        for seq in superseded:
            key, value, ts_ms = self.written[seq]
            if value is None and ts_ms + RETENTION_MS <= self.highest_ms:
                continue  # its time had come before another superseded it
            later = [
                each.ts_ms for at, each in self.written.items() if at > seq and each.key == key
            ]
            require(max(ts_ms, min(later)) <= oldest_ms, f"{seq} is gone before its time")

    # ------------------------------------------------------------------ the end

    def judge(self) -> None:
        """A pass over all of it leaves one record of each key, and no tombstone whose time has come."""
        self.start()
        self.begin()
        engine = self.engine
        while self.offset < engine.topic().published_seq:
            self.follow()
        values = {each.key: each for _, each in sorted(self.written.items())}
        for key, each in values.items():
            is_due = each.value is None and each.ts_ms + RETENTION_MS <= self.highest_ms
            require(is_due or self.table.get(key) == each.value, "a reader has another table")
        engine.now_ms = self.highest_ms + LAG_MS + 1
        self.compact(2)
        self._add(b"a", b"0")  # while a pass is on its way
        self.compact(1 << 20)
        engine.now_ms += LAG_MS + 1
        self._compact_all()
        if self.ratio == "0":
            self._require_distinct()
        # The tombstones that are left go in their time, but for one at the head.
        self._add(b"last", None)
        engine.now_ms += RETENTION_MS + LAG_MS + 1
        self._compact_all()
        engine.now_ms += RETENTION_MS + LAG_MS + 1
        self._compact_all()
        self._add(b"end", b"0")
        engine.now_ms += LAG_MS + 1
        self._compact_all()
        if self.ratio == "0":
            self._require_distinct()
            left = [seq for seq, (_, value) in self.shown().items() if value is None]
            require(not left, "a tombstone stays for ever")

    def _require_distinct(self) -> None:
        kept = [key for key, _ in self.shown().values()]
        require(len(kept) == len(set(kept)), "a key is there twice")

    def _add(self, key: bytes, value: bytes | None) -> None:
        seq = self.engine.append(_body(Written(key, value, 0)))["first_seq"]
        self.engine.sync()
        self.written[seq] = Written(key, value, self.engine.topic().last_ts_ms)

    def _compact_all(self) -> None:
        self.engine.compact()
        self.engine.sync()
        self.look()


def _body(each: Written) -> dict[str, object]:
    """A record as HTTP appends it."""
    body: dict[str, object] = {"data": None if each.value is None else int(each.value)}
    if each.value is None:
        body["form"] = "null"
    if each.key.isascii():
        return body | {"tag": each.key.decode()}
    return body | {"key": b64encode(each.key).decode()}


def newest_of_a_key_deleted(patch: Patch) -> None:
    """Of the records of a part that have one key, the oldest stays."""
    _looked(patch, lambda found, own: found._replace(superseded=own.superseded + 1))


def tombstones_deleted_at_once(patch: Patch) -> None:
    _ruled(patch, retention_ms=0)


def lag_ignored(patch: Patch) -> None:
    _ruled(patch, min_lag_ms=0)


def what_is_not_shown_supersedes(patch: Patch) -> None:
    """A pass begins at the last record that was decided, and waits for no sync."""
    from topics.protocol.maintenance import key_compaction

    class Hasty(key_compaction._Pass):
        def __init__(self, topic: Any, clean_through: int) -> None:
            super().__init__(topic, clean_through)
            self.at = self.end = topic.head_seq

    patch.setattr(key_compaction, "_Pass", Hasty)
    patch.setattr(key_compaction, "UntilSynced", lambda: key_compaction.Blocking(int))


def newest_run_looked_at_alone(patch: Patch) -> None:
    from topics.protocol.maintenance.key_compaction import _Pass

    note = _Pass.note

    def noted(self: Any, run: Any, found: Any) -> None:
        note(self, run, found)
        self.at = 0

    patch.setattr(_Pass, "note", noted)


def keys_that_are_no_tags_not_compared(patch: Patch) -> None:
    from topics.protocol.maintenance import record_keys

    own = record_keys._Numbers.of
    patch.setattr(
        record_keys._Numbers, "of", lambda self, key: own(self, key) if key.isascii() else 0
    )


def keys_beyond_the_bound_forgotten(patch: Patch) -> None:
    """More keys than are remembered at a time, and the rest is not gone through again."""
    from topics.protocol.maintenance import key_compaction

    patch.setattr(key_compaction, "KEYS_MAX", 2)
    patch.setattr(
        key_compaction._Pass,
        "_again_at",
        property(lambda self: None, lambda self, at: None),
        raising=False,
    )


def what_came_during_a_pass_taken_for_clean(patch: Patch) -> None:
    from topics.protocol.maintenance.key_compaction import KeyCompaction

    end = KeyCompaction._end

    def ended(self: Any, one: Any) -> None:
        one.end = one.topic.head_seq
        end(self, one)

    patch.setattr(KeyCompaction, "_end", ended)


def deletes_of_passes_not_logged(patch: Patch) -> None:
    from topics.protocol.commit.unit_of_work import UnitOfWork
    from topics.protocol.decide.records import RecordCommands

    delete_seqs, emit = RecordCommands.delete_seqs, UnitOfWork.emit

    def deleted(self: Any, command: Any, moment: Any) -> Any:
        own = self._unit.emit
        self._unit.emit = lambda event, **named: emit(self._unit, event, logged=False)
        try:
            return delete_seqs(self, command, moment)
        finally:
            self._unit.emit = own

    patch.setattr(RecordCommands, "delete_seqs", deleted)


def _looked(patch: Patch, other: Any) -> None:
    from topics.protocol.maintenance import key_compaction

    own = key_compaction.look

    def look(*given: Any, **named: Any) -> Any:
        found = own(*given, **named)
        return other(found, found)

    patch.setattr(key_compaction, "look", look)


def _ruled(patch: Patch, **other: Any) -> None:
    from topics.protocol.maintenance.key_compaction import Rules

    own = Rules.of
    patch.setattr(Rules, "of", lambda config: msgspec.structs.replace(own(config), **other))


BUGS: dict[str, Bug] = {
    bug.sow.__name__: bug
    for bug in (
        Bug(newest_of_a_key_deleted, "the newest record of"),
        Bug(tombstones_deleted_at_once, "the tombstone of .* is gone before its time", 2),
        Bug(lag_ignored, "[0-9] is gone before its time", 5),
        Bug(what_is_not_shown_supersedes, "the newest record of"),
        Bug(newest_run_looked_at_alone, "a key is there twice|a tombstone went before", 1),
        Bug(keys_that_are_no_tags_not_compared, "a key is there twice", 1),
        Bug(keys_beyond_the_bound_forgotten, "a key is there twice", 2),
        Bug(what_came_during_a_pass_taken_for_clean, "a key is there twice", 1),
        Bug(deletes_of_passes_not_logged, "a record that was gone", 2),
    )
}
