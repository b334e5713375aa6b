"""Directories with content, for tests that damage them or make the disk fail."""

from sim.files import Fault, SimFiles

from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.ports import LogFollowers
from topics.store.layout import RESERVE_NAME
from topics.store.store import DiskStore

from .ledger import Content, Ledger

TEXTS = [b'{"$seq":%d,"data":"%s"}' % (seq, b"v" * (seq * 37)) for seq in range(1, 9)]


CORRUPT: Content = {-1: {}}


def small_directory(*, clean: bool = False, idle: bool = True) -> tuple[SimFiles, list[Content]]:
    """A directory with every kind of file in it, and its content after each synced write."""
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    store.recover(ledger)
    ledger.create(1)
    ledger.create(2)
    ledger.append(1, *TEXTS)
    ledger.append(2, *TEXTS[:3])
    ledger.checkpoint()
    ledger.append(1, *TEXTS[:2])
    ledger.delete(1, 2, 3)
    ledger.append(2, *TEXTS[4:])
    store.sync()
    store.flip()
    ledger.checkpoint()
    ledger.delete(2, 1, 1)
    ledger.append(1, b"last but one")
    store.sync()
    ledger.append(1, b"last")
    store.sync()
    if clean:
        ledger.stop()
    else:
        if idle:
            store.idle()
        store.close(None)
    return files, ledger.history


def outcome(files: SimFiles) -> Content | str:
    """What a start finds: all content, or the refusal; a run that cannot be read is marked."""
    tree = files.tree()
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    try:
        store.recover(ledger)
    except (Corrupt, Unusable) as error:
        assert files.tree() == tree, "a refusal changed the directory"
        return str(error)
    try:
        return ledger.content()
    except Corrupt as error:
        return str(error)
    finally:
        store.close(None)


def copy_of(files: SimFiles) -> SimFiles:
    copied = SimFiles()
    for name, data in files.tree().items():
        copied.put(name, data)
    return copied


def flipped(files: SimFiles, name: str, at: int, bit: int) -> SimFiles:
    copied = copy_of(files)
    data = bytearray(copied.tree()[name])
    data[at] ^= 1 << bit
    copied.put(name, bytes(data))
    return copied


def many_files() -> tuple[SimFiles, Ledger]:
    """A process that has filled some log files, and was not stopped."""
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store.recover(ledger)
    ledger.create(1)
    while ledger.store.stats.rotations_total < 3:
        ledger.append(1, b"x" * 3000)
        ledger.store.sync()
    return files, ledger


def log_names(files: SimFiles) -> list[str]:
    return [name for name in files.names() if name.endswith(".wal") and name != RESERVE_NAME]


FILE = 64 << 10


def begun(files: SimFiles, followers: LogFollowers | None = None) -> Ledger:
    ledger = Ledger(None)
    store = ledger.store = DiskStore(
        files, wal_file_bytes=FILE, reserve_bytes=FILE, followers=followers
    )
    store.recover(ledger)
    ledger.create(1)
    ledger.append(1, b"first")
    store.sync()
    return ledger


def recovered(files: SimFiles) -> Ledger:
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    store.recover(ledger)
    return ledger


def fail_next(files: SimFiles, ahead: int = 1, **fault: object) -> None:
    files.faults[files.calls + ahead] = Fault(**fault)  # type: ignore[arg-type]


def interesting(data: bytes) -> list[int]:
    """Offsets of all bytes, but only a few of long runs of zeros."""
    used = [at for at in range(len(data)) if data[max(0, at - 8) : at + 9].strip(b"\0")]
    zeros = [at for at in range(0, len(data), 997) if data[at] == 0]
    return sorted({*used, *zeros})


def second_boot_is_believed(files: SimFiles) -> bool:
    """Whether a start trusts the machine's page cache of the log."""
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    return store.recover(Ledger(None)).same_boot
