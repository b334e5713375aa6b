"""The bytes that a fetch shows: at once where they are little, else on a thread; and damage (§3)."""

from typing import Any

import pytest
from protocol.batches.test_shown import written
from protocol.consumer import fetch
from protocol.decide.test_batches import sealed
from protocol.durable import Durable
from protocol.harness import Harness

from topics.protocol.batches.header import BatchError
from topics.protocol.model.errors import Corrupt
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
        if piece is bad.pieces[0]:
            raise error
        return read(piece, blocking=blocking)

    monkeypatch.setattr(batches, "bytes_of", broken)
    found = batches.read([bad, fetch(engine, 4)])
    assert found[0] == batches.Unreadable(reason)
    assert len(found[1]) == 1
    assert "cannot read stored records" in caplog.text
