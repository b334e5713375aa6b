"""Which partitions the records of an append go to.

A record goes where it says; else where its key belongs, which is its tag, or what a client of Kafka's gave it; and all
others of the append to one partition, those of the next append to the next one.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from topics.protocol.commit.unit_of_work import no_such_partition
from topics.protocol.model.commands import Append

T = TypeVar("T")


class Placement(NamedTuple):
    """The rows of an append, by partition, ascending; and whether some had to take turns."""

    rows: dict[int, list[int]]
    takes_turns: bool


def placement_of(command: Append, name: str, count: int, turn: int) -> Placement:
    """Where each record goes among `count` partitions.

    Args:
        turn: Where those go that say nothing and have no key.

    Raises:
        Rejection: 404 for a partition that is not there.
    """
    hashes = command.hashed().hashes if command.hashes is None else command.hashes
    assert hashes is not None
    rows: dict[int, list[int]] = {}
    takes_turns = False
    partitions = command.partitions or (None,) * len(hashes)
    for at, (partition, key) in enumerate(zip(partitions, hashes, strict=True)):
        if partition is None:
            if key is None:
                partition, takes_turns = turn % count, True
            else:
                partition = key % count
        elif partition >= count:
            raise no_such_partition(name, partition)
        rows.setdefault(partition, []).append(at)
    return Placement(dict(sorted(rows.items())), takes_turns)


def part_of(command: Append, rows: Sequence[int]) -> Append:
    """The append of some of its records; without its key, which is that of all."""
    if len(rows) == len(command.datas):
        return replace(command, key=b"")
    nodes = command.nodes
    return replace(
        command,
        datas=_some(command.datas, rows),
        nodes=nodes if nodes is None or isinstance(nodes, str) else _some(nodes, rows),
        tags=None if command.tags is None else _some(command.tags, rows),
        metas=None if command.metas is None else _some(command.metas, rows),
        marks=None if command.marks is None else _some(command.marks, rows),
        key=b"",
        draft=None,
    )


def _some(values: Sequence[T], rows: Sequence[int]) -> list[T]:
    return [values[at] for at in rows]
