"""Restoring: a new data directory from a backup, and checking what a place holds.

Owns the order of writes to the new directory.  Invariants: the directory gets its identity last, and
no server starts without it.  Everything is compared with its digests as it is on the disk, and what
lives is counted against the log, before that.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from topics.backup.catalog import Catalog
from topics.backup.layout import CHUNK_BYTES, Manifest, SegmentPart, require_parts
from topics.backup.proof import Living, prove
from topics.backup.take import require_whole
from topics.backup.view import Held, Overlay, flags_of, view
from topics.protocol.model.errors import CannotRead, Corrupt, InUse, Unusable
from topics.store import identity, segment
from topics.store.files import File, Files, publish, publish_with, read_at_most, write_all
from topics.store.identity import Identity, encode
from topics.store.layout import FAILED_NAME, IDENTITY_NAME, NAME, digest, segment_name

STARTS_LOST: Final = 4096
"""Starts that the lost part of the history may have had: the restored one begins behind them, so
that no lease of the two is the same."""


Link: TypeAlias = Callable[[str, str], bool]
"""*Blocking.* Have a copy in the place stand in the target, too, under another name, without copying
it; False: that cannot be, and nothing was done.  The copy gets the delete flags of the backup, so that
nothing but this restore may use the place from then on."""


def _no_link(copy: str, name: str) -> bool:
    return False


def restore(
    place: Files,
    number: int | None,
    target: Files,
    *,
    goes_on: bool = False,
    link: Link = _no_link,
    progress: Callable[[int], None] = lambda copied_bytes: None,
) -> tuple[Manifest, Living]:
    """*Blocking.* Make a data directory of a backup, in a history of its own.

    Args:
        number: None: the newest.
        target: A directory that is empty or does not exist.
        goes_on: Its history is that of the backup, and nothing is lost: what followed the point is in
            the log that nodes of a cluster share.
        link: As `Link` says.
        progress: Called with the number of bytes copied since the last call.

    Returns:
        The backup, and what lives in the directory.

    Raises:
        Unusable: There is no such backup, or the target is in use or not empty.
        Corrupt: Something of the backup does not verify; the target has no identity then.
        OSError: The target cannot be written.
    """
    catalog = Catalog(place)
    catalog.enter(create=False)
    manifest = catalog.pick(number)
    _enter(target)
    made = _same_identity(manifest) if goes_on else identity_of(manifest, target.entropy(8))
    file = place.open(manifest.name)
    try:
        require_parts(file, f"{place.path}/{manifest.name}", manifest)
        source = view(place, manifest, file, made)
        parts = {segment_name(part.number): part for part in manifest.segments}
        for name in source.names():
            part = parts.get(name)
            if part is not None and link(part.copy, name):
                _set_flags(file, f"{place.path}/{manifest.name}", target, name, manifest, part)
            elif name != IDENTITY_NAME:
                _copy(source, target, name, manifest, progress)
    finally:
        file.close()
    # What followed the point is lost unless the server had been stopped, and neither the clock nor
    # the machine tells: the mark makes the first start say so, wherever it is.
    if not goes_on:
        publish(target, FAILED_NAME, b"")
    living = prove(_unfinished(target, made))
    publish(target, IDENTITY_NAME, made)
    return manifest, living


def _enter(target: Files) -> None:
    try:
        target.prepare(create=True)
        held = [name for name in target.names() if name not in identity.IGNORED]
        if held:
            raise Unusable(target.path, f'the directory is not empty: it holds "{held[0]}"')
        if not target.lock():
            raise InUse(target.path)
    except OSError as error:
        raise Unusable(target.path, error.strerror or str(error)) from error


def identity_of(manifest: Manifest, history: bytes) -> bytes:
    """The identity of a restored directory."""
    least = manifest.incarnation + STARTS_LOST
    known = Identity(0, bytes.fromhex(manifest.instance), history, least)
    return encode(known)


def _same_identity(manifest: Manifest) -> bytes:
    instance, history = bytes.fromhex(manifest.instance), bytes.fromhex(manifest.history)
    return encode(Identity(0, instance, history, manifest.incarnation))


def _set_flags(
    backup: File, path: str, target: Files, name: str, manifest: Manifest, part: SegmentPart
) -> None:
    """Give a segment that is verified its delete flags.  Raises Corrupt."""
    file = target.open(name, write=True)
    try:
        write_all(file, flags_of(backup, path, part, file.size()), part.flags_offset)
        file.sync()
        file.forget_cache()
        _require_flags(file, f"{target.path}/{name}", manifest, part)
    finally:
        file.close()


def _copy(
    source: Overlay,
    target: Files,
    name: str,
    manifest: Manifest,
    progress: Callable[[int], None],
) -> None:
    file = source.open(name)

    def write(made: File) -> None:
        # A log file has its size without its bytes: the rest reads as zero.
        made.allocate(file.size())
        for at in range(0, file.size(), CHUNK_BYTES):
            data = read_at_most(file, min(CHUNK_BYTES, file.size() - at), at)
            if bytes(data).strip(b"\0"):
                write_all(made, data, at)
            progress(len(data))
        made.sync()
        made.forget_cache()
        match = NAME.fullmatch(name)
        if match is not None and match[2] == "seg":
            _require_segment(made, f"{target.path}/{name}", int(match[1]), manifest)

    try:
        publish_with(target, name, write)
    finally:
        file.close()


def _require_segment(file: File, path: str, number: int, manifest: Manifest) -> None:
    """Raises Corrupt: The segment does not verify, or its flags are not those of the backup."""
    [part] = [each for each in manifest.segments if each.number == number]
    require_whole(file, path, _require_flags(file, path, manifest, part))


def _require_flags(
    file: File, path: str, manifest: Manifest, part: SegmentPart
) -> segment.SegmentHeader:
    instance = bytes.fromhex(manifest.instance)
    header = segment.read_header(file, path, number=part.number, instance=instance)
    flags = segment.read_exact(file, path, header.flags_offset, header.flags_bytes)
    if digest(flags) != part.flags_digest:
        raise Corrupt(path, header.flags_offset, "the delete flags are not those of the backup")
    return header


def _unfinished(target: Files, made: bytes) -> Overlay:
    """The directory as it will be with its identity."""

    def opened(name: str) -> Callable[[], File]:
        return lambda: target.open(name)

    files: dict[str, Callable[[], File]] = {
        name: opened(name) for name in target.names() if NAME.fullmatch(name)
    }
    files[IDENTITY_NAME] = lambda: Held(IDENTITY_NAME, made)
    return Overlay(target, target.path, files)


def verify(
    place: Files,
    number: int | None = None,
    *,
    progress: Callable[[int], None] = lambda checked_bytes: None,
) -> tuple[list[Manifest], list[Corrupt]]:
    """*Blocking.* Read every byte of a backup, or of all, and compare it; changes nothing.

    Returns:
        The backups that were looked at, and all damage that was found.

    Raises:
        Unusable: There is no backup, or none with this number.
    """
    catalog = Catalog(place)
    catalog.enter(create=False)
    wanted = list(catalog.manifests.values())
    damages = list(catalog.damaged)
    if number is not None:
        try:
            wanted, damages = [catalog.pick(number)], []
        except Corrupt as damage:
            return [], [damage]
    checked: set[str] = set()
    for manifest in wanted:
        damages += _copies_of(place, manifest, checked, progress)
        file = place.open(manifest.name)
        try:
            require_parts(file, f"{place.path}/{manifest.name}", manifest)
            prove(view(place, manifest, file, identity_of(manifest, bytes(8))))
        except Corrupt as damage:
            damages.append(damage)
        except OSError as error:
            damages.append(CannotRead(f"{place.path}/{manifest.name}", 0, error))
        finally:
            file.close()
    return wanted, damages


def _copies_of(
    place: Files, manifest: Manifest, checked: set[str], progress: Callable[[int], None]
) -> list[Corrupt]:
    """Damage of the copies that a backup needs, but for those looked at before."""
    damages: list[Corrupt] = []
    instance = bytes.fromhex(manifest.instance)
    for part in manifest.segments:
        if part.copy in checked:
            continue
        checked.add(part.copy)
        path = f"{place.path}/{part.copy}"
        try:
            file = place.open(part.copy)
        except OSError as error:
            damages.append(CannotRead(path, 0, error))
            continue
        try:
            header = segment.read_header(file, path, number=part.number, instance=instance)
            require_whole(file, path, header)
            progress(header.file_bytes)
        except Corrupt as damage:
            damages.append(damage)
        finally:
            file.close()
    return damages
