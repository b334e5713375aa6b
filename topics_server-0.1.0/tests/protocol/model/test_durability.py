"""The durability classes: every cell of their table, and what each cell means for a reader (§0.10)."""

from typing import get_args

import pytest

from protocol.durable import Durable
from protocol.harness import Harness
from protocol.viewers import Viewer
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.durability import (
    DURABILITIES,
    Durability,
    DurabilityClass,
    durability_of,
)
from topics.protocol.model.events import RecordsAppended, RecordsDeleted
from topics.protocol.model.outcomes import Gate

CLASSES: tuple[Durability, ...] = get_args(Durability)

CELLS = [
    ("ephemeral", "is_logged", False),  # §0.10: "appends/deletes skip the WAL"
    ("memory", "is_logged", True),  # §0.10: "the same group-committed WAL write"
    ("disk", "is_logged", True),  # §0.10: "written to the WAL"
    ("fsync", "is_logged", True),
    ("ephemeral", "waits_for_sync", False),  # §0.10: "never fsync-gated"
    ("memory", "waits_for_sync", False),  # §0.10: "never fsync-gated"
    ("disk", "waits_for_sync", False),  # §0.10: "the ack is not fsync-gated"
    ("fsync", "waits_for_sync", True),  # §0.10: "the ack is fsync-gated"
    ("ephemeral", "strong_waits_for_sync", False),  # §7.2: equals `eventual`
    ("memory", "strong_waits_for_sync", False),  # §7.2: equals `eventual`
    ("disk", "strong_waits_for_sync", True),  # §7.2: "push only after fsync/commit"
    ("fsync", "strong_waits_for_sync", True),
    ("ephemeral", "survives_kill", False),  # §0.10: "intentionally lost on restart"
    ("memory", "survives_kill", True),  # §0.10: "MAY survive"; the log's frames are there
    ("disk", "survives_kill", True),  # §0.10: "survives a crash"
    ("fsync", "survives_kill", True),
    ("ephemeral", "survives_power_loss", False),
    ("memory", "survives_power_loss", False),
    ("disk", "survives_power_loss", False),  # §0.10: "minus the un-fsynced tail"
    ("fsync", "survives_power_loss", True),  # §0.10: "survives any crash"
]


@pytest.mark.parametrize(("name", "question", "answer"), CELLS)
def test_a_class_is_its_row(name: Durability, question: str, answer: bool) -> None:
    """Each cell as the contract has it. (§0.10, §7.2)"""
    assert getattr(DURABILITIES[name], question) is answer


def test_every_cell_is_walked() -> None:
    """A class or a question that is added has to be decided here, too."""
    questions = set(DurabilityClass.__slots__) - {"name"}
    assert {(name, question) for name, question, _ in CELLS} == {
        (name, question) for name in CLASSES for question in questions
    }
    assert len(CELLS) == len(CLASSES) * len(questions)


@pytest.mark.parametrize("name", CLASSES)
def test_a_config_knows_its_class(name: Durability) -> None:
    """By the name that it echoes. (§0.10)"""
    assert TopicConfig(durability=name).durability_class is DURABILITIES[name]


def test_the_shorthand_names_a_class() -> None:
    """`durable: true` is `fsync`, `durable: false` is `disk`. (§0.10)"""
    assert [durability_of(durable=durable) for durable in (True, False)] == ["fsync", "disk"]


@pytest.mark.parametrize("name", CLASSES)
def test_appends_and_deletes_are_in_the_log_or_are_not(name: Durability) -> None:
    """The log holds what a restart is to find. (§0.10)"""
    engine = Harness()
    engine.put(durability=name)
    engine.append(1, 2)
    engine.delete(before_seq=2)

    kinds = [type(event) for event in engine.events]
    wanted = [RecordsAppended, RecordsDeleted] if DURABILITIES[name].is_logged else []
    assert [kind for kind in kinds if kind in (RecordsAppended, RecordsDeleted)] == wanted


@pytest.mark.parametrize("name", CLASSES)
def test_records_are_shown_when_their_class_says(name: Durability) -> None:
    """To `eventual` and to `strong`, after the write or after the sync. (§7.2)"""
    engine = Harness()
    engine.put(durability=name)
    engine.append("reserves the first seqs")
    eventual = Viewer(engine).open()
    strong = Viewer(engine, consistency="strong").open()
    eventual.told(), strong.told()
    engine.auto = False
    engine.append("new")
    engine.write()

    row = DURABILITIES[name]
    assert bool(eventual.told()) is not row.waits_for_sync
    assert bool(strong.told()) is not row.strong_waits_for_sync
    engine.sync()
    assert engine.seqs() == [1, 2]


def test_a_record_of_the_class_before_is_strong_after_its_sync() -> None:
    """A change to `fsync` in the same turn makes no record durable that only is written. (§7.2)"""
    engine = Harness()
    engine.put(durability="disk")
    engine.append("reserves the first seqs")
    strong = Viewer(engine, consistency="strong").open()
    strong.told()
    engine.auto = False
    engine.append("new")
    engine.put(durability="fsync")
    engine.write()
    assert strong.told() == []

    engine.sync()
    assert strong.told() == ["t 2"]


@pytest.mark.parametrize("name", CLASSES)
def test_a_kill_leaves_what_survives_it(name: Durability) -> None:
    """Of a class that does not, the loss is explicit. (§0.10, §3.3)"""
    engine = Durable()
    engine.put(durability=name)
    engine.append(1, 2)
    found = engine.kill().diff()

    if DURABILITIES[name].survives_kill:
        assert [record["$seq"] for record in found["records"]] == [1, 2]
        assert found["tombstone"] is None
    else:
        assert found["records"] == []
        assert found["tombstone"]["reason"] == "crash"


def test_an_answer_waits_for_what_its_class_says() -> None:
    """For the write, or in class `fsync` for the sync. (§0.6)"""
    for name in CLASSES:
        engine = Harness()
        engine.put(durability=name)
        engine.append("reserves the first seqs")
        wanted = Gate.SYNCED if DURABILITIES[name].waits_for_sync else Gate.WRITTEN
        assert engine.engine.unit.repeated(engine.topic()) is wanted
