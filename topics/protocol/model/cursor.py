"""The composite id of a watch: where its reader stands in each topic, as one opaque text (§7.4).

A session's answer carries it, every frame of its stream, and the client that comes back.  What a
client sends is only believed as far as it is an id of ours: a position is a natural number, and at
worst a forged one begins earlier.

Each partition of a topic has a position, under the engine's name of it (`orders`, `orders#1`).  A session's
partitions stand in the order in which it got them, and those that a topic gets later at the end, so an id from
before holds for the first ones.
"""

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol, TypeGuard

import msgspec
import orjson

from topics.protocol.model.names import PARTITION_MARK, partition_name

MAP_TOPICS_MAX: Final = 64
"""Topics, partitions counted as such, up to which the id is the documented map; beyond it is a list in the
session's order."""
NO_CURSOR: Final = "not the id of a frame, nor a session's cursor, of these topics"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,2}")
"""Of a partition, as an id names it."""
INSTANCES: Final = "~"
"""Key of an id, and no topic's name: a list in the session's order of the instances that positions
are in, 0 where the session knew no other.  It is there once a topic was made again while the session
watched it: without it, an id from before could pass for one from after."""


class Placed(Protocol):
    """A reader's position in one topic."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> int:
        """The instance of the name."""

    @property
    def cursor(self) -> int: ...

    @property
    def is_heir(self) -> bool:
        """Whether the session has seen an earlier instance of the name."""


class Listed(msgspec.Struct, frozen=True):
    """The positions of an id that is a list, in the order of a session.

    Attributes:
        digest: Of the names of their topics and partitions.
    """

    digest: str
    seqs: tuple[int, ...]

    def over(self, names: Sequence[str]) -> dict[str, int] | None:
        """The positions by name, where they are those of the first of `names`; else None."""
        if self.digest != _digest(names[: len(self.seqs)]):
            return None
        return dict(zip(names, self.seqs, strict=False))


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a client still knows of a session.

    Attributes:
        positions: By topic.
        instances: Ids of the instances that they are in, for topics that were made again.
    """

    positions: Mapping[str, int] = field(default_factory=dict)
    instances: Mapping[str, int] = field(default_factory=dict)


def composite(placed: Iterable[Placed]) -> bytes:
    """The positions of a session, as base64url of JSON without padding (§7.4)."""
    positions, instances = {}, []
    for each in placed:
        positions[each.name] = each.cursor
        instances.append(each.topic_id if each.is_heir else 0)
    value: dict[str, object] = dict(positions)
    if len(positions) > MAP_TOPICS_MAX:
        value = {"d": _digest(positions), "s": list(positions.values())}
    if any(instances):
        value[INSTANCES] = instances
    return urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=")


def parse_composite(text: str, names: Sequence[str]) -> Remembered | None:
    """The positions of a composite id, for those of `names` that it holds; None where it is no such
    id.  A list of other topics, or of these in another order, holds nothing; a shorter one those that it is of."""
    value = _decoded(text)
    if value is None:
        return None
    instances = _zipped(names, value.get(INSTANCES))
    if isinstance(digest := value.get("d"), str):
        seqs = value.get("s")
        known = names[: len(seqs)] if isinstance(seqs, list) else ()
        value = _zipped(known, seqs) if digest == _digest(known) else {}
    return Remembered(_naturals(value, names), _naturals(instances, names))


def parse_cursor(text: str, topics: Collection[str]) -> dict[str, int] | Listed | None:
    """The positions that a composite id holds for a new session of `topics`: by the engine's names of
    partitions, or a list whose names are still to be found.  None where it is no such id, or holds something else
    than a position in the place of one."""
    value = _decoded(text)
    if value is None:
        return None
    if not isinstance(digest := value.get("d"), str):
        return positions_of(value, topics)
    seqs = value.get("s")
    if not isinstance(seqs, list) or not all(map(_is_position, seqs)):
        return None
    return Listed(digest, tuple(seqs))


def positions_of(value: Mapping[str, object], topics: Collection[str]) -> dict[str, int] | None:
    """The positions that a map holds for `topics` and their partitions (`orders` and `orders#0` are the first), by
    the engine's names; None where one is no position, or of no partition that there could be."""
    found: dict[str, int] = {}
    for name, seq in value.items():
        topic, mark, number = name.partition(PARTITION_MARK)
        if topic not in topics:
            continue
        if not _is_position(seq) or (mark and _NUMBER.fullmatch(number) is None):
            return None
        found[partition_name(topic, int(number or 0))] = seq
    return found


def positions_in(composite_id: bytes) -> dict[str, int]:
    """The positions of an id of this server's own, by the engine's names of partitions; none where it is a list,
    which says no names."""
    value = _decoded(composite_id.decode()) or {}
    return {name: seq for name, seq in value.items() if _is_position(seq)}


def _decoded(text: str) -> dict[str, object] | None:
    try:
        value = orjson.loads(urlsafe_b64decode(text.encode() + b"=="))
    except (ValueError, binascii.Error):
        return None
    return value if isinstance(value, dict) else None


def _is_position(seq: object) -> TypeGuard[int]:
    return type(seq) is int and seq >= 0


def _zipped(names: Sequence[str], values: object) -> dict[str, object]:
    return dict(zip(names, values, strict=False)) if isinstance(values, list) else {}


def _naturals(value: Mapping[str, object], names: Iterable[str]) -> dict[str, int]:
    """What of a client's map is a natural number, by name."""
    known = {name: value.get(name) for name in names}
    return {name: seq for name, seq in known.items() if _is_position(seq)}


def _digest(names: Iterable[str]) -> str:
    return blake2b("\n".join(names).encode(), digest_size=6).hexdigest()
