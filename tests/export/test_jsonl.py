"""Files of JSON lines."""

import gzip
import json
from collections.abc import Iterator

import msgspec
import pytest

from topics.client import NewRecord, RawRecord
from topics.export import jsonl
from topics.export.jsonl import JsonlCodec
from topics.export.manifest import Damaged
from topics.testing import MemoryTopics

from .exporting import JSONL, export, remote, seqs
from .lakes import MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        yield memory


def test_lines_are_what_the_server_keeps(memory: MemoryTopics) -> None:
    """JSON lines hold data byte for byte, as `topics read` prints them, each on one line. (§0.4)"""
    texts = [b'{"a": 1.0,  "b":"\\u00fc\\n"}', b"[1,\n 2]", b"null"]
    for n, text in enumerate(texts):
        memory.client.append("t", msgspec.Raw(text), tag='q"\\', node="n\u00fc", meta={"n": n})
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, settings=JSONL)

    [path] = [p for p in lake.files() if p.startswith("t/")]
    lines = lake.read(path).decode().splitlines()
    found = [json.loads(line) for line in lines]
    assert [line.partition('"data":')[2].rpartition(',"meta"')[0] for line in lines] == [
        '{"a": 1.0,  "b":"\\u00fc\\n"}', "[1,  2]", "null"
    ]  # fmt: skip
    assert found[0].keys() == {"$seq", "$ts", "$node", "$tag", "data", "meta"}
    assert (found[0]["$tag"], found[0]["$node"], found[0]["meta"]) == ('q"\\', "nü", {"n": 0})


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_lines_may_be_compressed(memory: MemoryTopics, compression: str) -> None:
    """And a compression may change from run to run."""
    lake = MemoryLake()
    with remote(memory) as source:
        memory.client.append("t", 1, 2)
        export(source, lake, settings=JSONL, compression=compression)
        memory.client.append("t", 3)
        export(source, lake, settings=JSONL)
    assert seqs(lake) == [1, 2, 3]


def test_lines_are_those_that_a_reader_gets(memory: MemoryTopics) -> None:
    """Byte for byte what `topics read --tags` prints, so that `topics append` takes them; also of what a client of
    Kafka's sent. (docs/kafka.md)"""
    memory.client.append("t", {"a": 1}, "x", None, tag="t1", node="w", meta={"m": [1, 2]})
    memory.client.append("t", 1.5)
    memory.client.append(
        "t",
        NewRecord("two", form="text", tag="t2", time=-7),
        NewRecord("AP8=", form="base64", key="/w==", headers=[("h", None), ("h", "\u00fc")]),
        NewRecord(None, form="null"),
    )
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, settings=JSONL)
    read = memory.client.read("t", include_tags=True, record_type=RawRecord)
    printed = b"".join(msgspec.json.encode(record) + b"\n" for record in read)

    [path] = [path for path in lake.files() if path.startswith("t/")]
    assert lake.read(path) == printed


@pytest.mark.parametrize(
    "text", [b'{"$seq":1,"data":1}\n{"$seq":2', b"hello\n", b'{"seq":1}\n', b"\n"]
)
def test_what_is_no_file_of_lines(text: bytes) -> None:
    """A line without its end or without its seq is damage."""
    lake = MemoryLake()
    lake.append("x", text)
    with pytest.raises(Damaged, match="x: "):
        list(JsonlCodec().batches(lake, "x"))


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_what_is_not_compressed(compression: str) -> None:
    """Where its name says that it is, it is damage."""
    lake = MemoryLake()
    lake.append("x", b"not compressed at all")
    with pytest.raises(Damaged, match="x: "):
        list(JsonlCodec(compression).batches(lake, "x"))


def test_a_line_that_unpacks_to_more_than_a_record_is_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A packed file may hold any number of bytes without a line end: they are not gathered."""
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(jsonl, "LINE_BYTES_MAX", 1 << 12)
    lake = MemoryLake()
    lake.create("t.jsonl.gz").write(gzip.compress(b'{"$seq":1,"data":"' + b"a" * (1 << 20)))

    with pytest.raises(Damaged, match="a line has more than 4096 bytes"):
        list(JsonlCodec("gzip").batches(lake, "t.jsonl.gz"))
