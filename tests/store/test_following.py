"""Following a log that another process writes, as far as it says."""

import os
from pathlib import Path

import pytest
from sim.files import SimFiles

from topics.protocol.model.codec import STORED_BYTES
from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.events import Event, RecordsAppended, RunRef
from topics.protocol.model.records import StoredText
from topics.store.files import OsFiles
from topics.store.following import FollowingStore
from topics.store.layout import PAGE, SECTOR, log_name, segment_name
from topics.store.store import DiskStore

from .ledger import Ledger


def begun() -> tuple[SimFiles, Ledger]:
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store.recover(ledger)
    ledger.create(1)
    return files, ledger


def following(files: SimFiles, through: int) -> tuple[FollowingStore, Ledger]:
    store = FollowingStore(files.other())
    ledger = Ledger(store)
    store.begin(ledger, through)
    return store, ledger


def batch(writer: Ledger) -> int:
    return int(writer.store.written_batch)  # type: ignore[attr-defined]


def test_a_follower_applies_what_is_written_and_not_yet_durable() -> None:
    """It needs no later batch that vouches, since the page cache of one machine is one."""
    files, writer = begun()
    writer.append(1, b"one")
    store, reader = following(files, batch(writer))
    assert reader.content() == writer.content()

    writer.append(1, b"two")

    assert store.follow(reader.apply, batch(writer), 1 << 20)
    assert reader.content() == writer.content()


def test_a_follower_goes_no_further_than_the_writer_says() -> None:
    """A batch that is in the log and was not reported is not applied."""
    files, writer = begun()
    writer.append(1, b"one")
    reported, before = batch(writer), writer.content()
    writer.append(1, b"two")

    store, reader = following(files, reported)

    assert (store.batch, reader.content()) == (reported, before)
    assert store.follow(reader.apply, reported, 1 << 20)
    assert reader.content() == before


def test_a_follower_goes_on_in_slices_across_files() -> None:
    """A slice ends after a bounded number of bytes; idle marks and rotations are batches, too."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    for turn in range(60):
        writer.append(1, b"%d" % turn * 1500, b"x" * 1500)
        if turn % 5 == 4:
            writer.store.sync()
            writer.store.idle()
        if turn % 11 == 10:
            writer.store.rotate()
    slices = 1
    while not store.follow(reader.apply, batch(writer), 1000):
        slices += 1
    assert slices > 20
    assert reader.content() == writer.content()


def test_a_follower_whose_file_is_gone_goes_on_in_the_next() -> None:
    """It had come to the end of the file, whose place in the log the next one names."""
    files, writer = begun()
    writer.append(1, b"one")
    writer.store.sync()
    writer.store.rotate()
    store, reader = following(files, batch(writer))
    store.follow(reader.apply, batch(writer), 1 << 20)
    store.rest()
    files.other().unlink(log_name(1))

    writer.append(1, b"two")

    assert store.follow(reader.apply, batch(writer), 1 << 20)
    assert reader.content() == writer.content()


def test_a_follower_lets_a_retired_file_go_once_it_is_read() -> None:
    """What is written to it before it is retired is read from what is open; it has no name then."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    store.pass_retired()  # it has its name
    writer.append(1, b"one")
    assert store.follow(reader.apply, batch(writer), 1 << 20)
    store.pass_retired()
    assert open_log(store) == log_name(1)
    writer.append(1, b"two")
    writer.store.sync()
    writer.store.rotate()
    files.other().unlink(log_name(1))
    store.pass_retired()
    assert open_log(store) == log_name(1)

    assert store.follow(reader.apply, batch(writer), 1 << 20)
    store.pass_retired()

    assert reader.content() == writer.content()
    assert open_log(store) == log_name(2)
    writer.append(1, b"three")
    assert store.follow(reader.apply, batch(writer), 1 << 20)
    assert reader.content() == writer.content()


def test_a_follower_has_the_file_open_from_its_begin_on() -> None:
    """What is written to it, before it is retired, is not lost with its name."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    writer.append(1, b"one")
    writer.store.sync()
    writer.store.rotate()
    files.other().unlink(log_name(1))
    writer.append(1, b"two")

    assert store.follow(reader.apply, batch(writer), 1 << 20)
    assert reader.content() == writer.content()


def test_a_follower_that_rests_keeps_a_file_that_may_grow() -> None:
    """The writer may add to it and unlink it before the follower looks again."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    store.rest()
    assert open_log(store) == log_name(1)
    writer.append(1, b"one")
    writer.store.sync()
    writer.store.rotate()
    files.other().unlink(log_name(1))
    assert store.follow(reader.apply, batch(writer), 1 << 20)

    store.rest()

    assert open_log(store) == ""
    writer.append(1, b"two")
    assert store.follow(reader.apply, batch(writer), 1 << 20)
    assert reader.content() == writer.content()


def test_a_follower_stays_where_the_next_file_is_retired_as_well() -> None:
    """It cannot go on, and says so when there is more."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    writer.append(1, b"one")
    writer.store.sync()
    writer.store.rotate()
    assert store.follow(reader.apply, batch(writer), 1 << 20)
    for number in (1, 2):
        files.other().unlink(log_name(number))
    store.pass_retired()
    assert open_log(store) == log_name(1)
    writer.append(1, b"two")
    with pytest.raises(FileNotFoundError):
        store.follow(reader.apply, batch(writer), 1 << 20)


def test_a_file_of_which_nobody_reads_text_is_let_go() -> None:
    """The log has gone on in another one, without large text."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    writer.append(1, b"x" * STORED_BYTES)
    writer.store.sync()
    writer.store.rotate()
    writer.append(1, b"small")
    assert store.follow(reader.apply, batch(writer), 1 << 20)
    assert store._texts is not None

    store.pass_retired()

    assert store._texts is None


def open_log(store: FollowingStore) -> str:
    """The name of the file of the log that is open."""
    return "" if store._file is None else store._file.name


def test_large_text_stays_in_the_log() -> None:
    """A reader refers to it there, in its own place of each batch; that of small batches it copies.
    Nothing waits for a disk where the page cache has it not, and a file that is gone stays open as long as
    text of it is referred to."""
    files, writer = begun()
    large = [b"%d" % n * STORED_BYTES for n in range(4)]
    theirs = files.other()
    store, events = FollowingStore(theirs), list[Event]()
    writer.append(1, large[0], b"in the same batch")
    writer.append(1, b"small")
    writer.append(1, large[3])
    store.begin(Listener(events), batch(writer))
    writer.store.sync()
    writer.store.rotate()
    writer.append(1, large[1], large[2])
    assert store.follow(events.append, batch(writer), 1 << 20)

    first, small, third, second = (
        each.batch.text for each in events if isinstance(each, RecordsAppended)
    )

    assert small == b"small,"
    assert isinstance(first, StoredText)
    assert isinstance(second, StoredText)
    assert third.read(0, len(third)) == large[3] + b","
    assert first.read(0, len(first)) == large[0] + b",in the same batch,"
    at = len(large[1])
    assert second.read(at - 1, at + 3) == large[1][-1:] + b"," + large[2][:2]
    files.unlink(log_name(1))
    store.pass_retired()
    assert store._texts is not None
    assert store._texts[0] == 2
    theirs.cold = True
    assert first.read(3, 9) is None
    assert first.read_blocking(3, 9) == large[0][3:9]
    store.close()


class Listener:
    """Takes events, and no checkpoint."""

    def __init__(self, events: list[Event]) -> None:
        self.apply = events.append

    def restore(self, checkpoint: object) -> None:
        raise AssertionError(checkpoint)

    def refs(self) -> list[RunRef]:
        return []


def test_text_that_the_disk_cannot_read_is_an_error(tmp_path: Path) -> None:
    """Of the file and the place in it, as with a segment's."""
    writer = Ledger(None)
    writer.store = DiskStore(OsFiles(tmp_path), wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    writer.store.recover(writer)
    writer.create(1)
    writer.append(1, b"x" * STORED_BYTES)
    events = list[Event]()
    FollowingStore(OsFiles(tmp_path)).begin(Listener(events), batch(writer))
    [text] = [each.batch.text for each in events if isinstance(each, RecordsAppended)]
    assert isinstance(text, StoredText)
    os.truncate(tmp_path / log_name(1), PAGE)

    assert text.read(0, 9) is None
    with pytest.raises(Corrupt, match="the file ends here"):
        text.read_blocking(0, 9)


def test_a_batch_that_does_not_verify_is_an_error() -> None:
    """The writer says that it is written, so nothing but damage can keep it from being read."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    with pytest.raises((Corrupt, FileNotFoundError)):
        store.follow(reader.apply, batch(writer) + 1, 1 << 20)


def test_a_directory_of_something_else_is_refused() -> None:
    with pytest.raises(Unusable):
        FollowingStore(SimFiles())


def test_flags_that_the_writer_has_set_leave_memory() -> None:
    """A reader remembers deletes of sealed records until it finds them in the file."""
    files, writer = begun()
    writer.append(1, b"one", b"two", b"three")
    writer.seal(1)
    store, reader = following(files, batch(writer))
    writer.delete(1, 1, 2)
    store.follow(reader.apply, batch(writer), 1 << 20)
    assert store.settle_flags(10) == 0

    writer.store.sync()
    writer.store.flip()

    assert store.settle_flags(10) == 1
    assert store.settle_flags(10) == 0
    assert reader.content() == writer.content()


def test_a_follower_begins_at_the_newest_checkpoint() -> None:
    """As a start does, with the log behind it alone."""
    files, writer = begun()
    writer.append(1, b"one", b"two")
    writer.checkpoint()
    writer.append(1, b"three")

    store, reader = following(files, batch(writer))

    assert store.batch == batch(writer)
    assert reader.content() == writer.content()


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        FollowingStore(OsFiles(tmp_path / "none"))


def two_files() -> tuple[SimFiles, Ledger, FollowingStore, Ledger]:
    """A follower at the end of the first batch; behind it the writer ended the file and began another."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    writer.append(1, b"one")
    writer.store.sync()
    writer.store.rotate()
    writer.append(1, b"two")
    writer.store.sync()
    return files, writer, store, reader


def spoil(files: SimFiles, name: str, at: int) -> None:
    """In the file itself: who has it open reads that."""
    files.inodes[name].cache[at] ^= 1


@pytest.mark.parametrize(
    ("number", "at", "says"),
    [
        (1, PAGE + SECTOR + 40, "the file does not follow batch 1"),
        (2, 40, "the header of the log does not verify"),
        (2, PAGE + 40, "was written and does not verify"),
    ],
    ids=["the next batch", "the next file", "the first batch of the next file"],
)
def test_damage_ahead_of_a_follower_is_told_with_its_place(number: int, at: int, says: str) -> None:
    """It does not pass over a batch, in whichever file that stands."""
    files, writer, store, reader = two_files()
    spoil(files, log_name(number), at)

    with pytest.raises(Corrupt, match=says):
        store.follow(reader.apply, batch(writer), 1 << 20)


def test_damage_at_the_end_of_the_log_is_told_with_its_place() -> None:
    """There is no next file yet, and that is not what is wrong."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    writer.append(1, b"one")
    spoil(files, log_name(1), PAGE + SECTOR + 40)

    with pytest.raises(Corrupt, match="batch 2 was written and does not verify") as told:
        store.follow(reader.apply, batch(writer), 1 << 20)
    assert log_name(1) in str(told.value)


def test_a_batch_that_stands_where_another_should_is_not_applied() -> None:
    """It verifies by itself; its number and the digest that it names say that it is not the next."""
    files, writer = begun()
    store, reader = following(files, batch(writer))
    name = log_name(1)
    data = files.tree()[name]
    first = data[PAGE : PAGE + SECTOR]
    files.put(name, data[: PAGE + SECTOR] + first + data[PAGE + 2 * SECTOR :])

    with pytest.raises((Corrupt, FileNotFoundError)):
        store.follow(reader.apply, batch(writer) + 1, 1 << 20)

    assert reader.content() == writer.content()


def test_a_segment_that_was_let_go_serves_those_who_read_it(tmp_path: Path) -> None:
    """Its file may be unlinked; it is closed with its last reader, and not before."""
    root = OsFiles(tmp_path)
    writer = Ledger(None)
    writer.store = DiskStore(root, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    writer.store.recover(writer)
    writer.create(1)
    writer.append(1, b"one", b"two")
    writer.seal(1)
    store = FollowingStore(OsFiles(tmp_path))
    reader = Ledger(store)
    store.begin(reader, batch(writer))
    expected = reader.content()
    [(ref, _)] = reader.topics[1].runs

    store.let_go([ref.segment])
    (tmp_path / segment_name(ref.segment)).unlink()

    assert reader.content() == expected
    held = open_files(tmp_path)
    store.close()
    assert open_files(tmp_path) < held
    writer.store.close(None)


def open_files(root: Path) -> int:
    """How many descriptors of files below a directory this process has."""
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.path.realpath(link).startswith(str(root)) for link in links)
