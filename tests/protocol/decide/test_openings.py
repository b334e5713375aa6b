"""Runs of record batches are opened on a thread, whoever stands before them: no turn of the loop takes that long (§3)."""

from collections.abc import Iterator
from typing import Any

import pytest

from protocol.durable import Durable
from protocol.viewers import Viewer
from topics.protocol.model.commands import DeleteRouter, ReadPage
from topics.protocol.model.errors import Corrupt, DamagedRun, Rejection
from topics.protocol.model.outcomes import Parked, StablePage
from topics.protocol.state import packed_run
from topics.protocol.state.packed_run import PackedRun
from topics.store.packed_runs import PackedSealedRun

from .test_batches import put, sealed, values

MANY = 200
VALUES = [b"%d" % nth for nth in range(MANY)]


class Threaded(Durable):
    """Notes whether a thread is at work."""

    is_thread = False

    def read_fetches(self) -> None:
        for fetch in self.engine.take_fetches():
            Threaded.is_thread = True
            found = fetch.read()
            Threaded.is_thread = False
            fetch.done(found)


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A batch of many records that is opened beside a thread fails the test; so does a segment's."""
    for kind in (PackedRun, PackedSealedRun):
        own = kind._text_of

        def text_of(self: Any, place: Any, own: Any = own) -> Any:
            assert Threaded.is_thread or place.records <= packed_run.OPENED_AT_ONCE
            return own(self, place)

        monkeypatch.setattr(kind, "_text_of", text_of)
    yield
    Threaded.is_thread = False


@pytest.fixture(params=[False, True])
def engine(request: pytest.FixtureRequest) -> Threaded:
    """With many records that came by Kafka, in memory or in a segment."""
    made = Threaded()
    made.put("t")
    put(made, *values(*VALUES))
    if request.param:
        sealed(made)
    return made


def datas(records: Any) -> list[bytes]:
    return [str(each["data"]).encode() for each in records]


def test_a_page_of_a_cache_is_filled_in_parts(engine: Threaded) -> None:
    """And the next one, which finds the run open, is the same. (§3.4)"""
    command = ReadPage("t", 0, 1000, 1 << 20, False, True, None)
    assert isinstance(engine.ask(command), Parked)
    engine.work_off()
    (wake,) = engine.engine.take_wakes()
    again = engine.ask(command)
    assert isinstance(wake.result, StablePage)
    assert isinstance(again, StablePage)
    assert (again.tag, again.next_seq) == (wake.result.tag, MANY)


def test_a_stream_catches_up_and_gets_news(engine: Threaded) -> None:
    """It waits while a thread opens what it stands before. (§7)"""
    viewer = Viewer(engine, "t", limit=1000).open()
    assert viewer.told() == []
    engine.work_off()
    assert viewer.told() == ["t 1-200", "t caught up at 200"]
    put(engine, *values(*VALUES))
    assert viewer.told() == []
    engine.work_off()
    assert viewer.told() == ["t 201-400"]


def test_a_long_poll_is_answered_once_its_records_are_open(engine: Threaded) -> None:
    assert engine.wait(MANY) is None
    put(engine, *values(*VALUES))
    assert engine.woken() == []
    engine.work_off()
    (page,) = engine.woken()
    assert datas(page["records"]) == VALUES[: len(page["records"])]


def test_a_long_poll_for_a_tag_waits_on(engine: Threaded) -> None:
    """What came is not for it. (§3)"""
    assert engine.wait(MANY, match="other") is None
    put(engine, *values(*VALUES))
    engine.work_off()
    assert engine.woken() == []
    put(engine, (b"other", b"1", (), 0))
    engine.work_off()
    (page,) = engine.woken()
    assert datas(page["records"]) == [b"1"]


def test_a_router_copies_once_its_source_is_open(engine: Threaded) -> None:
    engine.put("d")
    engine.route("r", "t", "d")
    put(engine, *values(*VALUES))
    engine.work_off()
    assert datas(engine.diff(0, name="d", limit=1000)["records"]) == VALUES


def test_a_run_that_cannot_be_opened_is_told(
    engine: Threaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its damage, to each that stands before it; nobody waits for ever. (§9)"""

    def broken(self: object) -> None:
        raise DamagedRun(Corrupt("a.seg", 7, "digest"), 1, MANY)

    engine.put("d")
    engine.route("r", "t", "d")
    put(engine, *values(*VALUES))
    for kind in (PackedRun, PackedSealedRun):
        monkeypatch.setattr(kind, "warm", broken)
        monkeypatch.setattr(kind, "_whole", broken)
    viewer = Viewer(engine, topics={"t": {"from_seq": MANY}}).open()
    viewer.frames()
    engine.work_off()
    assert any("Damaged" in type(each).__name__ for each in viewer.frames())
    assert engine.router("r")["blocked"] is not None
    found = engine.ask(ReadPage("t", MANY, 1000, 1 << 20, False, True, None))
    assert isinstance(found, Parked)
    engine.work_off()
    assert any(isinstance(wake.result, Rejection) for wake in engine.engine.take_wakes())


def test_streams_wait_together(engine: Threaded) -> None:
    """One thread opens the run for both."""
    viewers = [Viewer(engine, "t", limit=1000).open() for _ in range(2)]
    assert [viewer.told() for viewer in viewers] == [[], []]
    assert len(engine.engine.unit.fetches) == 1
    engine.work_off()
    assert [viewer.told() for viewer in viewers] == [["t 1-200", "t caught up at 200"]] * 2


def test_a_router_that_is_deleted_meanwhile_is_over(engine: Threaded) -> None:
    engine.put("d")
    engine.route("r", "t", "d")
    put(engine, *values(*VALUES))
    engine.engine.work_off(engine.moment)
    (opening,) = engine.engine.take_fetches()
    # Whoever deletes it does not wait for its copies.
    engine.engine.submit(DeleteRouter("r"), token=0, moment=engine.moment)
    engine.sync()
    Threaded.is_thread = True
    found = opening.read()
    Threaded.is_thread = False
    opening.done(found)
    engine.work_off()
    assert engine.diff(0, name="d")["records"] == []
