"""The identity of a data directory: the lock, and the file that names format and instance.

Owns the decision whether a directory may be used.  Invariant: a directory that is foreign, of a
newer format, or in use is not changed by a single byte.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from topics.protocol.model.errors import InUse, Unusable
from topics.store.files import Files, discard, publish, read_whole, write_all
from topics.store.layout import (
    FAILED_NAME,
    FORMAT_VERSION,
    HISTORY,
    HISTORY_VERSION,
    IDENTITY,
    IDENTITY_MAGIC,
    IDENTITY_NAME,
    IDENTITY_TEMP,
    LOCK_NAME,
    NAME,
    RESERVE_NAME,
    TEMP,
    header_holds,
    seal_header,
)

IGNORED: Final = frozenset({"lost+found", LOCK_NAME})


def enter(files: Files) -> None:
    """Open and lock the directory.

    Raises:
        Unusable: It is no data directory of topics, or in use.
    """
    try:
        files.prepare(create=True)
        names = files.names()
        _refuse_foreign(files, names)
        if not files.lock():
            raise InUse(files.path)
    except OSError as error:
        raise Unusable(files.path, error.strerror or str(error)) from error


def _refuse_foreign(files: Files, names: list[str]) -> None:
    if IDENTITY_NAME in names or _is_unfinished(names):
        return
    ours = [name for name in names if NAME.fullmatch(name)]
    if ours:
        raise Unusable(files.path, f"{IDENTITY_NAME} is missing beside {ours[0]}")
    others = [name for name in names if name not in IGNORED]
    if others:
        raise Unusable(files.path, f'not a data directory of topics: it holds "{others[0]}"')


def _is_unfinished(names: list[str]) -> bool:
    """Whether the directory holds only what an interrupted `found` leaves."""
    first = {IDENTITY_TEMP, RESERVE_NAME, FAILED_NAME, "0000000001.wal", "0000000002.wal"} | IGNORED
    temps = {name for name in names if TEMP.fullmatch(name)}
    return IDENTITY_TEMP in names and set(names) <= first | temps


@dataclass(frozen=True, slots=True)
class Identity:
    """What the identity of a directory says.

    Attributes:
        version: The newest format that a file of the directory may have.
        instance: 8 bytes, in the header of every file.
        history: 8 bytes, of which epochs are made: the instance, until a backup is restored.
        incarnation: No process of this directory has a smaller one.  A restore leaves out those that
            the lost history may have had, so that no lease of it is given again.
    """

    version: int
    instance: bytes
    history: bytes
    incarnation: int = 0


def read(files: Files) -> Identity | None:
    """The identity; None where the directory is new.

    Raises:
        Unusable: The format is newer, or the identity cannot be read.
    """
    path = f"{files.path}/{IDENTITY_NAME}"
    try:
        data = read_whole(files, IDENTITY_NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unusable(path, f"cannot be read: {error.strerror}") from error
    if len(data) < IDENTITY.size:
        raise Unusable(path, "the file is cut short")
    magic, version, _, _, instance, _ = IDENTITY.unpack(data[: IDENTITY.size])
    if magic != IDENTITY_MAGIC:
        raise Unusable(path, "not a data directory of topics")
    if version > FORMAT_VERSION and header_holds(IDENTITY, data):
        what = f"format {version} is newer than {FORMAT_VERSION}, which this version reads"
        raise Unusable(path, what)
    rest = data[IDENTITY.size :]
    names_history = version == HISTORY_VERSION or (version > HISTORY_VERSION and len(rest) > 0)
    is_whole = header_holds(HISTORY, rest) if names_history else True
    size = HISTORY.size if names_history else 0
    if not header_holds(IDENTITY, data) or len(rest) != size or not is_whole:
        raise Unusable(path, "the identity does not verify")
    if not names_history:
        return Identity(version, bytes(instance), bytes(instance))
    history, incarnation, _, _ = HISTORY.unpack(rest)
    return Identity(version, bytes(instance), bytes(history), incarnation)


def upgrade(files: Files) -> None:
    """Write the present format version into the identity, before the first file of that format: an
    earlier version of this program, which cannot read it, then refuses the directory.

    Raises:
        Unusable: The disk failed; the directory is unchanged.
    """
    known = read(files)
    assert known is not None
    if known.version >= FORMAT_VERSION:
        return
    try:
        publish(files, IDENTITY_NAME, encode(known))
    except OSError as error:
        what = f"cannot be brought to format {FORMAT_VERSION}: {error.strerror}"
        raise Unusable(files.path, what) from error


def encode(identity: Identity) -> bytes:
    """An identity of the present format; it names the history where that is not the instance's own."""
    first = seal_header(IDENTITY, IDENTITY_MAGIC, FORMAT_VERSION, 0, 0, identity.instance)
    if (identity.history, identity.incarnation) == (identity.instance, 0):
        return first
    return first + seal_header(HISTORY, identity.history, identity.incarnation, 0)


def found(files: Files, begin: Callable[[bytes], None], history: bytes | None = None) -> bytes:
    """Initialise a new directory; `begin` makes its first log file durable.

    The identity gets its final name last.  A directory with an identity therefore had a log, and a
    missing log is damage.  `history` is that of a cluster, whose nodes make the same epochs; without one
    the directory begins its own.  Until then the identity's temporary name marks the directory as
    unfinished: it is the first entry to be made durable, and the last to be removed when the next
    start begins anew.
    """
    for name in files.names():
        if name not in IGNORED and name != IDENTITY_TEMP:
            discard(files, name)
    files.sync_dir()
    discard(files, IDENTITY_TEMP)
    instance = files.entropy(8)
    file = files.create(IDENTITY_TEMP)
    try:
        made = Identity(FORMAT_VERSION, instance, history or instance)
        write_all(file, encode(made), 0)
        file.sync()
    finally:
        file.close()
    files.sync_dir()
    begin(instance)
    files.rename(IDENTITY_TEMP, IDENTITY_NAME)
    files.sync_dir()
    return instance
