"""Input that becomes records: NDJSON, CSV, and what `topics read` prints.

Owns the parsing, and the offset at which an import can go on: after each record, `Lines.offset` is
the first byte that no record has taken.  Sends nothing.
"""

import csv
import hashlib
import os
import re
import select
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import BadGzipFile, GzipFile
from io import SEEK_END, BufferedReader, RawIOBase
from math import ceil, isfinite
from typing import Any, BinaryIO, Final, Literal, Protocol, cast

import msgspec

from topics.client.decoding import TOO_DEEP, decoder_of
from topics.client.encoding import why_not_json
from topics.client.models import NewRecord, Unique
from topics.nesting import DEPTH_MAX, deep, depth_of

Format = Literal["ndjson", "csv", "records", "raw"]

SKIP_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 256 << 10
"""Read from a pipe in one call."""
PACKED_BYTES: Final = 4 << 10
"""Of a compressed file, unpacked in one step: what comes out may be a thousand times as much."""
LINE_BYTES: Final = 8 << 20
"""A longer line is read on where the server takes such a record."""
LINE_BYTES_MAX: Final = 64 << 20
"""A body of a write, by default (§2)."""
_BOM: Final = b"\xef\xbb\xbf"
_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class BadSource(Exception):
    """The input does not have the format that was named."""


class BadLine(BadSource):
    """A line that is no record; the message names the line and the reason."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")


@dataclass(frozen=True, slots=True)
class Shape:
    """How lines become records.

    Attributes:
        tag_fields: Fields of `data` whose values, joined by dots, are the tag; empty: no tag.
        numbers: Of CSV: fields that are JSON numbers, and no larger than a float can be, are sent
            as numbers.
        null: Of CSV: a field of exactly this text is sent as null.
        unique_fields: Fields of `data` whose values, joined by dots, are the job's unique key; empty: it has none.
    """

    format: Format
    tag_fields: tuple[str, ...] = ()
    numbers: bool = False
    null: str | None = None
    unique_fields: tuple[str, ...] = ()


class Piped:
    """Lines from a pipe, a FIFO or a terminal, with a limit on each wait.

    While a line is not complete, `due.due_s()` says how long to wait at most, and `due.is_due()` is
    called when that time is over.
    """

    def __init__(self, fileno: int, due: "Due") -> None:
        self._fileno = fileno
        self._due = due
        self._poll = select.poll()
        self._poll.register(fileno, select.POLLIN)
        self._data = b""
        self._at = 0
        self._is_over = False

    def fileno(self) -> int:
        return self._fileno

    def seekable(self) -> bool:
        return False

    def readline(self, size: int = 1 << 62) -> bytes:
        """The next line with its line end, which the last one may lack; empty at the end of the
        input.  Of a line that is longer than `size`, so many bytes or some more."""
        end = self._data.find(b"\n", self._at) + 1
        if end:
            line = self._data[self._at : end]
            self._at = end
            return line
        pieces = [self._data[self._at :]]
        length = len(pieces[0])
        while (piece := self._more()) and b"\n" not in piece:
            pieces.append(piece)
            length += len(piece)
            if length >= size:
                self._data, self._at = b"", 0
                return b"".join(pieces)
        end = piece.find(b"\n") + 1
        pieces.append(piece[:end])
        self._data, self._at = piece, end
        return b"".join(pieces)

    def read(self, size: int) -> bytes:
        """At most `size` bytes; empty at the end of the input."""
        if self._at == len(self._data):
            self._data, self._at = self._more(), 0
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def _more(self) -> bytes:
        while not self._is_over:
            due_s = self._due.due_s()
            # Rounded up: a wait that ends a fraction of a millisecond early would be repeated at
            # once, in a busy loop.
            if not self._poll.poll(None if due_s is None else ceil(1000 * due_s)):
                self._due.is_due()
                continue
            piece = os.read(self._fileno, PIECE_BYTES)
            self._is_over = not piece
            return piece
        return b""


class Unpacked:
    """Lines of a compressed file, as if it were not.

    Offsets are those of the content.  The file's identity is that of the compressed one.

    Args:
        packed: The file.
        content: Its content, from its beginning.
    """

    def __init__(self, packed: BinaryIO, content: BinaryIO) -> None:
        self._packed = packed
        self._content = content

    def fileno(self) -> int:
        return self._packed.fileno()

    def seekable(self) -> bool:
        return False

    def readline(self, size: int) -> bytes:
        with _broken():
            return self._content.readline(size)

    def read(self, size: int) -> bytes:
        with _broken():
            return self._content.read(size)


class _Frames(RawIOBase):
    """The content of frames of zstd, one behind the other.

    The reader of the package itself ends in silence where a file was cut short.
    """

    def __init__(self, packed: BinaryIO, begin: Callable[[], Any]) -> None:
        self._packed = packed
        self._begin = begin
        self._frame: Any = None
        """That which is being unpacked; None between two."""
        self._rest = b""
        """What was read and not unpacked."""
        self._content = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._content:
            piece = self._rest or self._packed.read(PACKED_BYTES)
            if not piece and self._frame is None:
                return 0
            if not piece:
                raise EOFError("Compressed file ended before the end of a frame")
            frame = self._frame or self._begin()
            self._content = memoryview(frame.decompress(piece))
            self._frame = None if frame.eof else frame
            self._rest = frame.unused_data
        size = min(len(buffer), len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size


@contextmanager
def _broken() -> Iterator[None]:
    """A file that cannot be unpacked is a bad source."""
    try:
        yield
    except (EOFError, zlib.error, BadGzipFile) as error:
        raise BadSource(f"it cannot be unpacked: {error}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("zstandard", "_zstd", "compression"):
            raise BadSource(f"it cannot be unpacked: {error}") from None
        raise


def unpacked(name: str, packed: BinaryIO) -> BinaryIO:
    """The content of a file, by the end of its name: `.gz` and `.zst` are unpacked.

    Raises:
        BadSource: What unpacks it is not installed.
    """
    if name.endswith(".gz"):
        return cast(BinaryIO, Unpacked(packed, cast(BinaryIO, GzipFile(fileobj=packed))))
    if name.endswith(".zst"):
        try:
            from zstandard import ZstdDecompressor
        except ImportError:
            message = "*.zst needs the package zstandard (pip install zstandard)"
            raise BadSource(message) from None
        content = BufferedReader(_Frames(packed, lambda: ZstdDecompressor().decompressobj()))
        return cast(BinaryIO, Unpacked(packed, cast(BinaryIO, content)))
    return packed


class Due(Protocol):
    """A deadline for the waits of `Piped`."""

    def due_s(self) -> float | None:
        """Seconds until the deadline; None where there is none."""

    def is_due(self) -> None:
        """Called when the deadline has passed."""


class ByteSource(Protocol):
    """A file, or a pipe (`Piped`)."""

    def fileno(self) -> int: ...

    def seekable(self) -> bool: ...

    def readline(self, size: int, /) -> bytes: ...

    def read(self, size: int, /) -> bytes: ...


class Lines:
    """Lines of a binary stream, counted and digested as they are taken.

    With `offset` the lines begin there.

    Attributes:
        offset: The first byte that was not taken.
        taken: How many lines were taken.
        settled: The first byte that no record was made of: a CSV row over several lines is taken
            line by line, and settled at its end.

    Args:
        most_bytes: Asked for the longest line where one is longer than `LINE_BYTES`.

    Raises:
        BadSource: The stream ends before `offset`.
        BadLine: A line is longer than that; what is behind it is not read.
    """

    def __init__(
        self,
        stream: ByteSource,
        offset: int = 0,
        most_bytes: Callable[[], int] = lambda: LINE_BYTES_MAX,
    ) -> None:
        self._most_bytes = most_bytes
        self.offset = 0
        self.taken = 0
        self.settled = 0
        self._stream = stream
        self._open: list[bytes] = []
        """Lines that were taken and are not settled."""
        self._digest = hashlib.sha256()
        self._skipped: int | None = None
        """How many lines lie before `offset`; None until the number is needed."""
        self._begin = offset
        self._skip(offset)
        self.settled = self.offset

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        line = self._stream.readline(LINE_BYTES)
        if not line:
            raise StopIteration
        if len(line) >= LINE_BYTES and not line.endswith(b"\n"):
            line = self._rest_of(line)
        is_first = self.offset == 0
        self.offset += len(line)
        self.taken += 1
        self._open.append(line)
        return line.removeprefix(_BOM) if is_first else line

    def _rest_of(self, begin: bytes) -> bytes:
        """A long line, of which this is the beginning."""
        most = self._most_bytes()
        pieces, size = [begin], len(begin)
        while size <= most and not pieces[-1].endswith(b"\n"):
            pieces.append(self._stream.readline(most + 1 - size))
            size += len(pieces[-1])
            if not pieces[-1]:
                break
        if size > most:
            what = f"more than {most:,} bytes in a line, and a server takes no more of a record"
            raise BadLine(self.number(self.taken + 1), what)
        return b"".join(pieces)

    @property
    def line(self) -> int:
        """The number of the line that was taken last."""
        return self.number(self.taken)

    def number(self, taken: int) -> int:
        """The number, counted from the start of the source, of the n-th line that was taken."""
        if self._skipped is None:
            # Counted only for a message: the skipped part may be most of a large file.
            self._skipped = self._count_skipped()
        return self._skipped + taken

    def settle(self) -> None:
        """Note that a record was made of the lines that were taken, or that none will be."""
        for line in self._open:
            self._digest.update(line)
        self._open.clear()
        self.settled = self.offset

    def take_digest(self) -> str:
        """A digest of the lines that were settled since the last call, as 32 hex digits."""
        digest, self._digest = self._digest, hashlib.sha256()
        return digest.hexdigest()[:32]

    def _skip(self, offset: int) -> None:
        if self._stream.seekable():
            file = cast(BinaryIO, self._stream)
            self._require(file.seek(0, SEEK_END))
            file.seek(offset)
            self.offset = offset
        else:
            self._skipped = self._read_past()

    def _count_skipped(self) -> int:
        file = cast(BinaryIO, self._stream)
        at, offset = file.tell(), self.offset
        file.seek(0)
        self.offset = 0
        try:
            return self._read_past()
        finally:
            file.seek(at)
            self.offset = offset

    def _read_past(self) -> int:
        """Read up to the offset; returns how many lines lie before it."""
        lines = 0
        while self.offset < self._begin:
            piece = self._stream.read(min(SKIP_BYTES, self._begin - self.offset))
            if not piece:
                self._require(self.offset)
            lines += piece.count(b"\n")
            self.offset += len(piece)
        return lines

    def _require(self, size: int) -> None:
        if size < self._begin:
            raise BadSource(f"it ends at byte {size}, before --offset {self._begin}")


def records(lines: Lines, shape: Shape, header: list[str] | None = None) -> Iterator[NewRecord]:
    """The records of a source, in order.

    Args:
        header: The columns of a CSV file that is read from its middle.

    Raises:
        BadLine: A line does not have the format, or lacks a field that the tag is made of.
    """
    if shape.format == "csv":
        yield from _csv(lines, shape, header)
        return
    parse = _PARSERS[shape.format]
    for line in lines:
        if line.isspace() and shape.format != "raw":
            lines.settle()
            continue
        try:
            record = parse(line, shape)
        except (msgspec.DecodeError, UnicodeDecodeError, _NoRecord) as error:
            hint = "; a record is one line" if "truncated" in str(error) else ""
            raise BadLine(lines.line, f"{error}{hint}") from None
        except RecursionError:
            raise BadLine(lines.line, TOO_DEEP) from None
        lines.settle()
        yield record


class _NoRecord(Exception):
    """Why a line is no record."""


_NAMES: Final = ("tag", "node", "form", "key", "time", "headers")
"""Of what a read shows with a `$`, and an append takes without."""


class _Line(msgspec.Struct, rename={f"served_{name}": f"${name}" for name in _NAMES}):
    """A record as a client writes it, or as `topics read` prints it."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    served_tag: str | None = None
    served_node: str | None = None
    meta: msgspec.Raw = msgspec.Raw(b"")
    form: str | None = None
    key: str | None = None
    time: int | None = None
    headers: msgspec.Raw = msgspec.Raw(b"")
    partition: int | None = None
    delay_ms: int | None = None
    not_before: int | None = None
    priority: int | None = None
    expires_ms: int | None = None
    group: str | None = None
    unique: str | Unique | None = None
    served_form: str | None = None
    served_key: str | None = None
    served_time: int | None = None
    served_headers: msgspec.Raw = msgspec.Raw(b"")


_line: Final = deep(msgspec.json.Decoder(_Line).decode)
_OBJECT: Final = decoder_of(dict[str, Any])


def _ndjson(line: bytes, shape: Shape) -> NewRecord:
    if (fault := why_not_json(line)) is not None:
        raise _NoRecord(fault)
    data = msgspec.Raw(line.strip())
    if not shape.tag_fields and not shape.unique_fields:
        return NewRecord(data)
    return NewRecord(data, **_named(_OBJECT(line), shape))


def _record(line: bytes, shape: Shape) -> NewRecord:
    line.isascii() or line.decode()
    found = _line(line)
    meta = bytes(found.meta)
    if max(depth_of(bytes(found.data), DEPTH_MAX), depth_of(meta, DEPTH_MAX)) > DEPTH_MAX:
        raise _NoRecord(TOO_DEEP)
    if meta and meta != b"null" and not meta.startswith(b"{"):
        raise _NoRecord("meta is no object")
    tag = found.served_tag if found.tag is None else found.tag
    unique = found.unique
    if shape.tag_fields or shape.unique_fields:
        named = _named(_OBJECT(found.data), shape)
        tag = named["tag"] if shape.tag_fields else tag
        unique = named["unique"] if shape.unique_fields else unique
    return NewRecord(
        found.data,
        tag=tag,
        node=found.served_node if found.node is None else found.node,
        meta=found.meta if meta else None,
        form=found.form or found.served_form,  # type: ignore[arg-type]
        key=found.served_key if found.key is None else found.key,
        time=found.served_time if found.time is None else found.time,
        headers=next((each for each in (found.headers, found.served_headers) if bytes(each)), None),
        # That of a record that was read, `$partition`, is left out: its tag says where it goes.
        partition=found.partition,
        delay_ms=found.delay_ms,
        not_before=found.not_before,
        priority=found.priority,
        expires_ms=found.expires_ms,
        group=found.group,
        unique=unique,
    )


def _raw(line: bytes, shape: Shape) -> NewRecord:
    """A line as a JSON string, without its line end."""
    return NewRecord(line.removesuffix(b"\n").removesuffix(b"\r").decode())


_PARSERS: Final[dict[str, Callable[[bytes, Shape], NewRecord]]] = {
    "ndjson": _ndjson,
    "records": _record,
    "raw": _raw,
}


def rows(lines: Lines) -> Iterator[list[str]]:
    """The rows of CSV.  Raises BadLine: a line is not CSV."""
    # `csv.reader` takes another line only while a quoted field is open.  So between two rows, the
    # offset is the end of the last one.
    csv.field_size_limit(LINE_BYTES_MAX)
    try:
        yield from csv.reader((_text(lines, line) for line in lines), strict=True)
    except csv.Error as error:
        raise BadLine(lines.line, str(error)) from None


def _csv(lines: Lines, shape: Shape, header: list[str] | None) -> Iterator[NewRecord]:
    reader = rows(lines)
    names = next(reader, []) if header is None else header
    if len(set(names)) != len(names):
        raise BadLine(1, "two columns have the same name")
    lines.settle()
    for row in reader:
        lines.settle()
        if not row:
            continue
        if len(row) != len(names):
            raise BadLine(lines.line, f"{len(row)} fields, but {len(names)} columns")
        fields = dict(zip(names, row, strict=True))
        data = {name: _value(text, shape) for name, text in fields.items()}
        try:
            named = _named(fields, shape)
        except _NoRecord as error:
            raise BadLine(lines.line, str(error)) from None
        yield NewRecord(data, **named)


def _text(lines: Lines, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadLine(lines.line, str(error)) from None


def _value(text: str, shape: Shape) -> Any:
    if text == shape.null:
        return None
    # "NaN" and "inf" are not JSON numbers, and a number that a float cannot hold would be read
    # back as an infinity: both stay text.
    if shape.numbers and _JSON_NUMBER.fullmatch(text) and isfinite(float(text)):
        return msgspec.Raw(text.encode())
    return text


def _named(data: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """What of a record is made of fields of its data."""
    tag = _joined(data, shape.tag_fields, "tag")
    return {"tag": tag, "unique": _joined(data, shape.unique_fields, "unique key")}


def _joined(data: Mapping[str, Any], names: tuple[str, ...], what: str) -> str | None:
    """Fields as one text; None where none are named."""
    if not names:
        return None
    parts: list[str] = []
    for name in names:
        if name not in data:
            raise _NoRecord(f'no field "{name}" to make the {what} of')
        value = data[name]
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise _NoRecord(f'field "{name}" is neither text nor a whole number')
        parts.append(str(value))
    return ".".join(parts)
