"""Where a stream is: the JSON that Spark keeps in the checkpoint.

    {"v": 1, "asof": 1795225018126, "parts": 2,
     "topics": {"orders": {"seq": 480234, "id": "2b4f57fe9e64a177-1"}},
     "lost": {"orders": [[1, 200, "cap"]]}}

A partition behind the first has an entry of its own, `orders#3`, so a stream that began when the topic had one goes
on.  `seq` is the last one that was examined, `id` the topic's epoch.  `turn`, where batches are limited by
bytes, counts these: each topic is the first to be served once in as many as there are.  `asof` is the time by which records
of the batch that ends here expire, `parts` into how many pieces it is cut, and `lost` what was known
to be lost of it when it was planned: so a replay of a batch cuts and judges as the first run did.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from topics.arrow.loss import Gap
from topics.spark.errors import SparkFailure

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """How far a partition was examined."""

    seq: int
    epoch: str


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in every partition of a stream, by its name (`partition_name`)."""

    asof_ms: int
    parts: int
    topics: Mapping[str, TopicOffset]
    lost: tuple[Gap, ...] = field(default=())
    turn: int = 0

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "v": VERSION,
            "asof": self.asof_ms,
            "parts": self.parts,
            "topics": {
                name: {"seq": at.seq, "id": at.epoch} for name, at in sorted(self.topics.items())
            },
        }
        if self.turn:
            made["turn"] = self.turn
        if self.lost:
            lost: dict[str, list[list[Any]]] = {}
            for gap in self.lost:
                lost.setdefault(gap.topic, []).append([gap.first_seq, gap.last_seq, gap.reason])
            made["lost"] = lost
        return made


def parse_offset(value: Mapping[str, Any]) -> Offset:
    """Raises SparkFailure: It is no offset of this version."""
    try:
        if value["v"] != VERSION:
            raise SparkFailure(
                f"the checkpoint has offsets of version {value['v']}, this is version {VERSION} of "
                "topics.spark: upgrade it, or begin with another checkpoint"
            )
        lost = value.get("lost", {})
        return Offset(
            asof_ms=value["asof"],
            parts=value["parts"],
            topics={n: TopicOffset(at["seq"], at["id"]) for n, at in value["topics"].items()},
            lost=tuple(Gap(name, *gap) for name, gaps in lost.items() for gap in gaps),
            turn=value.get("turn", 0),
        )
    except (KeyError, TypeError, AttributeError):
        raise SparkFailure(f"{value!r} is no offset of the format topics") from None
