"""The bytes that a fetch shows: at once where they are little, else on a thread; and damage (§3)."""

from typing import Any

import msgspec
import pytest
from protocol.batches.test_shown import written
from protocol.consumer import fetch
from protocol.decide.test_batches import sealed
from protocol.durable import Durable
from protocol.harness import Harness

from topics.protocol.batches.header import BatchError, checked_header
from topics.protocol.batches.shown import still
from topics.protocol.model.errors import Corrupt, DamagedRun
from topics.protocol.model.fetched import StoredBatches
from topics.server.service import batches


def test_what_is_little_is_read_at_once() -> None:
    engine = Durable()
    written(engine)
    parts = [fetch(engine, 0), fetch(engine, 6)]
    now = batches.read_now(parts)
    assert now is not None
    assert [b"".join(map(bytes, each)) for each in now] == [
        b"".join(map(bytes, each)) for each in batches.read(parts)
    ]
    assert now[1] == []


@pytest.mark.parametrize("bound", ["TURN_RECORDS", "TURN_BYTES"])
def test_what_is_much_is_read_on_a_thread(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Durable()
    written(engine)
    sealed(engine)
    part = fetch(engine, 0)
    assert batches.read_now([part]) is not None
    monkeypatch.setattr(batches, bound, 1)
    assert batches.read_now([part]) is None
    assert len(batches.read([part])[0]) == 2


def test_what_lies_on_a_disk_is_read_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Harness()
    written(engine)
    monkeypatch.setattr(batches, "bytes_of", lambda *_, blocking: None)
    assert batches.read_now([fetch(engine, 0)]) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Corrupt("a.seg", 7, "digest"), "corrupt"),
        (BatchError("no batch"), "corrupt"),
        (OSError(5, "read error"), "read_error"),
    ],
)
def test_what_cannot_be_read_is_a_part_of_its_own(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The operator hears of it, and the other parts are read."""
    engine = Harness()
    written(engine)
    read = batches.bytes_of
    bad = fetch(engine, 0)

    def broken(piece: Any, *, blocking: bool) -> Any:
        if isinstance(piece, StoredBatches):
            raise error
        return read(piece, blocking=blocking)

    monkeypatch.setattr(batches, "bytes_of", broken)
    found = batches.read([bad, fetch(engine, 4)])
    assert found[0] == batches.Unreadable(reason)
    assert len(found[1]) == 1
    assert "cannot read stored records" in caplog.text


@pytest.mark.parametrize("is_text", [False, True])
def test_what_stands_before_damage_is_given(
    is_text: bool, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A piece that cannot be read as a whole is read as far as it can be; a client that comes again gets the error."""
    engine = Harness()
    written(engine)
    read, part = batches.bytes_of, fetch(engine, 4 if is_text else 0)
    whole = batches.read([part])[0]
    assert not isinstance(whole, batches.Unreadable)

    def broken(piece: Any, *, blocking: bool) -> Any:
        at = piece.spans[-1][1] - 1 if is_text else piece.end - 1
        if at == 1:
            raise Corrupt("a.seg", 7, "digest")
        return read(piece, blocking=blocking)

    monkeypatch.setattr(batches, "bytes_of", broken)
    assert batches.read_now([part]) is None
    [found] = batches.read([part])
    assert not isinstance(found, batches.Unreadable)
    if is_text:
        assert [checked_header(bytes(each)).base_offset for each in found] == [4]
    else:
        assert found == whole[:1]
    assert "cannot" not in caplog.text


def test_a_run_that_was_found_damaged_is_told_when_nothing_stands_before_it(caplog: Any) -> None:
    damage = DamagedRun(Corrupt("a.seg", 7, "digest"), 1, 9)
    engine = Harness()
    written(engine)
    part = msgspec.structs.replace(fetch(engine, 0), damage=damage)
    assert len(batches.read([still(part)])[0]) == 3
    assert batches.read_now([msgspec.structs.replace(part, pieces=())]) == [
        batches.Unreadable("corrupt")
    ]
    assert "digest" in caplog.text
