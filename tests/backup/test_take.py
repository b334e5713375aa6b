"""Taking a backup: what is copied, what is refused, and what a failure leaves."""

import errno
from collections.abc import Callable

import pytest
from protocol.batches.builder import batch, records_of
from protocol.consumer import consume
from protocol.harness import Harness, driven, tagged
from sim.files import Fault, SimFiles
from sim.script import append, delete, maintain

from topics.backup.take import take
from topics.protocol.batches.codecs import packed
from topics.protocol.model.commands import AppendBatch
from topics.protocol.model.errors import Corrupt, InUse, Unusable
from topics.store.checkpoint import Checkpoints
from topics.store.files import File
from topics.store.layout import log_name
from topics.store.store import DiskStore

from .places import backups, copies, damaged, instance_of, lived, placed, restored, seqs


def test_what_was_acknowledged_is_in_the_backup() -> None:
    """Also what was written and not synced: it was acknowledged in the class `disk`."""
    world = lived()
    append(world, 2)
    assert world.process.store.synced_lsn < world.process.store.written_lsn

    place = placed(world)

    assert seqs(world, restored(place)) == [*range(5, 23)]


def test_a_second_backup_copies_only_what_is_new() -> None:
    """A segment is copied once; its flags are each backup's own, so that a record that was deleted
    in between is in the older backup alone. (decision 104)"""
    world = lived()
    place = placed(world)
    held = copies(place)
    delete(world, 9)
    world.settle()
    maintain(world, checkpoint=True)

    manifest, _ = take(world.files.other(), place)

    assert set(held) <= set(copies(place))
    assert manifest.copied_bytes < sum(part.size_bytes for part in manifest.segments)
    assert seqs(world, restored(place, 1)) == [*range(5, 21)]
    assert seqs(world, restored(place, 2)) == [*range(9, 21)]


@pytest.mark.parametrize("codec", range(5))
def test_many_small_records_of_a_batch_are_in_the_backup(codec: int) -> None:
    """Compressed, they take less room than a record of HTTP has columns."""
    files, place = SimFiles(1), SimFiles(100)
    engine = Harness(store=DiskStore(files, wal_file_bytes=1 << 20, reserve_bytes=1 << 20))
    engine.put("t")
    records = records_of([(None, b"1", [], 0)] * 2000)
    engine.ask(AppendBatch("t", batch(packed(codec, records), 2000, attributes=codec)))
    engine.delete(before_seq=1001)
    engine.seal()
    engine.drive(engine.schedule._checkpoint())

    manifest, _ = take(files.other(), place)

    assert manifest.records == 1000
    found = Harness(store=DiskStore(restored(place), wal_file_bytes=1 << 20, reserve_bytes=1 << 20))
    assert [each.offset for each in consume(found)] == [*range(1000, 2000)]
    assert found.diff(0, limit=1000)["records"] == engine.diff(0, limit=1000)["records"]


def test_nothing_new_copies_nothing() -> None:
    """A backup of a directory that did not change is its log and flags."""
    world = lived()
    place = placed(world)

    manifest, _ = take(world.files.other(), place)

    assert (manifest.copied_bytes, manifest.number) == (0, 2)


class Watched(SimFiles):
    """A directory that calls once, before files with these endings were opened, in this order."""

    def __init__(self, files: SimFiles, endings: list[str], act: Callable[[], None]) -> None:
        super().__init__(files.seed)
        self.__dict__.update(files.__dict__)
        self._endings = endings
        self._act = act

    def open(self, name: str, *, write: bool = False) -> File:
        if self._endings and name.endswith(self._endings[0]):
            self._endings = self._endings[1:]
            if not self._endings:
                self._act()
        return super().open(name)


def test_flags_are_read_behind_the_checkpoint() -> None:
    """A delete that a checkpoint made the log forget is in the flags alone: flags from before that
    checkpoint would bring the records back."""
    world = lived()

    def deleted() -> None:
        delete(world, 11)
        world.settle()
        maintain(world, checkpoint=True)
        maintain(world, checkpoint=True)

    place = SimFiles(100)
    take(Watched(world.files, [".ckpt"], deleted), place)

    assert seqs(world, restored(place)) == [*range(11, 21)]


def test_the_log_is_read_behind_the_flags() -> None:
    """A delete whose flags were read is in the log that was read: or records would be missing whose
    delete is not part of the backup."""
    world = lived()
    append(world, 8)
    maintain(world)
    world.settle()

    def deleted() -> None:
        delete(world, 11)
        world.settle()
        assert world.process.store.flip() > 0

    place = SimFiles(100)
    take(Watched(world.files, [".ckpt", ".wal", ".seg"], deleted), place)

    assert seqs(world, restored(place)) == [*range(11, 29)]


@pytest.mark.parametrize("ending", [".seg", ".wal", ".ckpt"])
def test_damage_is_never_backed_up(ending: str) -> None:
    """A source that does not verify is refused, and the backups before it stay as they are."""
    world = lived()
    place = placed(world) if ending != ".seg" else SimFiles(101)
    before = backups(place)
    append(world)
    world.settle()
    append(world)
    name = max(n for n in world.files.names() if n.endswith(ending) and n[0] == "0")
    at = len(world.files.tree()[name]) - 10
    if ending == ".wal":
        found = Checkpoints(world.files, instance_of(world.files)).load()
        assert found is not None
        name, at = log_name(found[1].position.file_number), found[1].position.offset + 90

    with pytest.raises(Corrupt, match=name):
        take(damaged(world.files, name, at), place)

    assert backups(place) == before
    assert before == [] or seqs(world, restored(place)) == [*range(5, 21)]


def test_a_full_disk_leaves_the_backups_before() -> None:
    """A backup for which there is no space ends with the error and without a file of its own."""
    world = lived()
    place = placed(world)
    before = [*backups(place), *copies(place)]
    for call in range(place.calls + 1, place.calls + 400):
        place.faults[call] = Fault(errno.ENOSPC)

    with pytest.raises(OSError, match="injected"):
        take(world.files.other(), place)

    place.faults.clear()
    assert [*backups(place), *copies(place)] == before


def test_a_place_that_holds_something_else_is_refused() -> None:
    """As are a place of another data directory, one in use, and a source that is no directory."""
    world, other = lived(), lived()
    other.files.put("topics.id", other.files.tree()["topics.id"])
    foreign = SimFiles(1)
    foreign.put("notes.txt", b"mine")
    place = placed(world)
    [name] = backups(place)

    with pytest.raises(Unusable, match=r'it holds "notes.txt"'):
        take(world.files.other(), foreign)
    with pytest.raises(Unusable, match="not a data directory"):
        take(SimFiles(2), SimFiles(3))
    with pytest.raises(InUse):
        take(world.files.other(), place.other())
    assert backups(place) == [name]


def test_a_backup_taken_during_compaction_has_the_newest_of_each_key() -> None:
    """At any wait of a pass, and whatever of its deletes a checkpoint or a flag knows already. (docs/kafka.md)"""
    files, place = SimFiles(1), SimFiles(100)
    engine = Harness(
        store=DiskStore(files, wal_file_bytes=1 << 20, reserve_bytes=1 << 20), segment_max_records=8
    )
    engine.put(compact=True)
    newest: dict[str, int] = {}
    for turn in range(4):
        tags = [f"k{key}" for key in range(turn, 6 + turn)]
        engine.append(*(tagged(tag, turn) for tag in tags))
        newest |= {tag: engine.topic().head_seq - 5 + nth for nth, tag in enumerate(tags)}
    engine.seal_all()

    counts = []
    for _ in driven(engine, engine.schedule.round(checkpoint=True)):
        take(files.other(), place)
        found = Harness(store=DiskStore(restored(place), wal_file_bytes=1 << 20, reserve_bytes=0))
        records = found.diff(0, limit=1000, include_tags=True)["records"]
        counts.append(len(records))
        assert {each["$tag"]: each["$seq"] for each in records} == newest

    assert (counts[0], counts[-1]) == (24, len(newest))
    assert counts == sorted(counts, reverse=True)
