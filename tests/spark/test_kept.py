"""What a worker keeps between tasks: it reads what a task that opens the directory itself would."""

import gc
import random
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arrow.writer import as_rows, writer
from protocol.durable import Durable

from topics.arrow.columns import FIELDS, schema
from topics.arrow.local import LocalSource
from topics.arrow.scan import Range
from topics.arrow.source import Consistency, TopicSource, Wanted
from topics.protocol.model.errors import Unusable
from topics.spark import kept
from topics.spark.options import Place
from topics.spark.places import open_place

ALL = Wanted(schema(list(FIELDS)))


@pytest.fixture
def engine(tmp_path: Path) -> Durable:
    engine = writer(tmp_path / "data", segment_max_records=64)
    engine.append(*range(10))
    engine.store.idle()
    return engine


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Place]]:
    """This process is a worker's; the places that it opened, in order."""
    made: list[Place] = []

    def noted(place: Place) -> TopicSource:
        made.append(place)
        return open_place(place)

    monkeypatch.setattr(kept, "open_place", noted)
    monkeypatch.setattr(kept, "_is_worker", lambda: True)
    yield made
    while kept._kept:
        kept._kept.popitem()[1].close()
    gc.unfreeze()


def place_of(engine: Durable, consistency: Consistency | None = None) -> Place:
    return Place(path=str(engine.files.path), access="local", consistency=consistency)


def through(engine: Durable, last_seq: int) -> list[Range]:
    return [Range("t", engine.topic().epoch, 1, last_seq)]


def task(place: Place, items: list[Range]) -> Any:
    with kept.opened(place, items) as source:
        return as_rows(source.read("t", 1, 1 << 40, ALL))


def anew(place: Place) -> Any:
    with LocalSource(place.path or "", consistency=place.consistency or "durable") as source:
        return as_rows(source.read("t", 1, 1 << 40, ALL))


def test_the_next_task_finds_the_directory_open(engine: Durable, opens: list[Place]) -> None:
    """And sees what was appended and deleted in between."""
    place = place_of(engine)
    assert len(task(place, through(engine, 10))) == 10
    engine.append(*range(5))
    engine.delete(before_seq=4)
    engine.store.idle()

    assert task(place, through(engine, 15)) == anew(place)
    assert opens == [place]


@pytest.mark.parametrize("consistency", ["durable", "visible"])
@pytest.mark.parametrize("seed", range(4))
def test_a_task_sees_what_one_that_opens_the_directory_sees(
    engine: Durable, opens: list[Place], seed: int, consistency: Consistency
) -> None:
    """Whatever was appended, deleted, sealed, synced or retired between two tasks."""
    chance = random.Random(seed)
    place = place_of(engine, consistency)
    tasks = 0
    for _ in range(80):
        match chance.randrange(6):
            case 0 | 1:
                engine.append(*range(chance.randrange(1, 200)))
            case 2:
                engine.delete(before_seq=max(engine.topic().head_seq - 50, 1))
            case 3:
                engine.seal_all()
            case 4:
                engine.store.idle()
            case 5:
                engine.sync()
        if chance.random() < 0.5:
            tasks += 1
            assert task(place, through(engine, 1)) == anew(place)
    assert len(opens) < tasks


def test_a_directory_that_was_replaced_is_opened_anew(
    engine: Durable, opens: list[Place], tmp_path: Path
) -> None:
    """By its records a task can't tell a restored copy from the directory that it had open."""
    place = place_of(engine)
    task(place, through(engine, 10))
    other = writer(tmp_path / "other")
    other.append("other")
    other.store.idle()
    (tmp_path / "data").rename(tmp_path / "old")
    (tmp_path / "other").rename(tmp_path / "data")

    assert [row["data"] for row in task(place, through(other, 1))] == ["other"]


def test_a_task_opens_what_has_not_come_as_far_as_its_plan(
    engine: Durable, opens: list[Place]
) -> None:
    """It would tell of a loss that there is none; or it is one, which another source confirms."""
    place = place_of(engine)
    task(place, through(engine, 10))
    task(place, through(engine, 11))
    assert opens == [place, place]

    [whole] = through(engine, 10)
    task(place, [Range("t", "another", 1, 10)])
    task(place, [Range("gone", whole.epoch, 1, 10)])
    assert len(opens) == 4


def test_a_directory_that_is_gone_is_an_error(
    engine: Durable, opens: list[Place], tmp_path: Path
) -> None:
    """That of opening it: what was kept is not read in its place."""
    place = place_of(engine)
    task(place, through(engine, 10))
    (tmp_path / "data").rename(tmp_path / "away")

    for _ in range(2):
        with pytest.raises(Unusable, match="No such file"):
            task(place, through(engine, 10))


def test_one_place_is_kept(engine: Durable, opens: list[Place], tmp_path: Path) -> None:
    """What a process has open may hold space on the disk: the one before is closed and forgotten."""
    place = place_of(engine)
    task(place, through(engine, 10))
    before = weakref.ref(kept._kept[place])
    other = writer(tmp_path / "other")
    other.append(0)
    other.store.idle()

    task(place_of(other), through(other, 1))
    assert list(kept._kept) == [place_of(other)]
    assert before() is None


def test_a_task_that_fails_keeps_nothing(engine: Durable, opens: list[Place]) -> None:
    """Nor does one that Spark ends early: in what state the source is, no one knows."""
    place = place_of(engine)
    task(place, through(engine, 10))
    with pytest.raises(RuntimeError), kept.opened(place, through(engine, 10)):
        raise RuntimeError("the sink failed")
    assert not kept._kept


def test_outside_a_worker_nothing_is_kept(
    engine: Durable, opens: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that reads a part itself has no next task, and its garbage is its own."""
    monkeypatch.setattr(kept, "_is_worker", lambda: False)
    before = gc.get_freeze_count()
    task(place_of(engine), through(engine, 10))
    assert not kept._kept
    assert gc.get_freeze_count() == before


def test_a_collection_looks_at_what_came_since(engine: Durable, opens: list[Place]) -> None:
    """PySpark collects after every task; what the process had before is left out, once."""
    place = place_of(engine)
    task(place, through(engine, 10))
    spared = gc.get_freeze_count()
    assert spared > len(gc.get_objects())

    task(place, through(engine, 10))
    assert gc.get_freeze_count() <= spared
