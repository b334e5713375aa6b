"""Checkpoints: complete or absent, two generations, and the choice among them."""

import errno
from collections.abc import Iterator

import pytest
from sim.files import Cut, SimFiles

from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import Checkpoint
from topics.store.checkpoint import WRITE_BYTES, Checkpoints, Stored, decode, write
from topics.store.files import read_whole
from topics.store.layout import (
    CHECKPOINT_HEADER,
    CHECKPOINT_MAGIC,
    checkpoint_name,
    seal_header,
)
from topics.store.store import DiskStore
from topics.store.wal import Log, LogPosition

from .disks import begun, fail_next, flipped, outcome, recovered, small_directory
from .ledger import Ledger, Topic


def test_a_damaged_checkpoint_falls_back_to_the_one_before() -> None:
    """Two generations are kept, and the log that the older one needs. (F14)"""
    files, history = small_directory()
    older, newer = sorted(name for name in files.names() if name.endswith(".ckpt"))

    one_gone = flipped(files, newer, CHECKPOINT_HEADER.size + 3, 1)
    assert outcome(one_gone) == history[-1]

    both_gone = flipped(flipped(files, newer, 3, 1), older, 3, 1)
    assert newer in str(outcome(both_gone))


@pytest.mark.parametrize(
    ("clean", "says"),
    [
        (True, "the log from there to a clean stop, so nothing is lost"),
        (False, "the log from there as far as it verifies"),
    ],
)
def test_a_checkpoint_that_was_passed_over_is_told(clean: bool, says: str) -> None:
    """A start that skips a checkpoint logs that nothing is lost only if the mark of a clean stop
    proves it."""
    files, history = small_directory(clean=clean)
    newest = max(name for name in files.names() if name.endswith(".ckpt"))
    damaged = flipped(files, newest, 3, 1)
    store = DiskStore(damaged, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger = Ledger(None)
    ledger.store = store

    recovery = store.recover(ledger)

    assert ledger.content() == history[-1]
    [note] = recovery.notes
    assert newest in note
    assert note.endswith(f"the checkpoint before it was used, and {says}: check the disk")
    store.close(None)


@pytest.mark.parametrize("ahead", range(1, 6))
def test_a_checkpoint_that_fails_may_be_tried_again(ahead: int) -> None:
    """A checkpoint that found no space changes nothing; the log still has all events."""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    boundary = ledger.store.rotate()
    ledger.store.sync()
    fail_next(files, ahead, error=errno.ENOSPC)

    with pytest.raises(OSError):
        ledger.store.checkpoint(ledger.image(), boundary)
    assert recovered(files.kill()).content() == ledger.history[-1]
    ledger.store.checkpoint(ledger.image(), boundary)

    assert recovered(files.kill()).content() == ledger.history[-1]


INSTANCE = b"\x01" * 8
AT = LogPosition(3, 4096, 17, 0xABCD)


def saved(files: SimFiles, times: int = 1, *, clean: bool = False) -> Checkpoints:
    made = Checkpoints(files, INSTANCE)
    for n in range(1, times + 1):
        position = LogPosition(n, 4096, n, n)
        made.save(Checkpoint(n, 1, []), position, incarnation=2, next_segment=9, clean=clean)
        made.retire()
    return made


@pytest.mark.parametrize("clean", [False, True])
def test_an_image_and_what_is_said_about_it_come_back(clean: bool) -> None:
    """The position in the log, the incarnation and the clean mark are stored with the image."""
    files = SimFiles()
    stored = Stored(5, AT, incarnation=2, next_segment=9, clean=clean)
    write(files.create("made"), Checkpoint(1234, 7, []), stored, INSTANCE)

    image, found = decode(read_whole(files, "made"), 5, INSTANCE)

    assert (image.now_ms, image.next_topic_id, image.topics) == (1234, 7, [])
    assert found == stored


def test_no_bit_of_a_checkpoint_may_be_another() -> None:
    """Header and image are both under a digest."""
    files = SimFiles()
    write(files.create("made"), Checkpoint(1234, 7, []), Stored(5, AT, 2, 9, True), INSTANCE)
    made = bytes(read_whole(files, "made"))

    for bit in range(8 * len(made)):
        other = bytearray(made)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            decode(memoryview(other), 5, INSTANCE)


def test_a_checkpoint_is_believed_in_its_place_alone() -> None:
    """A checkpoint with another number, or of another data directory, is refused."""
    files = SimFiles()
    write(files.create("made"), Checkpoint(1234, 7, []), Stored(5, AT, 2, 9, True), INSTANCE)
    made = read_whole(files, "made")

    with pytest.raises(ValueError, match="number 5"):
        decode(made, 6, INSTANCE)
    with pytest.raises(ValueError, match=INSTANCE.hex()):
        decode(made, 5, b"\x02" * 8)


def test_two_generations_stay_and_the_log_that_the_older_needs() -> None:
    """A start takes the newest; older files than the last two are unlinked."""
    files = SimFiles()
    made = saved(files, 4)

    assert files.names() == [checkpoint_name(3), checkpoint_name(4)]
    assert made.oldest_log == 3
    loaded = Checkpoints(files, INSTANCE).load()
    assert loaded is not None
    assert loaded[1].position == LogPosition(4, 4096, 4, 4)


def test_with_one_checkpoint_the_log_is_kept_from_its_beginning() -> None:
    """If the only checkpoint were damaged, the log would have everything."""
    assert saved(SimFiles()).oldest_log == 1


def test_where_there_never_was_one_there_is_none() -> None:
    """No checkpoint is no damage; checkpoints of which none verifies are."""
    files = SimFiles()
    assert Checkpoints(files, INSTANCE).load() is None

    saved(files)
    with pytest.raises(Corrupt, match=checkpoint_name(1)):
        Checkpoints(files, b"\x02" * 8).load()


def test_a_number_is_not_given_out_twice() -> None:
    """The number of a damaged checkpoint is not reused."""
    files = SimFiles()
    saved(files, 2)
    files.put(checkpoint_name(7), b"damaged")
    made = Checkpoints(files, INSTANCE)
    made.load()

    made.save(Checkpoint(1, 1, []), AT, incarnation=3, next_segment=9, clean=False)

    assert checkpoint_name(8) in files.names()


def cut(*_: object) -> None:
    raise Cut


def nothing_unsynced(files: SimFiles) -> SimFiles:
    """What is found after a power loss that took every write without a sync."""
    found = files.kill()
    for inode in found.inodes.values():
        inode.dirty.clear()
        inode.forget()
    return found


@pytest.mark.parametrize("how", ["checkpoint", "clean stop"])
def test_a_checkpoint_names_a_batch_that_is_durable(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The idle mark that may stand in front of its position, and that no sync is made for otherwise,
    is durable first: else a power loss takes a batch out of the log that the checkpoint before it
    needs, and damage to the newer one could not be borne. (F14)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.checkpoint()
    ledger.append(1, b"second")
    ledger.store.sync()
    ledger.seal(1)
    ledger.store.sync()
    ledger.store.idle()
    if how == "checkpoint":
        boundary = ledger.store.rotate(stay=True)
        ledger.store.checkpoint(ledger.image(), boundary)
    else:
        monkeypatch.setattr(Log, "end", cut)
        with pytest.raises(Cut):
            ledger.stop()
        monkeypatch.undo()
    after = recovered(nothing_unsynced(files)).recovered()
    after.append(1, b"third")
    after.store.sync()
    end = after.store._files
    newest = checkpoint_name(2)
    assert newest in end.names()

    assert outcome(flipped(end.kill(), newest, 0, 0)) == after.content()


class InPieces:
    """An image that comes in pieces, as that of many topics does."""

    def __init__(self, image: Checkpoint, size: int) -> None:
        raw = b"".join(image.pieces())
        self._pieces = [raw[at : at + size] for at in range(0, len(raw), size)]

    def pieces(self) -> Iterator[bytes]:
        yield from self._pieces


def test_a_large_image_is_written_in_parts_and_read_as_one() -> None:
    """Small pieces are joined up to the size of a write, so that memory holds one part of them.
    (FORMAT.md)"""
    files, ledger = SimFiles(), Ledger(None)
    for n in range(1, 3000):
        ledger.topics[n] = Topic(head=n)
    image = ledger.image()
    stored = Stored(1, LogPosition(1, 4096, 7, 9), incarnation=1, next_segment=1, clean=False)
    file = files.create("image")

    write(file, InPieces(image, 1000), stored, b"instance")

    body = CHECKPOINT_HEADER.size, file.size() - CHECKPOINT_HEADER.size
    assert body[1] > 3 * WRITE_BYTES
    assert len(files.log) == 1 + body[1] // WRITE_BYTES + 1 + 1
    found, again = decode(read_whole(files, "image"), 1, b"instance")
    assert again == stored
    assert [topic.head_seq for topic in found.topics] == list(range(1, 3000))


def test_a_header_that_is_sound_and_of_another_kind_is_refused() -> None:
    """The digest of a header says that it is whole, and not what it is the header of. (FORMAT.md)"""
    files, _ = small_directory()
    name = max(name for name in files.names() if name.endswith(".ckpt"))
    known = files.tree()[name]
    fields = CHECKPOINT_HEADER.unpack(known[: CHECKPOINT_HEADER.size])[1:-1]
    for magic, version in ((b"NOTACKPT", fields[0]), (CHECKPOINT_MAGIC, 99)):
        header = seal_header(CHECKPOINT_HEADER, magic, version, *fields[1:])

        with pytest.raises(ValueError, match="is not that of a checkpoint"):
            decode(memoryview(header + known[CHECKPOINT_HEADER.size :]), 1, b"")
