"""A topic of several partitions over kills and power losses at any file call: writers of both faces, while partitions are added.

An append of HTTP goes to several partitions at once, by its records' keys, as they say, or as it comes; a producer of Kafka's
places its batches itself.  A key is always in the partition of its hash over the number that there were, in order; an append
is in all of its partitions or in none; the number of partitions never falls; and a repeated append gets what the first got.

A client watches the topic meanwhile, from before it has most of its partitions, over streams that break, sessions and lives: it
gets each record that is there once, in the order of its partition.
"""

import copy
import zlib
from typing import Any, NamedTuple

import msgspec
import orjson
from protocol.batches.builder import batch, records_of
from protocol.consumer import Consumed, consume
from protocol.harness import shown as shown_of
from protocol.viewers import Viewer
from protocol.viewers import records_of as records_of_frame

from topics.protocol.batches.header import BatchError
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.commands import AddPartitions, AppendBatch
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import (
    PartitionsAdded,
    RecordsAppended,
    RecordsDeleted,
    ScatteredDeleted,
)
from topics.protocol.model.names import partition_name
from topics.protocol.model.outcomes import Parked
from topics.protocol.state.frames import CaughtUpFrame, Frame, RecordFrame

from .lives import SECONDS, Bug, Lives, Patch, require

KEYS = (b"a", b"b.1", b"key-three", b"\xc3\xa9t\xc3\xa9", b"k" * 40)
PARTITIONS_MAX = 6

Place = tuple[int, int]
"""Partition and seq."""


class Known(NamedTuple):
    """What was known when a backup was taken."""

    written: dict[Place, tuple[bytes | None, bytes]]
    counts: list[int]
    open: list[list[Place]]
    deleting: set[Place]
    keyed: dict[str, "Keyed"]
    watching: "Watching"


class Watching:
    """What a client has of its watch.

    Attributes:
        viewer: Its session, and the stream of it; None before the first, and in a life that has none yet.
        last_id: Of the frame that arrived last.
        positions: By the name that a cursor has for a partition.
        seen: What arrived, by its place.
    """

    def __init__(self) -> None:
        self.viewer: Viewer | None = None
        self.last_id: str | None = None
        self.positions: dict[str, int] = {}
        self.seen: dict[Place, bytes] = {}


class Keyed(NamedTuple):
    """An append with an idempotency key: its records, where the first one is, and all seqs."""

    fresh: list[dict[str, Any]]
    place: Place
    seqs: list[int]


class World(Lives):
    """One topic and its writers.

    Attributes:
        counts: Numbers of partitions since the last sync, the one of that sync first.
        written: What was appended and not deleted, by its place.
        open: The places of each append that has no answer yet.
        deleting: Places whose records a request deletes that has no answer yet.
        keyed: Appends with an idempotency key, by that.
    """

    jumps = SECONDS

    def __init__(self, seed: int, *, harsh: bool) -> None:
        super().__init__(seed, harsh=harsh)
        self.counts = [0]
        self.written: dict[Place, tuple[bytes | None, bytes]] = {}
        self.open: list[list[Place]] = []
        self.deleting: set[Place] = set()
        self.keyed: dict[str, Keyed] = {}
        self.numbers = 0
        self.watching = Watching()

    # ------------------------------------------------------------------ one life

    def begin(self) -> None:
        engine = self.engine
        if "p" not in engine.engine.state.topics:
            require(self.counts[0] == 0, "a topic is gone")
            self.counts = [0, self.dice.randint(1, 3)]
            engine.put("p", durability=self.durability, partitions=self.counts[-1])
            self.sync()
        found = len(engine.topic("p").partitions)
        require(found in self.counts, f"{found} partitions, of {self.counts}")
        self.counts = [found]
        heads = self._heads()
        for places in self.open:
            there = {seq <= heads.get(partition, 0) for partition, seq in places}
            require(len(there) == 1, "an append is in some of its partitions")
            if there == {False}:
                gone = set(places)
                self.written = {at: each for at, each in self.written.items() if at not in gone}
                self.keyed = {
                    key: each for key, each in self.keyed.items() if each.place not in gone
                }
        lost = [at for at in self.written if at[1] > heads.get(at[0], 0)]
        require(not lost, f"what was acknowledged is gone: {lost}")
        self.open.clear()
        if self.deleting:
            shown = self.shown()
            left = [at for at in self.deleting if at in shown]
            require(len(left) in (0, len(self.deleting)), "a delete is in some of its partitions")
            if not left:
                self._forget()
            self.deleting.clear()
        self.watching.viewer = None
        self.look()

    def _heads(self) -> dict[int, int]:
        partitions = self.engine.topic("p").partitions
        return {at: each.head_seq for at, each in enumerate(partitions)}

    def _forget(self) -> None:
        for place in self.deleting:
            del self.written[place]
        self.deleting.clear()

    def back_up(self) -> None:
        """In class `fsync`; in others a restored topic tells seqs as lost that were reserved for it."""
        if self.harsh:
            super().back_up()

    def known(self) -> Known:
        watching, viewer = self.watching, self.watching.viewer
        watching.viewer = None
        kept = self.written, self.counts, self.open, self.deleting, self.keyed, watching
        found = copy.deepcopy(Known(*kept))
        watching.viewer = viewer
        return found

    def revert(self, known: Known) -> None:
        self.written, self.counts, self.open, self.deleting, self.keyed, self.watching = known

    def step(self) -> None:
        dice, engine = self.dice, self.engine
        choice = dice.random()
        if choice < 0.4:
            self.append()
        elif choice < 0.55:
            self.produce()
        elif choice < 0.6:
            self.refuse()
        elif choice < 0.67:
            self.grow()
        elif choice < 0.7:
            self.look()
        elif choice < 0.75:
            self.watch()
        elif choice < 0.8:
            self.delete()
        elif choice < 0.85 and self.keyed:
            self.repeat()
        elif choice < 0.9:
            self.sync()
            engine.seal()
        elif choice < 0.95:
            self.sync()
            engine.drive(engine.schedule.round(checkpoint=True))
        else:
            self.sync()
            engine.now_ms += dice.choice((1, 1000))

    def sync(self) -> None:
        """All that was decided is durable, and answered."""
        self.engine.sync()
        del self.counts[:-1]
        self.open.clear()

    def _maybe_sync(self) -> None:
        if self.dice.random() < 0.5:
            self.sync()
        elif self.dice.random() < 0.5:
            self.engine.write()

    # ------------------------------------------------------------------ writers

    def append(self) -> None:
        """By HTTP: some records, with and without keys, and some that say where they go."""
        dice, fresh = self.dice, list[dict[str, Any]]()
        for _ in range(dice.randint(1, 6)):
            record: dict[str, Any] = {"data": self.numbers}
            self.numbers += 1
            choice = dice.random()
            if choice < 0.7:
                record["tag"] = dice.choice(KEYS).decode()
            elif choice < 0.85:
                record["partition"] = dice.randrange(self.counts[-1])
            fresh.append(record)
        key = f"key-{self.numbers}" if dice.random() < 0.3 else None
        answer = self._ask(fresh, key)
        places = self._note(fresh, answer)
        if key is not None:
            self.keyed[key] = Keyed(fresh, places[0], answer["seqs"])
        self._maybe_sync()
        if self.dice.random() < 0.2:
            self.watch()

    def _ask(self, fresh: list[dict[str, Any]], key: str | None) -> Any:
        fields = {} if key is None else {"idempotency_key": key}
        return self.engine.append(*fresh, name="p", **fields)

    def _note(self, fresh: list[dict[str, Any]], answer: dict[str, Any]) -> list[Place]:
        """Each record has the next seq of its partition."""
        count = self.counts[-1]
        spans = answer.get("partitions")
        if spans is None:
            spans = [{"partition": 0, "first_seq": answer["first_seq"], "last_seq": answer["last_seq"]}]  # fmt: skip
        expected: dict[int, int] = {}
        for record in fresh:
            at = _home(record, count)
            if at is not None:
                expected[at] = expected.get(at, 0) + 1
        free = sum(_home(record, count) is None for record in fresh)
        sizes = {each["partition"]: each["last_seq"] - each["first_seq"] + 1 for each in spans}
        for at, size in sizes.items():
            require(size - expected.get(at, 0) in (0, free), "a record is in another partition")
        turn = next((at for at, size in sizes.items() if size != expected.get(at, 0)), None)
        places = list[Place]()
        for record, seq in zip(fresh, answer["seqs"], strict=True):
            at = _home(record, count)
            place = (turn if at is None else at) or 0, seq
            tag = record.get("tag")
            require(place not in self.written, "a seq is given twice")
            self.written[place] = None if tag is None else tag.encode(), b"%d" % record["data"]
            places.append(place)
        self.open.append(places)
        return places

    def repeat(self) -> None:
        key = self.dice.choice(list(self.keyed))
        answer = self._ask(self.keyed[key].fresh, key)
        is_same = answer["deduped"] and answer["seqs"] == self.keyed[key].seqs
        require(is_same, "a repeat gets other seqs")

    def produce(self) -> None:
        """By Kafka: the producer has placed its records itself."""
        key = self.dice.choice(KEYS)
        at = murmur2(key) % self.counts[-1]
        fresh = [b"%d" % (self.numbers + nth) for nth in range(self.dice.randint(1, 4))]
        self.numbers += len(fresh)
        data = records_of([(key, value, [], 0) for value in fresh])
        found: Any = self.engine.ask(AppendBatch(partition_name("p", at), batch(data, len(fresh))))
        places = [(at, found.first_seq + nth) for nth in range(len(fresh))]
        self.written |= {place: (key, value) for place, value in zip(places, fresh, strict=True)}
        self.open.append(places)
        self._maybe_sync()

    def refuse(self) -> None:
        """A record says a partition that is not there: nothing of its append is taken."""
        heads = self._heads()
        fresh = [{"data": 0, "tag": "a"}, {"data": 0, "partition": self.counts[-1]}]
        try:
            self._ask(fresh, None)
        except Rejection as refusal:
            require(STATUSES[refusal.code] == 404, f"another reason: {refusal}")
        else:
            require(False, "a partition that is not there is written to")
        require(self._heads() == heads, "what is refused takes something")

    def grow(self) -> None:
        count = self.counts[-1] + 1
        if count > PARTITIONS_MAX:
            return
        self.watch()
        if self.dice.random() < 0.5:
            self.engine.ask(AddPartitions("p", count))
        else:
            self.engine.put("p", durability=self.durability, partitions=count)
        self.counts.append(count)
        self._maybe_sync()

    def delete(self) -> None:
        """The records of a key, in every partition."""
        key = self.dice.choice(KEYS)
        self.sync()
        self.deleting = {place for place, (own, _) in self.written.items() if own == key}
        body = orjson.dumps({"match": key.decode()})
        found: Any = self.engine.ask(parse_delete("p", body))
        if isinstance(found, Parked):  # a run is in a file, and read beside
            self.engine.work_off()
            (found,) = self.engine.woken()
        else:
            found = shown_of(found)
        require(found["deleted"] == len(self.deleting), "another number of records is deleted")
        self._maybe_sync()
        self.sync()
        self._forget()

    # ------------------------------------------------------------------ readers

    def shown(self) -> dict[Place, Consumed]:
        """Every record that consumers find, by its place.  Raises Broken."""
        found: dict[Place, Consumed] = {}
        for at in range(len(self.engine.topic("p").partitions)):
            try:
                records = consume(self.engine, name=partition_name("p", at))
            except (BatchError, IndexError, ValueError, AssertionError) as error:
                require(False, f"a consumer cannot read on: {error!r}")
            numbers = [int(each.value or b"0") for each in records]
            require(numbers == sorted(set(numbers)), f"another order in partition {at}: {numbers}")
            found |= {(at, each.offset + 1): each for each in records}
        return found

    def look(self) -> None:
        shown = self.shown()
        for place, record in shown.items():
            require(place in self.written, "a record is where none was appended")
            require(self.written[place] == record[1:], "another record is at a place")
        partitions = self.engine.topic("p").partitions
        missing = [
            (at, seq)
            for at, seq in self.written.keys() - shown.keys()
            if seq <= partitions[at].published_seq
        ]
        require(not missing, f"records are not there: {missing}")

    # ------------------------------------------------------------------ a watcher

    def watch(self) -> None:
        """Connect, where there is no stream; take some frames, and perhaps lose the rest on the way."""
        dice, watching = self.dice, self.watching
        viewer = watching.viewer
        if viewer is None or dice.random() < 0.2:
            viewer = self._subscribe()
        elif dice.random() < 0.5:
            viewer.open(watching.last_id)
        for _ in range(dice.choice((0, 2, 8, 100))):
            frame = self._pull(viewer)
            if frame is None:
                self._require_all()
                return
            if dice.random() < 0.1:  # on its way when the connection breaks
                viewer.close()
                viewer.open(watching.last_id)
                continue
            self._take(viewer, frame)

    def _subscribe(self) -> Viewer:
        """A session that goes on from the id of the last frame, or from places by name."""
        watching = self.watching
        cursor: Any = watching.last_id
        if watching.positions and self.dice.random() < 0.5:
            cursor = watching.positions
        begin = {} if cursor is None else self.dice.choice(({}, {"tail": True}, {"from_seq": 3}))
        viewer = Viewer(self.engine, topics={"p": begin}, limit=3, cursor=cursor)
        watching.viewer, watching.last_id = viewer.open(), viewer.posted["cursor"]
        return viewer

    def _take(self, viewer: Viewer, frame: Frame) -> None:
        watching, at = self.watching, frame.partition or 0
        watching.last_id = viewer.id
        if not isinstance(frame, RecordFrame):
            require(isinstance(frame, CaughtUpFrame), f"nothing was lost: {frame}")
            return
        name = partition_name("p", at)
        require(watching.positions.get(name, 0) <= frame.from_seq, "a watcher goes back")
        watching.positions[name] = frame.to_seq
        for record in records_of_frame(frame):
            place = at, record["$seq"]
            require(place not in watching.seen, "a watcher gets a record twice")
            require(place in self.written, "a watcher gets a record that is not there")
            watching.seen[place] = b"%d" % record["data"]

    def _pull(self, viewer: Viewer) -> Frame | None:
        """The next frame; what is in files is opened beside."""
        while (frame := viewer.pull()) is None and self.engine.engine.unit.fetches:
            self.engine.read_fetches()
        return frame

    def _require_all(self) -> None:
        """A stream that has no frame has given all that is shown."""
        partitions = self.engine.topic("p").partitions
        heads = {at: each.published_seq for at, each in enumerate(partitions)}
        shown = {at for at in self.written if at[1] <= heads.get(at[0], 0)}
        missing = shown - self.watching.seen.keys()
        require(not missing, f"a watcher misses records: {missing}")

    def watch_to_the_end(self) -> None:
        viewer = self._subscribe()
        while (frame := self._pull(viewer)) is not None:
            self._take(viewer, frame)
        self._require_all()
        for place, (_, value) in self.written.items():
            require(self.watching.seen[place] == value, "a watcher gets another record")

    # ------------------------------------------------------------------ the end

    def judge(self) -> None:
        """All that was appended is there, and the topic's sums are those of its partitions."""
        self.start()
        self.begin()
        self.sync()
        self.look()
        self.watch_to_the_end()
        state = self.engine.state("p")
        require(state["count"] == len(self.shown()), "the topic counts other records")


def _home(record: dict[str, Any], count: int) -> int | None:
    """Where a record belongs; None where it takes turns."""
    if "partition" in record:
        partition: int = record["partition"]
        return partition
    return murmur2(record["tag"].encode()) % count if "tag" in record else None


def murmur2(key: bytes) -> int:
    """As Kafka's clients in Java have it, a word at a time."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    for at in range(0, len(key) - 3, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        h = (h * m ^ (k ^ k >> 24) * m) & mask
    rest = key[len(key) & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def keys_placed_by_the_number_before(patch: Patch) -> None:
    """Once there is another partition, a key stays where it was."""
    _placed(
        patch, lambda own, command, name, count, turn: own(command, name, max(count - 1, 1), turn)
    )


def records_without_a_key_placed_apart(patch: Patch) -> None:
    """Each takes a turn, and not all of an append together."""

    def apart(own: Any, command: Any, name: str, count: int, turn: int) -> Any:
        found = own(command, name, count, turn)
        if not found.takes_turns or count == 1:
            return found
        rows = found.rows.pop(turn % count)
        for nth, row in enumerate(rows):
            found.rows.setdefault((turn + nth) % count, []).append(row)
        rows = {at: sorted(each) for at, each in sorted(found.rows.items())}
        return found._replace(rows=rows)

    _placed(patch, apart)


def _placed(patch: Patch, other: Any) -> None:
    from topics.protocol.decide import records

    own = records.placement_of

    def placement_of(command: Any, name: str, count: int, turn: int) -> Any:
        return other(own, command, name, count, turn)

    patch.setattr(records, "placement_of", placement_of)


def keys_hashed_otherwise(patch: Patch) -> None:
    """By CRC-32, as another client's default is."""
    from topics.protocol.model import partitioner

    patch.setattr(partitioner, "hash_of", zlib.crc32)


def append_half_logged(patch: Patch) -> None:
    """What goes to partitions behind the first is in memory alone."""
    _unlogged(patch, lambda event, topic: isinstance(event, RecordsAppended) and topic.partition)


def partitions_not_logged(patch: Patch) -> None:
    _unlogged(patch, lambda event, topic: isinstance(event, PartitionsAdded))


def deletes_of_other_partitions_not_logged(patch: Patch) -> None:
    _unlogged(
        patch,
        lambda event, topic: (
            isinstance(event, RecordsDeleted | ScatteredDeleted) and topic.partition
        ),
    )


def _unlogged(patch: Patch, is_left_out: Any) -> None:
    from topics.protocol.commit.unit_of_work import UnitOfWork

    emit = UnitOfWork.emit

    def emitted(self: Any, event: Any, *, logged: bool = True, **named: Any) -> None:
        topic = self.state.by_id.get(getattr(event, "topic_id", None))
        emit(self, event, logged=logged and not is_left_out(event, topic), **named)

    patch.setattr(UnitOfWork, "emit", emitted)


def partitions_left_out_of_a_checkpoint(patch: Patch) -> None:
    from topics.protocol.state.state import State

    own = State.restore

    def restore(self: Any, checkpoint: Any) -> None:
        checkpoint.topics = [each for each in checkpoint.topics if "#" not in each.name]
        own(self, checkpoint)

    patch.setattr(State, "restore", restore)


def keys_of_several_partitions_not_logged(patch: Patch) -> None:
    from topics.protocol.commit import unit_of_work

    own = unit_of_work.encode

    def encode(event: Any) -> Any:
        is_keyed = isinstance(event, RecordsAppended) and event.placed
        return own(msgspec.structs.replace(event, key=b"", placed=b"") if is_keyed else event)

    patch.setattr(unit_of_work, "encode", encode)


def repeat_answered_by_partition(patch: Patch) -> None:
    """Its seqs come in the order of the partitions, and not of the records."""
    from topics.protocol.model.placed import Placed

    def seqs(self: Any) -> list[int]:
        spans = self.spans
        return [seq for each in spans for seq in range(each.first_seq, each.last_seq + 1)]

    patch.setattr(Placed, "seqs", seqs)


def partitions_that_join_begin_at_their_heads(patch: Patch) -> None:
    from topics.protocol.state import watches

    own = watches.begin_in

    def begin_in(topic: Any, cursor: int, view: Any, **named: Any) -> Any:
        return own(topic, topic.published_seq, view, **named)

    patch.setattr(watches, "begin_in", begin_in)


def partitions_join_no_session_without_a_stream(patch: Patch) -> None:
    from topics.protocol.state.watches import Watches

    patch.setattr(Watches, "complete", lambda self, session: None)


def partitions_join_no_stream(patch: Patch) -> None:
    from topics.protocol.state.watches import Watches

    patch.setattr(Watches, "on_grown", lambda self, topic_id: None)


def a_cursor_from_before_begins_partitions_where_it_is_asked(patch: Patch) -> None:
    from topics.protocol.decide.watches import WatchCommands

    own = WatchCommands._begun

    def begun(self: Any, topics: Any, cursors: Any, *rest: Any, **named: Any) -> Any:
        found = own(self, topics, cursors, *rest, **named)
        for topic, watched in found:
            if watched.name not in cursors and any(begin.tail for begin in topics.values()):
                watched.cursor = topic.published_seq
        return found

    patch.setattr(WatchCommands, "_begun", begun)


BUGS: dict[str, Bug] = {
    bug.sow.__name__: bug
    for bug in (
        Bug(
            keys_placed_by_the_number_before,
            "a record is in another partition|another record is at a place",
        ),
        Bug(records_without_a_key_placed_apart, "a record is in another partition"),
        Bug(keys_hashed_otherwise, "a record is in another partition", 1),
        Bug(append_half_logged, "in some of its partitions|what was acknowledged is gone"),
        Bug(partitions_not_logged, "partitions, of|an event cannot be applied", 1),
        Bug(deletes_of_other_partitions_not_logged, "where none was appended", 4),
        Bug(partitions_left_out_of_a_checkpoint, "partitions, of|an event cannot be applied"),
        Bug(
            keys_of_several_partitions_not_logged,
            "a seq is given twice|a repeat gets other seqs|KeyError",
        ),
        Bug(repeat_answered_by_partition, "a repeat gets other seqs|a seq is given twice"),
        Bug(partitions_that_join_begin_at_their_heads, "a watcher misses records", 1),
        Bug(
            partitions_join_no_session_without_a_stream,
            "a watcher misses records|twice|goes back",
            5,
        ),
        Bug(partitions_join_no_stream, "a watcher misses records"),
        Bug(a_cursor_from_before_begins_partitions_where_it_is_asked, "a watcher misses records"),
    )
}
