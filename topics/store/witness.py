"""The witness: how far the log had been durable, noted beside it after each sync.

A batch names the batches before it that were durable, so nothing in the log vouches for its last
ones, and where those are wiped the log looks as if it had ended earlier.  The note does.  It stands
in the lock file and is not synced: it survives a kill, and a power loss takes it back to an earlier
one.  Invariant: it never names a batch before a sync of that batch has succeeded, so an old note is
as true as a new one, and no start waits for it.

A start that refuses a log shorter than the note refuses no healthy directory.  Numbers of batches grow
along one history, and no start gives out again one that was durable: what it cuts as torn lies behind
the batches that verify, so behind every synced one.  A failed sync is followed by no note.  A process
begins at the end that its start has synced, so its first note is above all earlier ones.  A repair that
gives up durable batches, and a restore, begin another history, whose notes are other ones.
"""

from contextlib import suppress

from topics.protocol.model.ports import SyncedFile
from topics.store.files import File, Files, read_whole, write_all
from topics.store.layout import (
    FORMAT_VERSION,
    LOCK_NAME,
    VERSIONS,
    WITNESS,
    WITNESS_MAGIC,
    header_holds,
    seal_header,
)


def read(files: Files, history: bytes) -> int:
    """The number of the newest batch that is noted as durable in this history; 0 for none.

    A repair that cuts the log, and a restored backup, begin another history.
    """
    try:
        data = read_whole(files, LOCK_NAME)
    except OSError:
        return 0
    if bytes(data[:8]) != WITNESS_MAGIC or not header_holds(WITNESS, data):
        return 0
    _, version, _, _, noted_history, batch, _ = WITNESS.unpack(data[: WITNESS.size])
    return int(batch) if version in VERSIONS and noted_history == history else 0


class Witness:
    """Writes the note of one process."""

    def __init__(self, files: Files, history: bytes) -> None:
        self._files = files
        self._history = history
        self._noted = 0
        self._file: File | None = None
        self._shared: SyncedFile | None = None
        """The same, where another process can write into it."""

    def prepared(self, batch: int) -> tuple[bytes, SyncedFile] | None:
        """The note of a batch, and the file at whose begin another process writes it once the batch is
        durable; None where that is noted already, or no thread has noted anything yet."""
        if batch <= self._noted or self._shared is None:
            return None
        return self._text_of(batch), self._shared

    def noted(self, batch: int) -> None:
        """The other process has written what was prepared."""
        self._noted = max(self._noted, batch)

    def _text_of(self, batch: int) -> bytes:
        return seal_header(WITNESS, WITNESS_MAGIC, FORMAT_VERSION, 0, 0, self._history, batch)

    def note(self, batch: int) -> None:
        """Note that the log is durable through a batch.

        A note that cannot be written is left out: it is evidence for a start, and no write depends
        on it.
        """
        if batch <= self._noted:
            return
        self._noted = batch
        data = self._text_of(batch)
        with suppress(Exception):
            if self._file is None:
                self._file = file = self._files.open(LOCK_NAME, write=True)
                self._shared = file if isinstance(file, SyncedFile) else None
            write_all(self._file, data, 0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = self._shared = None
