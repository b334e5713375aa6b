"""The hand-off: how far a topic may be deleted, and that it is the right one."""

from collections.abc import Iterator
from typing import Any

import pytest

from topics.arrow.readers import Position, publish
from topics.export.handoff import NotSafe
from topics.export.loading import load
from topics.export.manifest import Settings
from topics.export.then_delete import Plan, carry_out, plan
from topics.testing import MemoryTopics

from .exporting import PARQUET, export, remote
from .lakes import MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    """Ten records, of which five are an hour older than the others; exported."""
    with MemoryTopics() as memory:
        memory.client.append("t", *range(5))
        memory.advance(ms=3_600_000)
        memory.client.append("t", *range(5))
        yield memory


def planned(memory: MemoryTopics, *, settings: Settings = PARQUET, **given: Any) -> Plan:
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, settings=settings, **given.pop("job", {}))
        wanted = {"readers": (), "min_age_ms": 0, "now_ms": memory.now_ms} | given
        return plan(source, settings, load(lake).current("t"), "t", **wanted)


def test_only_old_records_go(memory: MemoryTopics) -> None:
    """Records go that are as old as asked."""
    memory.advance(ms=10)
    assert planned(memory).bound.before_seq == 11
    found = planned(memory, min_age_ms=60_000)
    assert (found.bound.before_seq, found.bound.limit) == (6, "age")
    assert planned(memory, min_age_ms=86_400_000).is_empty


def test_only_what_readers_have_dealt_with(memory: MemoryTopics) -> None:
    """In this instance of the topic."""
    memory.advance(ms=10)
    epoch = memory.client.topic("t").epoch or ""
    publish(memory.client, "billing", {"t": Position(3, epoch)})
    publish(memory.client, "old", {"t": Position(9, "another instance")})
    assert planned(memory, readers=("billing",)).bound.before_seq == 4
    for unknown in ("old", "nobody"):
        with pytest.raises(NotSafe, match=f'reader "{unknown}" has published no position'):
            planned(memory, readers=("billing", unknown))


def test_an_export_that_is_not_of_all(memory: MemoryTopics) -> None:
    """What it lacks would be deleted with the rest."""
    with pytest.raises(NotSafe, match="an export of some tags"):
        planned(memory, settings=Settings("parquet", "none", tag_prefix="a"))
    with pytest.raises(NotSafe, match="begins with seq 3, and records from 1 on"):
        planned(memory, job={"start": 3})


def test_another_topic_is_not_deleted(memory: MemoryTopics) -> None:
    """Neither when it is planned, nor when it is carried out."""
    memory.advance(ms=10)
    found = planned(memory)
    memory.client.delete_topic("t")
    memory.client.append("t", 1)
    with pytest.raises(NotSafe, match="is not the one that was exported"):
        carry_out(memory.client, found)
    with remote(memory) as source, pytest.raises(NotSafe, match="is not the one"):
        plan(source, PARQUET, None, "t", readers=(), min_age_ms=0, now_ms=memory.now_ms)
    assert memory.client.topic("t").count == 1


def test_it_is_carried_out(memory: MemoryTopics) -> None:
    """And tells how many records there were."""
    memory.advance(ms=10)
    memory.client.delete("t", before_seq=3)
    assert carry_out(memory.client, planned(memory)) == 8
    assert memory.client.topic("t").count == 0
