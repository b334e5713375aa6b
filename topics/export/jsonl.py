"""Data files of JSON lines: records as the server keeps them, with `data` and `meta` verbatim.

    {"$seq":1,"$ts":1795254919024,"$node":"w","$tag":"acme.img-1","data":{"n": 1.0},"meta":{"m":1}}

Of a partition behind the first of its topic, a line also has `"$partition":3`, behind the seq.
`topics append --format records` takes these lines.  A line break between two tokens of `data` or
`meta`, where it means nothing, becomes a space.  Lines are made by Arrow's kernels: no record becomes
a Python object.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from topics.arrow.columns import FIELDS, MARKS, PARTITION
from topics.export.codec import Measured, Rendered
from topics.export.lake import Lake
from topics.export.manifest import Damaged

ROWS: Final = pa.schema([("seq", pa.int64()), ("line", pa.string())])
BLOCK_BYTES: Final = 8 << 20
LINE_BYTES_MAX: Final = 5 << 28
"""Of one record: a server takes at most 1 GiB.  A few megabytes may unpack to any number of bytes."""
COMPRESSIONS: Final = ("none", "zstd", "gzip")

_SEQ: Final = re.compile(rb'\{"\$seq":([0-9]{1,19}),')


class JsonlCodec:
    """Implements `files.Codec`.  A row is the seq and the line, with its end."""

    columns = (*FIELDS, PARTITION, MARKS)

    def __init__(self, compression: str = "none") -> None:
        self._compression = None if compression == "none" else compression
        self.suffix = "jsonl" + {"gzip": ".gz", "zstd": ".zst"}.get(compression, "")

    def rendered(self, batch: pa.RecordBatch) -> Rendered:
        return Rendered(rendered(batch))

    def writer(
        self,
        sink: Measured,
        about: dict[str, str],
        target_bytes: int,
        topic_partition: int | None = None,
    ) -> "JsonlWriter":
        return JsonlWriter(sink, self._compression)

    def batches(self, lake: Lake, path: str) -> Iterator[pa.RecordBatch]:
        with lake.open(path) as file:
            try:
                yield from _rows(self._blocks(file))
            except (OSError, ValueError, pa.ArrowException) as error:
                raise Damaged(path, str(error)) from None

    def _blocks(self, file: Any) -> Iterator[bytes]:
        stream = pa.PythonFile(file, mode="r")
        if self._compression is not None:
            stream = pa.CompressedInputStream(stream, self._compression)
        while block := stream.read(BLOCK_BYTES):
            yield block

    def count(self, lake: Lake, path: str) -> int | None:
        return None


class JsonlWriter:
    """Implements `files.Writer`."""

    def __init__(self, sink: Measured, compression: str | None) -> None:
        self._sink: Any = sink
        self._compressed: Any = None
        if compression is not None:
            self._compressed = pa.CompressedOutputStream(pa.PythonFile(sink, "w"), compression)
            self._sink = self._compressed

    def write(self, rows: pa.RecordBatch) -> None:
        self._sink.write(_bytes_of(rows.column("line")))

    def close(self) -> None:
        if self._compressed is not None:
            self._compressed.close()


def _bytes_of(lines: pa.Array) -> Any:
    """The bytes of all strings of an array, one behind the other, not copied."""
    ends = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return lines.buffers()[2].slice(int(ends[0]), int(ends[-1] - ends[0]))


def rendered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records as lines."""
    seq = batch.column("seq")
    parts = [
        '{"$seq":',
        seq.cast(pa.string()),
        *_partition(batch),
        ',"$ts":',
        pc.divide(batch.column("ts").cast(pa.int64()), 1000).cast(pa.string()),
        _member('"$node":', batch.column("node")),
        _members(batch.column(MARKS)),
        _member('"$tag":', batch.column("tag")),
        ',"data":',
        _on_one_line(batch.column("data")),
        *_meta(batch.column("meta")),
        "}\n",
    ]
    return pa.record_batch([seq, pc.binary_join_element_wise(*parts, "")], schema=ROWS)


def _partition(batch: pa.RecordBatch) -> list[str]:
    """Of a batch, which is of one partition."""
    number = batch.column(PARTITION)[0].as_py() if len(batch) else 0
    return [f',"$partition":{number}'] if number else []


def _member(name: str, strings: pa.Array) -> pa.Array:
    """`,"name":"string"` of each, as JSON; empty for null.  Each distinct string is escaped once."""
    encoded = strings.dictionary_encode()
    texts = [f",{name}{orjson.dumps(each).decode()}" for each in encoded.dictionary.to_pylist()]
    made = pa.array(texts, pa.string()).take(encoded.indices)
    return made.fill_null("")


def _members(marks: pa.Array) -> Any:
    """The members of objects, behind a comma; empty for null."""
    inner = pc.utf8_slice_codeunits(marks, start=1, stop=-1)
    return pc.binary_join_element_wise(",", inner, "").fill_null("")


def _meta(meta: pa.Array) -> list[Any]:
    if meta.null_count == len(meta):
        return []
    return [pc.binary_join_element_wise(',"meta":', _on_one_line(meta), "").fill_null("")]


def _on_one_line(texts: pa.Array) -> pa.Array:
    # A look at the bytes as a whole; Arrow's kernel would search each string.
    whole = _bytes_of(texts).to_pybytes()
    for end in ("\n", "\r"):
        if end.encode() in whole:
            texts = pc.replace_substring(texts, end, " ")
    return texts


def _rows(blocks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    """Raises ValueError: A line does not begin with a seq or is too long, or the last has no end."""
    rest = b""
    for block in blocks:
        lines = (rest + block).splitlines(keepends=True)
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line has more than {LINE_BYTES_MAX} bytes")
        if lines:
            yield _batch(lines)
    if rest:
        raise ValueError("the last line has no end")


def _batch(lines: list[bytes]) -> pa.RecordBatch:
    seqs = []
    for line in lines:
        found = _SEQ.match(line)
        if found is None:
            raise ValueError(f"{line[:40]!r} does not begin with a seq")
        seqs.append(int(found[1]))
    texts = pa.array(lines, pa.binary()).view(pa.string())
    return pa.record_batch([pa.array(seqs, pa.int64()), texts], schema=ROWS)
