"""Chunks on a shared folder until the driver appends them: for plans that do not repeat themselves.

Where a replay may give a task other rows, or the same in another order, what is appended must be
decided once.  Tasks write their chunks to files here; the driver names the files of the first
complete attempt in a manifest, and only these are appended, whatever a replay makes.

    {stagingDir}/{app}/{version}-{target}/{part}-{attempt}.chunks     a chunk a line
    {stagingDir}/{app}/{version}-{target}/manifest.json               ["0-17.chunks", ...]

The target is a digest of the topic, or of the column that names it, and of the history of the server:
what was decided for one is not appended to another.  Earlier versions of this program did not
name the target, and a decision of theirs that is for these topics stands.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
import orjson

from topics.nesting import deep
from topics.spark.chunks import Chunk
from topics.spark.encoding import Row

MANIFEST: Final = "manifest.json"


class _Row(msgspec.Struct, array_like=True):
    body: str
    meta: str | None


class _Line(msgspec.Struct, array_like=True):
    topic: str
    name: str
    rows: list[_Row]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = deep(msgspec.json.Decoder(_Line).decode)


def folder(staging_dir: str, app: str, version: int, topic: str | None, history: str) -> Path:
    """*Blocking.* Where a version's chunks for a topic are; None: for those that a column names."""
    base = Path(staging_dir.removeprefix("file://").removeprefix("file:")) / app / str(version)
    if _was_decided(base, topic):
        return base
    target = blake2b(orjson.dumps([topic, history]), digest_size=12).hexdigest()
    return base.with_name(f"{version}-{target}")


def _was_decided(base: Path, topic: str | None) -> bool:
    """Whether an earlier version of this program has decided what a topic is to get."""
    manifest = base / MANIFEST
    if not manifest.exists():
        return False
    names = json.loads(manifest.read_text())
    chunks = (chunk for name in names for chunk in spooled(base / name))
    return topic is None or all(chunk.topic == topic for chunk in chunks)


def spool(home: Path, part: int, attempt: int, chunks: Iterable[Chunk]) -> tuple[str, int]:
    """*Blocking.* Write a task's chunks to a file that survives a power loss; its name, and rows."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{part}-{attempt}.chunks"
    rows = 0
    with path.open("wb") as file:
        for chunk in chunks:
            rows += len(chunk.rows)
            texts = [_Row(r.body.decode(), r.meta.decode() if r.meta else None) for r in chunk.rows]
            file.write(_encode(_Line(chunk.topic, chunk.name, texts)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return path.name, rows


def decide(home: Path, names: Sequence[str]) -> list[str]:
    """*Blocking.* The files whose chunks are appended: those of an earlier decision, or these."""
    manifest = home / MANIFEST
    if manifest.exists():
        return [str(name) for name in json.loads(manifest.read_text())]
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f"{MANIFEST}.{os.getpid()}"
    with draft.open("w") as file:
        json.dump(list(names), file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(manifest)
    _sync(home)
    return list(names)


def spooled(path: Path) -> Iterator[Chunk]:
    """The chunks of a file."""
    with path.open("rb") as file:
        for line in file:
            found = _decode(line)
            rows = tuple(
                Row(r.body.encode(), r.meta.encode() if r.meta else None, found.topic)
                for r in found.rows
            )
            yield Chunk(found.topic, found.name, rows)


def clear(home: Path) -> None:
    """Remove what a version has staged, once its marker says that it is done."""
    shutil.rmtree(home, ignore_errors=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
