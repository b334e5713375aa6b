"""The last task of a clean stop: bounded however many topics are unsealed (§8.2)."""

import pytest

from protocol.durable import Durable
from topics.protocol.maintenance import schedule
from topics.store.memory import MemoryFiles


class OtherBoot(MemoryFiles):
    """Files that a machine finds after it was started anew."""

    boots = b"0" * 16

    def boot_id(self) -> bytes:
        return self.boots


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Durable:
    """Three topics of each kind with unsealed records; a stop seals two topics at most."""
    monkeypatch.setattr(schedule, "LAST_TOPICS_MAX", 2)
    engine = Durable(OtherBoot())
    for n in range(3):
        for durability in ("memory", "disk", "fsync", "ephemeral"):
            engine.put(f"{durability}{n}", durability=durability)
            engine.append(1, 2, 3, name=f"{durability}{n}")
    return engine


def rebooted(engine: Durable) -> Durable:
    assert isinstance(engine.files, OtherBoot)
    engine.files.boots = b"1" * 16
    return engine.stop()


def test_many_topics_are_left_to_the_log(engine: Durable) -> None:
    """Nothing is sealed, and nothing is lost or called lost, whichever kernel starts next. (§0.10)"""
    again = rebooted(engine)
    assert again.recovery.clean
    assert not again.recovery.is_complete
    assert not again.engine.state.segments
    for n in range(3):
        for durability in ("memory", "disk", "fsync"):
            name = f"{durability}{n}"
            read = again.diff(name=name)
            assert [record["data"] for record in read["records"]] == [1, 2, 3]
            assert (read["tombstone"], read["head_seq"]) == (None, 3)
            assert again.append(4, name=name)["first_seq"] == 4


def test_what_was_in_memory_only_is_lost_and_its_seqs_are_not_given_again(engine: Durable) -> None:
    """The log does not know its head: it goes on behind what was reserved. (§0.10)"""
    again = rebooted(engine)
    read = again.diff(3, name="ephemeral1")
    assert read["records"] == []
    assert again.diff(name="ephemeral1")["tombstone"]["reason"] == "crash"
    assert again.append(4, name="ephemeral1")["first_seq"] > 3


def test_few_topics_are_sealed(engine: Durable) -> None:
    """And then every head is exact. (§0.10)"""
    for name in [name for name in engine.engine.state.topics if not name.endswith("0")]:
        engine.drop(name)
    engine.drop("memory0")
    again = rebooted(engine)
    assert again.recovery.is_complete
    assert again.engine.state.segments
    assert again.append(4, name="ephemeral0")["first_seq"] == 4
    assert [record["data"] for record in again.diff(name="disk0")["records"]] == [1, 2, 3]


def test_leases_that_are_in_no_log_are_worth_the_sealing(engine: Durable) -> None:
    """A clean stop keeps them. (§10.3)"""
    engine.put("q", type="queue")
    engine.append("job", name="q")
    claimed = engine.claim(name="q")["claimed"]
    again = rebooted(engine)
    assert again.recovery.is_complete
    assert again.ack(claimed[0]["$seq"], name="q")["acked"] == 1


def test_leases_that_are_in_the_log_are_not(engine: Durable) -> None:
    """They are replayed. (§10.3)"""
    engine.put("q", type="queue", leases_durable=True)
    engine.append("job", name="q")
    claimed = engine.claim(name="q")["claimed"]
    again = rebooted(engine)
    assert not again.recovery.is_complete
    assert again.ack(claimed[0]["$seq"], name="q")["acked"] == 1


def test_a_stop_that_takes_too_long_leaves_the_rest_to_the_log(
    engine: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it had sealed by then."""
    monkeypatch.setattr(schedule, "LAST_TOPICS_MAX", 100)
    monkeypatch.setattr(schedule, "LAST_MS", 0)
    again = rebooted(engine)
    assert again.recovery.clean
    assert not again.recovery.is_complete
    for n in range(3):
        assert [r["data"] for r in again.diff(name=f"disk{n}")["records"]] == [1, 2, 3]
