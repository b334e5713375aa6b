"""How far the log had been durable, noted beside it."""

import errno
import random

import pytest
from sim.files import Fault, SimFiles

from topics.store import witness
from topics.store.layout import LOCK_NAME
from topics.store.witness import Witness

from .disks import begun, outcome, recovered

HISTORY = b"eight by"


def directory() -> SimFiles:
    files = SimFiles()
    files.prepare(create=True)
    assert files.lock()
    return files


def test_a_note_is_read_as_it_was_written() -> None:
    """The newest one counts; a smaller number is older, and is not noted."""
    files = directory()
    noting = Witness(files, HISTORY)
    assert witness.read(files, HISTORY) == 0
    for batch in (3, 7, 5, 7):
        noting.note(batch)
    noting.close()

    assert witness.read(files, HISTORY) == 7


def test_a_note_counts_in_its_own_history() -> None:
    """A log that a repair has cut, and a restored one, give the numbers of batches again."""
    files = directory()
    Witness(files, HISTORY).note(7)

    assert witness.read(files, b"another!") == 0


@pytest.mark.parametrize("at", range(40))
def test_a_damaged_note_says_nothing(at: int) -> None:
    """It is evidence; where it does not verify there is none."""
    files = directory()
    Witness(files, HISTORY).note(7)
    data = bytearray(files.tree()[LOCK_NAME])
    data[at] ^= 1
    files.put(LOCK_NAME, bytes(data))

    assert witness.read(files, HISTORY) == 0
    files.put(LOCK_NAME, bytes(data[:at]))
    assert witness.read(files, HISTORY) == 0


def test_an_unreadable_note_says_nothing() -> None:
    files = directory()
    Witness(files, HISTORY).note(7)
    files.unreadable.add(LOCK_NAME)

    assert witness.read(files, HISTORY) == 0


def test_a_note_that_cannot_be_written_is_left_out() -> None:
    """No write of a client depends on it: the log goes on, and a start reads it."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    files.note_fault = Fault(errno.EIO)

    assert ledger.store.sync()

    assert not ledger.store.read_only
    after = files.kill()
    assert witness.read(after, bytes.fromhex(ledger.store.instance_id)) < 3
    assert recovered(after).content() == ledger.history[-1]


def test_a_note_follows_the_sync_that_it_tells_of() -> None:
    """Whatever a power loss takes, no note is newer than the log: no start is refused for it."""
    for seed in range(40):
        files = SimFiles(seed)
        ledger = begun(files)
        for _ in range(seed % 5):
            ledger.append(1, b"more")
            ledger.store.sync()
        ledger.append(1, b"not synced")
        after = files.cut(random.Random(seed), harsh=seed % 2 == 1)

        assert not isinstance(outcome(after), str)


def test_a_note_that_another_process_writes_is_that_of_this_one() -> None:
    """It is prepared once a thread has opened the file, for a batch that is not noted yet; and where the
    other process died, a thread writes it."""
    files = directory()
    noting = Witness(files, HISTORY)
    assert noting.prepared(3) is None
    noting.note(3)
    assert noting.prepared(3) is None

    prepared = noting.prepared(4)
    assert prepared is not None
    noting.note(4)
    assert witness.read(files, HISTORY) == 4
    assert files.tree()[LOCK_NAME] == prepared[0]

    noting.noted(9)
    noting.note(8)
    assert witness.read(files, HISTORY) == 4
    noting.close()
    assert noting.prepared(10) is None
