"""Taking a backup: what the place lacks is copied, verified as it is on the disk, and named last.

Owns the order of writes to the place.  Invariants: a name in the place stands for bytes that are
durable and were compared with their digests.  A backup gets its name after everything that it needs,
so a backup that was interrupted leaves those before it whole, and segments that the next one uses.
"""

import zlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from topics.backup.catalog import Catalog
from topics.backup.layout import (
    CHUNK_BYTES,
    PARTS_OFFSET,
    FilePart,
    LogPart,
    Manifest,
    SegmentPart,
    copy_name,
    encoded,
    read_manifest,
    require_parts,
)
from topics.backup.point import Moved, Point, read_point
from topics.backup.proof import prove
from topics.backup.view import view
from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.records import Buffer
from topics.store import identity, segment
from topics.store.files import File, Files, publish_with, read_at_most, read_whole, write_all
from topics.store.inspect import run_damages
from topics.store.layout import (
    IDENTITY_NAME,
    SEGMENT_HEADER,
    SEGMENT_HEADERS,
    SEGMENT_MAGIC,
    Digest,
    digest,
    numbers,
    segment_name,
    version_of,
)

ATTEMPTS: Final = 20
FLAGS_LEVEL: Final = 1
"""Flags are long stretches of equal bytes: more effort hardly makes them smaller."""


def take(
    source: Files,
    target: Files,
    *,
    keep: int | None = None,
    progress: Callable[[int], None] = lambda copied_bytes: None,
) -> tuple[Manifest, list[int]]:
    """*Blocking.* Add a backup of a data directory to a place; the directory is not changed, and a
    server may be using it.

    Args:
        keep: Remove all but so many of the newest backups, once this one is durable.
        progress: Called with the number of bytes copied since the last call.

    Returns:
        The backup, and the numbers of those removed.

    Raises:
        Unusable: The source is no data directory, or the place holds something else or is in use.
        Corrupt: Something in the source does not verify; the place has no new backup.
        OSError: The place cannot be written, for example for want of space.
    """
    try:
        source.prepare(create=False)
    except OSError as error:
        raise Unusable(source.path, error.strerror or str(error)) from error
    known = identity.read(source)
    if known is None:
        raise Unusable(source.path, "not a data directory of topics")
    catalog = Catalog(target)
    catalog.enter(create=True)
    catalog.require(known.instance.hex(), source.path)
    manifest = _Taking(source, target, catalog, known, progress).run()
    removed = catalog.keep(keep) if keep is not None else []
    catalog.sweep()
    return manifest, removed


class _Taking:
    def __init__(
        self,
        source: Files,
        target: Files,
        catalog: Catalog,
        known: identity.Identity,
        progress: Callable[[int], None],
    ) -> None:
        self._source = source
        self._target = target
        self._catalog = catalog
        self._known = known
        self._identity = bytes(read_whole(source, IDENTITY_NAME))
        self._progress = progress
        self._read: dict[int, SegmentPart] = {}
        self._packed: dict[int, bytes] = {}
        self._copied_bytes: dict[int, int] = {}

    def run(self) -> Manifest:
        self._copy_early()
        for attempt in range(ATTEMPTS):
            self._read.clear()
            self._packed.clear()
            try:
                point = read_point(
                    self._source, self._known.instance, self._read_segment, seen=set()
                )
            except (Moved, Corrupt, FileNotFoundError) as error:
                # The server goes on meanwhile, and only a new beginning tells a file that it
                # retired from one that is missing.
                if attempt < ATTEMPTS - 1:
                    continue
                if isinstance(error, Corrupt):
                    raise
                raise _too_fast(self._source) from error
            try:
                return self._write(point)
            except Moved as error:
                if attempt == ATTEMPTS - 1:
                    raise _too_fast(self._source) from error
            finally:
                point.close()
        raise AssertionError("unreachable")

    def _copy_early(self) -> None:
        """Copy the bulk before the point: what is gone by then was not needed."""
        for number in numbers(self._source.names(), "seg"):
            try:
                self._read_segment(number)
            except (Corrupt, FileNotFoundError):
                continue

    # -- segments ------------------------------------------------------------------------------

    def _read_segment(self, number: int) -> None:
        """Copy a segment if the place lacks it, and read its flags.

        Raises:
            FileNotFoundError: It is gone.
            Corrupt: It does not verify.
        """
        name = segment_name(number)
        path = f"{self._source.path}/{name}"
        file = self._source.open(name)
        try:
            header = segment.read_header(file, path, number=number, instance=self._known.instance)
            named = _header_digest(file, path)
            copied = copy_name(number, named)
            if copied not in self._catalog.copies:
                self._copy(file, path, copied, header)
                self._copied_bytes[number] = header.file_bytes
            flags = segment.read_exact(file, path, header.flags_offset, header.flags_bytes)
        finally:
            file.close()
        packed = zlib.compress(flags, FLAGS_LEVEL)
        self._packed[number] = packed
        self._read[number] = SegmentPart(
            number=number,
            header_digest=named,
            size_bytes=header.file_bytes,
            flags_offset=header.flags_offset,
            flags_bytes=header.flags_bytes,
            flags_digest=digest(flags),
            flags=FilePart(0, len(packed), digest(packed)),
        )

    def _copy(self, file: File, path: str, name: str, header: segment.SegmentHeader) -> None:
        def write(copied: File) -> None:
            end = header.flags_offset + header.flags_bytes
            copied.allocate(header.file_bytes)
            # The flags are each backup's own; those of the copy stay zero.
            for lo, hi in ((0, header.flags_offset), (end, header.file_bytes)):
                for at in range(lo, hi, CHUNK_BYTES):
                    size = min(CHUNK_BYTES, hi - at)
                    write_all(copied, segment.read_exact(file, path, at, size), at)
                    self._progress(size)
            copied.sync()
            copied.forget_cache()
            require_whole(copied, path, header)

        publish_with(self._target, name, write)
        self._catalog.copies.add(name)

    # -- the backup file -----------------------------------------------------------------------

    def _write(self, point: Point) -> Manifest:
        manifest = Manifest(
            number=self._catalog.next_number,
            taken_s=self._source.now_s(),
            source=self._source.path,
            instance=self._known.instance.hex(),
            history=self._known.history.hex(),
            incarnation=point.incarnation,
            clean=point.clean,
            batch=point.position.batch,
            checkpoint=None,
            logs=[],
            segments=[],
            copied_bytes=sum(self._copied_bytes.get(number, 0) for number in point.segments),
        )
        publish_with(self._target, manifest.name, lambda file: self._fill(file, manifest, point))
        self._catalog.manifests[manifest.number] = manifest
        return manifest

    def _fill(self, file: File, manifest: Manifest, point: Point) -> None:
        """Write all parts, prove what they say together, and only then the manifest and header."""
        end = PARTS_OFFSET
        if point.checkpoint is not None:
            number, data = point.checkpoint
            part, end = _put(file, data, end)
            manifest.checkpoint = number, part
        for log in point.logs:
            part, end = self._put_log(file, log.file, log.used, end)
            manifest.logs.append(LogPart(log.number, log.size_bytes, part))
        for number in point.segments:
            read = self._read[number]
            part, end = _put(file, self._packed[number], end)
            manifest.segments.append(msgspec.structs.replace(read, flags=part))
        file.sync()
        file.forget_cache()
        require_parts(file, f"{self._target.path}/{manifest.name}", manifest)
        found = prove(view(self._target, manifest, file, self._identity))
        manifest.topics, manifest.records = found.topics, found.records
        header, body = encoded(manifest, end)
        write_all(file, body, end)
        write_all(file, header, 0)
        file.sync()
        file.forget_cache()
        path = f"{self._target.path}/{manifest.name}"
        if read_manifest(file, path, manifest.number) != manifest:
            raise Corrupt(path, end, "the manifest was not written as it is")

    def _put_log(self, file: File, log: File, used: int, end: int) -> tuple[FilePart, int]:
        start, seen = end, Digest()
        for at in range(0, used, CHUNK_BYTES):
            try:
                data = read_at_most(log, min(CHUNK_BYTES, used - at), at)
            except FileNotFoundError:
                raise Moved from None  # an open file of another machine holds nothing there
            write_all(file, data, end)
            seen.update(data)
            end += len(data)
            self._progress(len(data))
        return FilePart(start, end - start, seen.value), end


def _too_fast(source: Files) -> Unusable:
    return Unusable(source.path, "it changes faster than it is read")


def _put(file: File, data: Buffer, end: int) -> tuple[FilePart, int]:
    write_all(file, data, end)
    return FilePart(end, len(data), digest(data)), end + len(data)


def _header_digest(file: File, path: str) -> int:
    """The digest that ends the header, which is known to verify."""
    data = segment.read_exact(file, path, 0, SEGMENT_HEADER.size)
    layout = SEGMENT_HEADERS[version_of(data, SEGMENT_MAGIC)]
    return int.from_bytes(data[layout.size - 8 : layout.size], "little")


def require_whole(file: File, path: str, header: segment.SegmentHeader) -> None:
    """*Blocking.* Compare every byte of a segment but its flags with its digest.  Raises Corrupt."""
    table: Any = segment.read_table(file, path, header)
    for row in table:
        for damage in run_damages(file, path, row):
            raise damage
    for damage in segment.more_damages(file, path, header):
        raise damage
