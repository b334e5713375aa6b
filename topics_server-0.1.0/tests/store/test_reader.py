"""Reading a data directory while another process writes it."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from sim.files import SimFiles

from topics.protocol.model.errors import Corrupt, Unusable
from topics.store.files import OsFiles
from topics.store.layout import LOCK_NAME
from topics.store.reader import ReadOnlyStore, open_readonly
from topics.store.runs import SealedRun
from topics.store.store import DiskStore

from .ledger import Ledger


def runs_of(ledger: Ledger) -> Iterable[SealedRun]:
    return [run for topic in ledger.topics.values() for _, run in topic.runs]


def begun() -> tuple[SimFiles, Ledger]:
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store.recover(ledger)
    ledger.create(1)
    return files, ledger


def read(files: SimFiles) -> tuple[ReadOnlyStore, Ledger]:
    tree = files.tree()
    store, ledger, _ = open_readonly(files.other(), Ledger, runs_of=runs_of)
    assert files.tree() == tree
    return store, ledger


def test_a_reader_sees_what_is_durable() -> None:
    """A reader sees a batch once the writer's note says that it is durable, or, where there is no note,
    once a later batch in the log does."""
    files, writer = begun()
    for text in (b"one", b"two", b"three"):
        writer.append(1, text)
        writer.store.sync()
    writer.append(1, b"four")
    durable = writer.history[-2]

    assert read(files)[1].content() == durable
    writer.store.sync()
    assert read(files)[1].content() == writer.history[-1]


class Heard(Ledger):
    """What a reader applied, and which batches of it are durable."""

    def __init__(self, store: ReadOnlyStore) -> None:
        super().__init__(store)
        self.batches: list[tuple[int, bool]] = []
        self.settled = 0

    def end_batch(self, batch: int, *, is_durable: bool) -> None:
        self.batches.append((batch, is_durable))

    def settle(self, durable_through: int) -> None:
        self.settled = durable_through


def test_a_reader_of_what_is_written_hears_what_is_durable() -> None:
    """It applies the batches that no sync covers yet, and hears of them when one does."""
    files, writer = begun()
    writer.append(1, b"one")
    writer.store.sync()
    writer.append(1, b"two")

    store, reader, _ = open_readonly(files.other(), Heard, marks_of=lambda heard: heard)
    [*durable, (last, is_durable)] = reader.batches
    assert not is_durable
    assert all(known for _, known in durable)
    assert reader.settled == last - 1
    assert reader.content() == writer.history[-1]

    writer.append(1, b"three")
    store.follow(reader, marks=reader)
    assert reader.batches[-1] == (last + 1, False)
    writer.store.sync()
    store.follow(reader, marks=reader)
    assert reader.settled == last + 1
    assert reader.content() == writer.history[-1]


def test_a_clean_stop_is_durable() -> None:
    """Its mark is the last batch, and nothing vouches for it."""
    files, writer = begun()
    writer.append(1, b"one")
    writer.stop()
    files.put(LOCK_NAME, b"")

    _, reader, _ = open_readonly(files.other(), Heard, marks_of=lambda heard: heard)
    assert all(known for _, known in reader.batches)
    assert reader.content() == writer.content()


def test_without_a_note_a_later_batch_vouches() -> None:
    """As after a power loss, which takes the note."""
    files, writer = begun()
    for text in (b"one", b"two", b"three"):
        writer.append(1, text)
        writer.store.sync()
    vouched_by_next = writer.history[-2]
    files.put(LOCK_NAME, b"")

    assert read(files)[1].content() == vouched_by_next
    writer.store.idle()
    assert read(files)[1].content() == writer.history[-1]


def test_a_segment_that_is_gone_is_not_missed_before_another_write() -> None:
    """What dropped a segment is durable when its file goes, and nothing in the log says so yet: the
    writer's note does."""
    files, writer = begun()
    writer.append(1, b"one", b"two")
    writer.seal(1)
    writer.store.sync()
    writer.store.idle()

    writer.drop_runs(1)
    writer.store.sync()

    assert not any(name.endswith(".seg") for name in files.names())
    assert read(files)[1].content() == {1: {}}


def test_a_reader_follows_the_log() -> None:
    """Applying the log in parts leads to the same state, across files and seals."""
    files, writer = begun()
    store, reader = read(files)
    for turn in range(30):
        writer.append(1, b"%d" % turn * 1500, b"x" * 1500)
        if turn % 4 == 3:
            writer.delete(1, turn, turn + 1)
        if turn % 7 == 6:
            writer.seal(1)
        if turn % 11 == 10:
            writer.store.rotate()
        writer.store.sync()
        writer.store.flip()
        writer.store.idle()

        store.follow(reader)

        assert reader.content() == writer.history[-1]
    assert writer.store.stats.rotations_total >= 2


def test_a_reader_keeps_what_it_opened() -> None:
    """Runs that the writer drops stay readable for a reader that recovered before."""
    files, writer = begun()
    writer.append(1, b"one", b"two")
    writer.seal(1)
    writer.store.sync()
    writer.store.idle()
    before = writer.content()
    _, reader = read(files)

    writer.drop_runs(1)
    writer.store.sync()
    writer.store.idle()

    assert not any(name.endswith(".seg") for name in files.names())
    assert reader.content() == before
    assert read(files)[1].content() == {1: {}}


def test_a_reader_that_fell_behind_starts_again() -> None:
    """A log that was retired cannot be followed; a new start finds the checkpoint."""
    files, writer = begun()
    store, reader = read(files)
    for _ in range(3):
        writer.append(1, b"one")
        writer.checkpoint()
    writer.store.idle()

    with pytest.raises(Corrupt, match="missing"):
        store.follow(reader)
    assert read(files)[1].content() == writer.history[-1]


def test_a_file_that_vanishes_meanwhile_means_again_from_the_start() -> None:
    """The writer may checkpoint and drop between any two calls of the reader."""
    files, writer = begun()
    writer.append(1, b"one", b"two")
    writer.seal(1)
    writer.store.sync()
    writer.store.idle()

    class Moving(SimFiles):
        moves = 3

        def open(self, name: str, *, write: bool = False):  # type: ignore[no-untyped-def]
            if name.endswith((".seg", ".wal", ".ckpt")) and self.moves:
                self.moves -= 1
                writer.append(1, b"more")
                writer.checkpoint()
                writer.drop_runs(1)
                writer.store.sync()
                writer.store.idle()
            return super().open(name, write=write)

    view = Moving()
    view.__dict__.update(files.__dict__)
    _, reader, _ = open_readonly(view, Ledger, runs_of=runs_of)

    assert view.moves == 0
    assert reader.content() == writer.history[-1]


def test_a_clean_stop_is_read_whole() -> None:
    """After a clean stop the last batch is visible, too."""
    files, writer = begun()
    writer.append(1, b"one")
    expected = writer.history[-1]
    writer.stop()

    _, reader, recovery = open_readonly(files.other(), Ledger)

    assert recovery.clean
    assert reader.content() == expected


def test_a_directory_that_is_not_ours_is_refused() -> None:
    """A reader creates no directory."""
    with pytest.raises(Unusable, match="not a data directory"):
        open_readonly(SimFiles(), Ledger)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A reader creates nothing: a path that does not exist stays so."""
    missing = tmp_path / "missing"

    with pytest.raises(Unusable, match="No such file or directory"):
        ReadOnlyStore(OsFiles(missing))

    assert not missing.exists()


def test_a_reader_says_how_far_it_applied_the_log() -> None:
    """In front of that a repair cuts the log; a log that was not begun has no such place."""
    files, writer = begun()
    writer.append(1, b"one")
    writer.store.sync()
    first = read(files)[0].position
    writer.append(1, b"two")
    writer.store.sync()
    second = read(files)[0].position

    assert first is not None
    assert second is not None
    assert (second.file_number, second.batch) == (first.file_number, first.batch + 1)
    assert second.offset > first.offset
    assert ReadOnlyStore(files.other()).position is None
