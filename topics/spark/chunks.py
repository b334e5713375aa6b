"""Rows as chunks: what is appended in one request, under one idempotency key.

Owns where a chunk ends and what it is called.  The name decides whether a chunk that is sent again
is known, so it must be the same whenever the same rows come again, and another one for others:

- Rows that name their source (`seq`) go by blocks of its seqs, and the block is the name: a record
  that was deleted before a replay then makes a chunk smaller, and moves no other row into it.  A chunk
  that has more rows than the one known by its name is of another query than the first try's: it is
  appended under a name of its own (`again`), so that no row is lost.
- Other rows, and those of a block that does not fit into one chunk, go by number, and the name has a
  digest of them: rows that come in another order on a replay are appended twice, and never taken for
  others that were appended.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import orjson

from topics.spark.encoding import STAMP, Row
from topics.spark.errors import SparkFailure

PENDING_BYTES: Final = 128 << 20
"""What all unfinished chunks of a task may hold together."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records to append to a topic in one request."""

    topic: str
    name: str
    rows: tuple[Row, ...]

    def again(self) -> "Chunk":
        """The same rows under a name that no other rows have: what is known by the block's is less."""
        return Chunk(self.topic, f"{self.name}+{_digest(self.rows)}", self.rows)

    def records(self, app: str, version: int, part: int) -> list[bytes]:
        """The records; the first bears the stamp by which a late replay finds the chunk.

        The stamp names the topic, as a router's copy of the record bears it in another one.
        """
        made = {"a": app, "v": version, "p": part, "c": self.name, "t": self.topic}
        made["n"] = len(self.rows)
        stamp = b'"%b":%b' % (STAMP.encode(), orjson.dumps(made))
        first, *rest = self.rows
        return [first.encoded(stamp), *(row.encoded() for row in rest)]


@dataclass(slots=True)
class _Open:
    """A chunk that still takes rows."""

    block: int | None
    turn: int
    rows: list[Row] = field(default_factory=list)
    size: int = 0
    last_seq: int = 0


def chunks(
    rows: Iterable[Row], *, most_records: int, most_bytes: int, is_sourced: bool
) -> Iterator[Chunk]:
    """Rows as chunks, for each topic and source in the order of its rows.

    Args:
        is_sourced: Rows have the seq of their source.

    Raises:
        SparkFailure: Seqs of a source do not ascend.  Where a block is left and entered again, a
            replay after a delete could take the second part for the first.
    """
    opened: dict[tuple[str, str], _Open] = {}
    pending = 0
    for row in rows:
        key = row.target, row.source
        size = len(row.body) + len(row.meta or b"") + 16
        seq = row.seq if is_sourced else None
        block = seq // most_records if seq is not None else None
        current = opened.get(key)
        if current is None:
            current = opened[key] = _Open(block, 0)
        elif current.block != block:
            _require_ascending(current, seq)
            yield _closed(key, current)
            pending -= current.size
            current = opened[key] = _Open(block, 0 if block is not None else current.turn + 1)
        elif len(current.rows) >= most_records or current.size + size > most_bytes:
            yield _closed(key, current, is_full=True)
            pending -= current.size
            current = opened[key] = _Open(block, current.turn + 1, last_seq=current.last_seq)
        _require_ascending(current, seq)
        current.last_seq = seq or current.last_seq
        current.rows.append(row)
        current.size += size
        pending += size
        if pending > PENDING_BYTES:
            key = max(opened, key=lambda each: opened[each].size)
            largest = opened[key]
            pending -= largest.size
            yield _closed(key, largest, is_full=True)
            opened[key] = _Open(largest.block, largest.turn + 1, last_seq=largest.last_seq)
    for key, current in opened.items():
        if current.rows:
            yield _closed(key, current)


def _require_ascending(current: _Open, seq: int | None) -> None:
    if seq is not None and seq < current.last_seq:
        raise SparkFailure(
            f"column seq goes from {current.last_seq} back to {seq} within a partition: drop the "
            'column, or write df.sortWithinPartitions("seq")'
        )


def _closed(key: tuple[str, str], made: _Open, *, is_full: bool = False) -> Chunk:
    target, source = key
    place = f"{source}@" if source else ""
    if made.block is None:
        name = f"{place}{made.turn}-{_digest(made.rows)}"
    elif made.turn == 0 and not is_full:
        name = f"{place}b{made.block}"
    else:
        name = f"{place}b{made.block}.{made.turn}-{_digest(made.rows)}"
    return Chunk(target, name, tuple(made.rows))


def _digest(rows: Iterable[Row]) -> str:
    digest = blake2b(digest_size=12)
    for row in rows:
        digest.update(row.encoded())
        digest.update(b"\n")
    return digest.hexdigest()
