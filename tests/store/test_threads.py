"""One thread writes, one syncs, one seals and flips flags: as the server runs them."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from sim.files import SimFiles

from topics.protocol.model.codec import Frames
from topics.store.files import OsFiles
from topics.store.store import DiskStore

from .ledger import HotRun, Ledger, entry_of


def test_writing_syncing_and_sealing_go_on_side_by_side(tmp_path: Path) -> None:
    """Rotations, preparations, syncs and seals of different threads leave one whole log."""
    store = DiskStore(OsFiles(tmp_path), wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger = Ledger(store)
    store.recover(ledger)
    ledger.create(1)
    done = threading.Event()
    synced: list[int] = []
    sealed: list[bytes] = []

    def sync() -> None:
        while not done.is_set():
            synced.append(store.sync())

    def seal() -> None:
        turn = 0
        while not done.is_set() and turn < 100:
            turn += 1
            [ref] = store.seal([entry_of(HotRun(1, [b"%d" % turn, b"other"]))])
            run = store.open_run(ref, 1)
            run.delete(np.array([1]))
            store.flip()
            assert run.flags.tolist() == [0, 0xD5]
            sealed.append(bytes(run.read_blocking([(0, 1)])[0]))

    threads = [threading.Thread(target=sync), threading.Thread(target=seal)]
    for thread in threads:
        thread.start()
    for turn in range(1500):
        ledger.append(1, b"%d" % turn * (turn % 300 + 1))
        if turn % 100 == 99:
            store.rotate()
        if turn % 7 == 0:
            store.idle()
    done.set()
    for thread in threads:
        thread.join()
    assert synced == sorted(synced)
    assert sealed == [b"%d" % turn for turn in range(1, len(sealed) + 1)]
    assert store.sync() == store.written_lsn == 1501
    store.close(None)

    again = DiskStore(OsFiles(tmp_path))
    found = Ledger(again)
    recovery = again.recover(found)
    assert (recovery.events, recovery.torn_bytes) == (1501, 0)
    assert found.content() == ledger.history[-1]
    again.close(None)


def test_a_delete_during_a_flip_is_never_unseen(tmp_path: Path) -> None:
    """Between a flag leaving memory and reaching the file no reader sees the record again."""
    store = DiskStore(OsFiles(tmp_path), wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    store.recover(Ledger(store))
    count = 600
    [ref] = store.seal([entry_of(HotRun(1, [b"x"] * count))])
    run = store.open_run(ref, 1)
    done = threading.Event()

    def flip() -> None:
        while not done.is_set():
            store.sync()
            store.flip()

    thread = threading.Thread(target=flip)
    thread.start()
    for row in range(count):
        run.delete(np.array([row]))
        store.write(Frames())
        assert run.dead == row + 1
        assert int(np.count_nonzero(run.flags)) == row + 1
    done.set()
    thread.join()
    store.sync()
    store.flip()

    assert run.dead == count
    assert run._heap is None
    store.close(None)


class Switching:
    """A lock after whose every release another thread runs to its end, unless that thread would
    wait for another lock of these."""

    held = 0

    def __init__(self, lock: Any, other: Callable[[], object]) -> None:
        self._lock = lock
        self._other = other

    def __enter__(self) -> None:
        Switching.held += 1
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()
        if Switching.held == 1:
            self._other()
        Switching.held -= 1


def test_a_sync_at_any_moment_of_a_write_knows_what_it_covers() -> None:
    """A sync covers a write as a whole or not at all: lsn, batch and whether anything is left to be
    synced. Otherwise a sync in between took the batch along and left its lsn behind, and clients
    that waited for it got no answer. (§0.10)"""
    store = DiskStore(SimFiles(), wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger = Ledger(store)
    store.recover(ledger)
    log = store._log

    def sync() -> None:
        if not log._syncing.locked():
            store.sync()

    for name in ("_writing", "_state"):
        setattr(log, name, Switching(getattr(log, name), sync))

    ledger.create(1)
    ledger.append(1, b"x")

    assert store.sync() == store.written_lsn == 2
