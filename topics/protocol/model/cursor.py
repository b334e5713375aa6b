"""The composite id of a watch: where its reader stands in each topic, as one opaque text (§7.4).

A session's answer carries it, every frame of its stream, and the client that comes back.  What a
client sends is only believed as far as it is an id of ours: a position is a natural number, and at
worst a forged one begins earlier.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

import orjson

MAP_TOPICS_MAX: Final = 64
"""Topics up to which the id is the documented map; beyond it is a list in the session's order."""
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


def parse_composite(text: str, names: Sequence[str], *, strict: bool = False) -> Remembered | None:
    """The positions of a composite id, for those of `names` that it holds; None where it is no such
    id.  A list of other topics, or of these in another order, holds nothing.

    Args:
        strict: Something else than a position in the place of one makes it no such id, and is not
            left out; and so does a list that is not of these topics.
    """
    try:
        value = orjson.loads(urlsafe_b64decode(text.encode() + b"=="))
    except (ValueError, binascii.Error):
        return None
    if not isinstance(value, dict):
        return None
    instances = _zipped(names, value.get(INSTANCES))
    if isinstance(digest := value.get("d"), str):
        value = _zipped(names, value.get("s")) if digest == _digest(names) else {}
        if strict and len(value) < len(names):
            return None
    positions = _naturals(value, names)
    if strict and any(name in value and name not in positions for name in names):
        return None
    return Remembered(positions, _naturals(instances, names))


def _zipped(names: Sequence[str], values: object) -> dict[str, object]:
    return dict(zip(names, values, strict=False)) if isinstance(values, list) else {}


def _naturals(value: Mapping[str, object], names: Iterable[str]) -> dict[str, int]:
    """What of a client's map is a natural number, by name."""
    known = {name: value.get(name) for name in names}
    return {n: s for n, s in known.items() if type(s) is int and s >= 0}


def _digest(names: Iterable[str]) -> str:
    return blake2b("\n".join(names).encode(), digest_size=6).hexdigest()
