"""How what is owed is worked off: slices, turns among routers, text that a disk holds (§6.1)."""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from protocol.harness import Harness, tagged
from topics.protocol.commit.copies import SHARED_BYTES
from topics.protocol.decide.forwarding import (
    SLICE_LOOKS,
    SLICE_ROUTERS,
    SLICE_ROWS,
    VISIT_ROWS,
    _Plan,
)
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import CursorsMoved, RecordsAppended
from topics.protocol.model.outcomes import Fetch
from topics.protocol.model.ports import Extent
from topics.store.runs import SealedRun


@pytest.fixture
def engine() -> Harness:
    harness = Harness()
    harness.put("s")
    harness.put("d")
    harness.route()
    return harness


def slice_of(engine: Harness) -> list[Any]:
    """The events of one slice of work, written."""
    before = len(engine.events)
    engine.engine.work_off(engine.moment)
    engine.sync()
    return engine.events[before:]


def copied(events: Sequence[Any]) -> dict[int, int]:
    """Records appended, by topic."""
    found: dict[int, int] = {}
    for event in events:
        if isinstance(event, RecordsAppended):
            found[event.topic_id] = found.get(event.topic_id, 0) + len(event.batch)
    return found


def backlog(engine: Harness, records: int, name: str = "s") -> None:
    for first in range(0, records, 1000):
        engine.append(*range(first, min(first + 1000, records)), name=name)


# -- slices --------------------------------------------------------------------------------


def test_a_slice_is_bounded_by_records(engine: Harness) -> None:
    """And each pass of it is one entry of the log, cursor included. (§6.1)"""
    backlog(engine, 5000)

    first = slice_of(engine)

    assert [len(event.batch) for event in first] == [VISIT_ROWS] * (SLICE_ROWS // VISIT_ROWS)
    assert [event.cause.cursor for event in first] == [1000, 2000]
    assert [len(slice_of(engine)), len(slice_of(engine)), engine.engine.has_work()] == [2, 1, False]
    assert engine.datas() == list(range(5000))


def test_the_last_router_that_goes_leaves_nothing_behind(engine: Harness) -> None:
    """Not its turn, and not the text of what was copied last, though no other router ever comes. (§6.4)"""
    backlog(engine, 5000)
    slice_of(engine)
    forwarding = engine.engine.router_commands._forwarding
    assert forwarding._same is not None

    engine.unroute()
    while engine.engine.has_work():
        slice_of(engine)

    assert forwarding._same is None
    assert not forwarding.due
    assert not forwarding._rounds


def test_a_slice_is_bounded_by_text(engine: Harness) -> None:
    """Large records go a few at a time, and one that is larger than any slice by itself."""
    engine.append(*["x" * 300_000] * 4, name="s")
    engine.append("y" * 1_000_000, name="s")

    sizes = []
    while engine.engine.has_work():
        sizes += [len(event.batch) for event in slice_of(engine)]

    assert sizes == [1, 1, 1, 1, 1]


def test_a_slice_is_bounded_by_routers(engine: Harness) -> None:
    """A write to a source of many routers marks it, and no more; slices go round."""
    for i in range(200):
        engine.route(f"r{i}", "s", f"d{i}")
    engine.work_off()
    engine.append(1, name="s")

    slices = []
    while engine.engine.has_work():
        slices.append(sum(copied(slice_of(engine)).values()))

    assert slices[:3] == [SLICE_ROUTERS] * 3
    assert sum(slices) == 201
    assert {engine.state(f"d{i}")["count"] for i in range(200)} == {1}


def test_a_slice_is_bounded_by_looks(engine: Harness) -> None:
    """A router that has nothing to do costs a look, and a slice has a bounded number of those, too."""
    for i in range(SLICE_LOOKS + 100):
        engine.route(f"r{i}", "s", f"d{i}")
    engine.work_off()
    engine.route("last", "s", "d")
    routers = engine.engine.router_commands

    assert slice_of(engine) == []
    assert routers.wants_to_copy()
    assert slice_of(engine) == []
    assert not routers.wants_to_copy()


def test_cursors_that_only_moved_are_told_together(engine: Harness) -> None:
    """One event a slice for the routers that had nothing to copy; none where nothing moved."""
    for i in range(5):
        engine.route(f"f{i}", "s", f"d{i}", filter="t")
    engine.work_off()
    engine.append(1, 2, name="s")

    events = slice_of(engine)

    moved = [event for event in events if isinstance(event, CursorsMoved)]
    assert [[(cursor, copies) for _, cursor, copies in event.moves] for event in moved] == [
        [(2, 0)] * 5
    ]
    assert slice_of(engine) == []


def test_a_loss_at_the_end_of_a_source_moves_the_cursor_by_itself(engine: Harness) -> None:
    """All that was left is lost: the event of the loss says where the router stands, and no other
    one says it again. (§3.3)"""
    engine.put("s", ttl_ms=100)
    engine.auto = False
    engine.append(1, 2, name="s")
    engine.sync()
    engine.now_ms += 200

    events = slice_of(engine)

    assert [event for event in events if isinstance(event, CursorsMoved)] == []
    engine.auto = True
    assert engine.router()["cursor"] == 2
    assert engine.router()["lost_total"] == 2


def test_a_long_backlog_of_one_holds_nobody_up(engine: Harness) -> None:
    """Sources take turns, a pass each; so do the routers of a source."""
    engine.put("s2")
    engine.route("r2", "s", "e")
    engine.route("r3", "s2", "f")
    backlog(engine, 4000)
    engine.append("one", name="s2")

    first = slice_of(engine)

    assert copied(first)[engine.topic("f").topic_id] == 1
    assert copied(first)[engine.topic("d").topic_id] == 1000
    second = slice_of(engine)
    assert copied(second)[engine.topic("e").topic_id] == 1000


def test_a_chain_moves_a_link_with_each_write(engine: Harness) -> None:
    """What was copied is owed on once it is shown. (§6)"""
    engine.route("r2", "d", "e")
    engine.work_off()
    engine.append(1, name="s")

    assert copied(slice_of(engine)) == {engine.topic("d").topic_id: 1}
    assert copied(slice_of(engine)) == {engine.topic("e").topic_id: 1}
    assert slice_of(engine) == []


def test_nothing_is_due_where_nothing_is_routed() -> None:
    """A topic without routers costs nothing."""
    engine = Harness()
    engine.append(1, name="x")

    assert not engine.engine.has_work()
    assert engine.engine.alarm_ms() is None


def test_a_router_that_went_is_passed_over(engine: Harness) -> None:
    """In the middle of a round."""
    for i in range(100):
        engine.route(f"r{i}", "s", f"d{i}")
    engine.work_off()
    engine.append(1, name="s")
    slice_of(engine)
    engine.auto = False
    gone = next(i for i in range(100) if not engine.topic(f"d{i}").head_seq)
    engine.drop(f"d{gone}")
    engine.unroute(f"r{(gone + 1) % 100}")
    engine.auto = True

    engine.work_off()

    left = [engine.state(f"d{i}")["count"] for i in range(100) if i != gone]
    assert sum(left) >= 98


# -- text that has to be waited for --------------------------------------------------------


class Cold:
    """An engine whose sealed runs are out of memory until somebody fetches them."""

    def __init__(self, engine: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        monkeypatch.setattr(SealedRun, "read", lambda self, spans: None)

    def begun(self) -> list[Fetch]:
        slice_of(self.engine)
        return self.engine.engine.take_fetches()

    def end(self, fetch: Fetch) -> list[Any]:
        fetch.done(fetch.read())
        return slice_of(self.engine)


@pytest.fixture
def cold(engine: Harness, monkeypatch: pytest.MonkeyPatch) -> Cold:
    """Six records that lie on a disk, and none of them copied."""
    engine.auto = False
    engine.append(*(tagged(f"t{i}", i) for i in range(1, 7)), name="s")
    engine.sync()
    engine.seal_all()
    cold = Cold(engine, monkeypatch)
    assert engine.engine.has_work()
    return cold


def shown(engine: Harness) -> list[Any]:
    return [record["data"] for record in engine.diff(name="d")["records"]]


def test_a_pass_waits_for_the_disk_alone(cold: Cold) -> None:
    """Nothing is owed meanwhile that could be done; then the pass goes on. (§6)"""
    engine = cold.engine
    (fetch,) = cold.begun()
    assert (engine.engine.has_work(), cold.begun()) == (False, [])

    cold.end(fetch)

    assert shown(engine) == [1, 2, 3, 4, 5, 6]
    assert engine.router()["cursor"] == 6


def test_what_is_written_meanwhile_comes_after(cold: Cold) -> None:
    """In order, with the next pass."""
    (fetch,) = cold.begun()
    cold.engine.append(7, name="s")
    slice_of(cold.engine)
    assert shown(cold.engine) == []

    cold.end(fetch)
    cold.engine.work_off()

    assert shown(cold.engine) == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_deleted_meanwhile_is_not_copied(cold: Cold) -> None:
    """Its text had been read by then. (§5)"""
    (fetch,) = cold.begun()
    texts = fetch.read()
    cold.engine.delete("s", match="t3")
    cold.engine.delete("s", match="t6")
    cold.engine.sync()

    fetch.done(texts)
    slice_of(cold.engine)

    assert shown(cold.engine) == [1, 2, 4, 5]
    assert cold.engine.router()["cursor"] == 6


@pytest.mark.parametrize("before", [True, False])
def test_what_was_read_for_a_router_goes_with_it(cold: Cold, before: bool) -> None:
    """Whether its destination goes before the text comes or after: nobody keeps it. (§1.4)"""
    (fetch,) = cold.begun()
    texts = fetch.read()
    assert isinstance(texts, list)
    texts.append([numbers := np.zeros(1)])  # the text of a run, of which it is known who holds it
    kept = weakref.ref(numbers)
    del numbers
    if before:
        cold.engine.drop("d")
    fetch.done(texts)
    if not before:
        cold.engine.drop("d")
    cold.engine.work_off()

    del texts, fetch
    gc.collect()

    assert kept() is None


def test_all_of_it_may_be_deleted_meanwhile(cold: Cold) -> None:
    """The cursor goes on."""
    (fetch,) = cold.begun()
    texts = fetch.read()
    cold.engine.delete("s", match="t*")
    cold.engine.sync()

    fetch.done(texts)
    slice_of(cold.engine)

    assert (shown(cold.engine), cold.engine.router()["lag"]) == ([], 0)


def test_what_is_evicted_meanwhile_is_told_lost(cold: Cold) -> None:
    """And what is left is copied from what was read, or a busy source would never let it. (§3.3)"""
    (fetch,) = cold.begun()
    texts = fetch.read()
    cold.engine.put("s", cap_records=3)
    cold.engine.sync()

    fetch.done(texts)
    slice_of(cold.engine)

    assert cold.engine.engine.take_fetches() == []
    page = cold.engine.diff(name="d")
    assert page["tombstone"]["gap_to"] == 3
    assert [record["data"] for record in page["records"]] == [4, 5, 6]


def test_runs_may_be_written_anew_meanwhile(cold: Cold) -> None:
    """Seqs tell which records they are, not the run they were read from."""
    (fetch,) = cold.begun()
    texts = fetch.read()
    cold.engine.delete("s", match="t2")
    cold.engine.sync()
    cold.engine.rewrite("s")

    fetch.done(texts)
    slice_of(cold.engine)

    assert shown(cold.engine) == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("change", ["filter", "gone", "topic"])
def test_what_was_read_for_another_router_is_dropped(cold: Cold, change: str) -> None:
    """Deleted, or of another config, by the time its text came."""
    engine = cold.engine
    (fetch,) = cold.begun()
    texts = fetch.read()
    if change == "filter":
        engine.route(filter="t4")
    elif change == "gone":
        engine.unroute()
    else:
        engine.drop("s")
    engine.sync()

    fetch.done(texts)
    engine.work_off()

    assert shown(engine) == ([4] if change == "filter" else [])


def test_damage_blocks_the_router_and_says_where(cold: Cold) -> None:
    """It is tried again, with backoff. (§6)"""
    engine = cold.engine
    (fetch,) = cold.begun()

    fetch.done(Corrupt("0000000001.seg", 77, "a digest"))
    slice_of(engine)

    blocked = engine.router()["blocked"]
    assert blocked["code"] == "internal"
    assert "corrupt at byte 77" in blocked["message"]
    assert not engine.engine.has_work()
    engine.now_ms += 50
    (again,) = cold.begun()
    cold.end(again)
    assert shown(engine) == [1, 2, 3, 4, 5, 6]
    assert engine.router()["blocked"] is None


def test_damage_that_is_met_at_once_blocks_too(
    engine: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the page cache had it."""
    engine.auto = False
    engine.append(1, name="s")
    engine.sync()

    def read(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(engine.topic("s").runs[0], "read", read, raising=False)
    slice_of(engine)

    assert "Input/output error" in engine.router()["blocked"]["message"]


def test_all_of_one_run_may_be_deleted_meanwhile(cold: Cold) -> None:
    """What was read of the other is copied, and no text is asked for again."""
    engine = cold.engine
    engine.append(tagged("u", 7), tagged("u", 8), name="s")
    engine.sync()
    engine.seal_all()
    assert len(engine.topic("s").runs) == 2
    (fetch,) = cold.begun()
    texts = fetch.read()
    engine.delete("s", match="u")
    engine.sync()

    fetch.done(texts)
    slice_of(engine)

    assert engine.engine.take_fetches() == []
    assert shown(engine) == [1, 2, 3, 4, 5, 6]


def test_text_of_more_than_was_read_is_read_anew(engine: Harness) -> None:
    """A ring that was opened meanwhile lets records through that were left out before. (§6.1)"""
    engine.append("a", "b", "c", name="s")
    [run] = engine.topic("s").runs
    wanted = [Extent(run, [(0, 3)])]
    plan = _Plan([Extent(run, [(0, 1)])], 3)
    plan.texts = [run.read_blocking([(0, 1)])]
    forwarding = engine.engine.router_commands._forwarding
    router = engine.engine.state.routers.by_name["r"]

    found = forwarding._texts(router, wanted, plan)

    assert found == (wanted, [run.read_blocking([(0, 3)])])


# -- large records -------------------------------------------------------------------------


def star(engine: Harness, routers: int, **fields: object) -> list[str]:
    """A source with so many routers; the names of their destinations."""
    names = [f"d{i}" for i in range(routers)]
    for name in names:
        engine.put(name)
        engine.route(f"to-{name}", "s", name, **fields)
    engine.work_off()
    return names


def held(engine: Harness, names: Sequence[str]) -> set[int]:
    """The large pieces of memory that topics hold, each named once."""
    found = set()
    for name in names:
        for run in engine.topic(name).runs:
            for view in (run.views([(0, run.count)]) or [[]])[0]:
                assert isinstance(view, memoryview)
                if len(view) >= SHARED_BYTES:
                    found.add(id(view.obj))
    return found


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_large_record_is_in_memory_once_however_many_have_it(
    engine: Harness, guarantee: str
) -> None:
    """Every destination refers to the source's bytes, reads as if it had its own, and counts them as
    its own, so that memory is never more than what is counted. (§6.1, §11)"""
    names = star(engine, 20, guarantee=guarantee)
    before = engine.engine.state.memory.logged_bytes

    engine.append("x" * 300_000, name="s")
    engine.work_off()

    assert len(held(engine, ["s", "d", *names])) == 1
    assert engine.engine.state.memory.logged_bytes - before > 22 * 300_000
    assert all(engine.datas(name) == ["x" * 300_000] for name in names)
    engine.append(1, name="s")
    engine.work_off()
    engine.delete("s", before_seq=2)
    engine.seal_all()
    assert all(engine.datas(name) == ["x" * 300_000, 1] for name in names)


def test_siblings_share_what_one_of_them_had_to_copy(engine: Harness) -> None:
    """A large record that is a part of a batch is copied for the first router, in whichever slice the
    others come. (§6.1)"""
    names = star(engine, 8)

    engine.append(*["x" * 100_000] * 6, name="s")
    engine.work_off()

    assert len(held(engine, names)) == 6
    assert all(engine.datas(name) == ["x" * 100_000] * 6 for name in names)


def test_what_was_sealed_before_it_was_copied_is_in_memory_once(engine: Harness) -> None:
    """The source's text may be in a file by the time: the routers share what was read of it, in
    whichever slice they come, and it is let go of once no source is due. (§6.1)"""
    names = star(engine, 8)
    engine.append("x" * 300_000, name="s")
    engine.seal_all()

    engine.work_off()

    assert isinstance(engine.topic("s").runs[0], SealedRun)
    assert len(held(engine, names)) == 1
    assert all(engine.datas(name) == ["x" * 300_000] for name in names)
    assert engine.engine.router_commands._forwarding._same is None
