"""The hand-off: once a topic's records are exported, verified and old enough, they are deleted in it.

The entry that says so is in the manifest before the delete is sent: from then on the export is those
records' only place, and no `reconcile` takes their absence for somebody's wish.  What was deleted
before is taken out of the export first, for the same reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topics.arrow.loss import titled
from topics.arrow.readers import Position, positions
from topics.arrow.source import TopicSource
from topics.client import Client
from topics.export.handoff import Bound, NotSafe, bound
from topics.export.manifest import Lineage, Settings
from topics.protocol.model.names import partition_of


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be deleted: the live records of a topic below `bound.before_seq`.

    Attributes:
        earliest_seq: The first of them; nothing is deleted where it is not below the bound.
    """

    topic: str
    epoch: str
    earliest_seq: int
    bound: Bound

    @property
    def is_empty(self) -> bool:
        return self.bound.before_seq <= self.earliest_seq


def plan(
    source: TopicSource,
    settings: Settings,
    lineage: Lineage | None,
    topic: str,
    *,
    readers: Sequence[str],
    min_age_ms: int,
    now_ms: int,
) -> Plan:
    """How far a topic may be deleted, given that its export is verified.

    Raises:
        NotSafe: Not at all; says why.
        NoSuchTopic, NotReadable, OSError, TopicsError.
    """
    if settings.tag_prefix is not None:
        raise NotSafe(
            "an export of some tags says nothing of the others, which would be deleted, too"
        )
    bounds = source.bounds(topic)
    if lineage is None or lineage.epoch != bounds.epoch:
        raise NotSafe(f"{titled(topic)} is not the one that was exported")
    published = positions(source) if readers else {}
    limits = bound(
        earliest_seq=bounds.earliest_seq,
        exported_first=lineage.first,
        verified_to=lineage.last,
        aged_to=source.seek(topic, now_ms - min_age_ms) - 1,
        readers={name: _position(published, name, topic, bounds.epoch) for name in readers},
    )
    return Plan(topic, bounds.epoch, bounds.earliest_seq, limits)


def _position(
    published: Mapping[str, Mapping[str, Position]], reader: str, topic: str, epoch: str
) -> int | None:
    found = published.get(reader, {}).get(topic)
    # A position in an instance that is gone says nothing of this one.
    return found.seq if found is not None and found.epoch in ("", epoch) else None


def carry_out(client: Client, plan: Plan) -> int:
    """Send the delete of a hand-off that is in the manifest; returns how many records it took.

    Raises:
        NotSafe: The server's topic is another one than the plan's.
        TopicsError: The server refused, or could not be reached.
    """
    topic, number = partition_of(plan.topic)
    state = client.topic(topic, touch=False)
    epochs = {each.partition: each.epoch for each in state.partitions} or {0: state.epoch}
    if epochs.get(number) != plan.epoch:
        raise NotSafe(
            f"{titled(plan.topic)} of {client.session.target.origin} is not the one that was exported"
        )
    partition = number if state.partitions else None
    return client.delete(topic, before_seq=plan.bound.before_seq, partition=partition).deleted
