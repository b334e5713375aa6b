"""Publication: which head is shown after which report of the log (§0.6)."""

from typing import Any

import pytest

from topics.protocol.commit.publication import Publication
from topics.protocol.model.config import TopicConfig
from topics.protocol.state.topic import Topic


class Log:
    """A publication without an engine, and a topic whose head a test moves."""

    def __init__(self, durability: Any = "disk", reserved: int = 100) -> None:
        self.told: list[str] = []
        self.publication = Publication(
            lambda topic: self.told.append(f"shown {topic.published_seq}"),
            lambda topic: self.told.append(f"durable {topic.synced_seq}"),
        )
        self.topic = Topic(1, "t", TopicConfig(durability=durability), "e")
        self.topic.reserve(reserved, 0)
        self.topic.note_reserved_durably(reserved)
        self.lsn = 0

    def append(self, through: int) -> bool:
        """Whether the new head waits for a sync."""
        self.topic.head_seq = through
        self.topic.reserve(through, 0)
        return self.publication.plan(self.topic)

    def write(self) -> None:
        self.lsn += 1
        self.publication.on_taken()
        self.publication.on_written(self.lsn)

    def sync(self) -> None:
        self.publication.on_synced(self.lsn)


def test_a_head_is_shown_with_its_write_and_durable_with_its_sync() -> None:
    """In class `disk`. (§0.10)"""
    log = Log()
    assert not log.append(3)
    assert log.topic.published_seq == 0
    log.write()
    assert (log.topic.published_seq, log.topic.synced_seq) == (3, 0)
    log.sync()
    assert log.topic.synced_seq == 3
    assert log.told == ["shown 3", "durable 3"]


def test_a_head_of_class_fsync_is_shown_with_its_sync() -> None:
    """Nothing is read that a power loss takes back. (§0.10)"""
    log = Log("fsync")
    assert log.append(3)
    log.write()
    assert log.topic.published_seq == 0
    log.sync()
    assert (log.topic.published_seq, log.topic.synced_seq) == (3, 3)


def test_a_seq_that_is_not_durably_reserved_waits_for_a_sync() -> None:
    """Else it could be given to another record after a power loss. (§0.5)"""
    log = Log(reserved=4)
    assert not log.append(4)
    assert log.append(5)
    log.publication.reserved(log.topic)
    log.write()
    # In one unit, what the write is enough for is shown with it.
    assert log.topic.published_seq == 4
    log.sync()
    assert log.topic.published_seq == 5
    assert log.topic.reserved_durably == 5


def test_nothing_passes_an_earlier_head_that_waits() -> None:
    """Also where the class changed meanwhile, in the next unit and in the one after."""
    log = Log("fsync")
    log.append(1)
    log.publication.on_taken()
    log.topic.configure(TopicConfig(durability="disk"))
    assert log.append(2)
    log.publication.on_written(1)
    log.lsn = 1
    assert log.append(3)
    log.write()
    assert log.topic.published_seq == 0
    log.publication.on_synced(1)
    assert log.topic.published_seq == 1
    log.sync()
    assert log.topic.published_seq == 3


def test_a_topic_held_back_shows_nothing_before_the_sync() -> None:
    """After a change of its class, what was appended under it. (§0.10)"""
    log = Log()
    log.publication.hold_back(log.topic)
    assert log.append(2)
    log.write()
    assert log.topic.published_seq == 0
    log.sync()
    assert log.topic.published_seq == 2


def test_a_deleted_topic_shows_nothing_more() -> None:
    """Whatever of it was on its way. (§1.4)"""
    log = Log("fsync")
    log.append(1)
    log.write()
    log.append(2)
    log.publication.on_taken()
    log.append(3)
    log.publication.drop(log.topic)
    log.publication.on_written(2)
    log.publication.on_synced(2)
    assert log.told == []


def test_a_failure_freezes_what_is_shown() -> None:
    """Reads go on with it. (§0.5)"""
    log = Log("fsync")
    log.append(1)
    log.write()
    log.append(2)
    log.publication.on_failed()
    log.publication.on_synced(9)
    assert (log.topic.published_seq, log.told) == (0, [])


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_recovery_shows_all_that_it_found(durability: str) -> None:
    """It is there, and as durable as it will ever be. (§0.5)"""
    log = Log(durability, reserved=9)
    log.append(7)
    log.publication.show_all(log.topic)
    log.write()
    topic = log.topic
    assert (topic.published_seq, topic.synced_seq, topic.reserved_durably) == (7, 7, 9)


def test_what_is_written_and_not_shown_is_named() -> None:
    """By topic, with the head that it shows; nothing is, once it is synced, or its topic dropped."""
    log = Log("fsync")
    assert log.publication.held() == {}
    log.append(3)
    assert log.publication.held() == {}
    log.write()
    assert log.publication.held() == {1: 0}
    log.sync()
    assert log.publication.held() == {}
    log.append(5)
    log.write()
    assert log.publication.held() == {1: 3}
    log.publication.drop(log.topic)
    assert log.publication.held() == {}


def test_a_head_that_needed_a_sync_which_is_over_is_shown_with_its_unit() -> None:
    """An append in memory only was decided while an earlier one waited for a sync, and that sync was
    over before its unit was taken: nothing of the unit is in the log, so no sync follows that would
    show it. (§0.6)"""
    log = Log("ephemeral", reserved=0)
    assert log.append(1)
    log.write()
    assert log.append(2)
    log.sync()
    assert log.topic.published_seq == 1

    log.publication.on_taken()
    log.publication.on_written(log.lsn)

    assert log.topic.published_seq == 2
    assert log.publication.held() == {}
