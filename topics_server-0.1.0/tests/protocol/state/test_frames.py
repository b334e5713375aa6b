"""Frames that streams at one position share: kept while the topic is as it was, and bounded (§7.6)."""

import pytest

from topics.protocol.model.outcomes import Records
from topics.protocol.state import frames
from topics.protocol.state.frames import RecordFrame, SharedFrames


def frame(to_seq: int) -> RecordFrame:
    records = Records([], tags=False, meta=False, data=True)
    return RecordFrame("t", records, to_seq - 1, to_seq, to_seq)


def test_a_frame_is_found_under_its_topic_and_position() -> None:
    """Also that there is none from a position: another stream need not look again. (§7.6)"""
    shared = SharedFrames()
    one = frame(5)
    shared.keep(1, "at 4", one, 5, 100)
    shared.keep(1, "at 5", None, 9, 0)

    assert shared.find(1, "at 4") == (one, 5)
    assert shared.find(1, "at 5") == (None, 9)
    assert shared.find(1, "at 6") is None
    assert shared.find(2, "at 4") is None


def test_a_topic_that_changes_takes_its_frames_along() -> None:
    """And no other's; what they weighed is free again. (§5)"""
    shared = SharedFrames()
    shared.keep(1, "a", frame(1), 1, 100)
    shared.keep(1, "b", frame(2), 2, 50)
    shared.keep(2, "a", frame(3), 3, 7)

    shared.forget(1)
    shared.forget(1)

    assert (shared.find(1, "a"), shared.find(1, "b")) == (None, None)
    assert shared.find(2, "a") is not None
    assert shared.size_bytes == 7


def test_too_many_frames_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound all are let go, not only the oldest: they cost one more look each. (§7.6)"""
    monkeypatch.setattr(frames, "FRAMES_SHARED_MAX", 3)
    shared = SharedFrames()

    for at in range(3):
        shared.keep(1, at, frame(at + 1), at + 1, 10)
    assert shared.size_bytes == 30
    shared.keep(1, 3, frame(4), 4, 10)

    assert [shared.find(1, at) is not None for at in range(4)] == [False, False, False, True]
    assert shared.size_bytes == 10


@pytest.mark.parametrize(("size", "kept"), [(40, [True, True]), (41, [False, True])])
def test_too_large_frames_are_none(
    monkeypatch: pytest.MonkeyPatch, size: int, kept: list[bool]
) -> None:
    """All of them together count, and reach the bound without passing it. (§7.6)"""
    monkeypatch.setattr(frames, "FRAMES_SHARED_BYTES_MAX", 100)
    shared = SharedFrames()

    shared.keep(1, 0, frame(1), 1, 60)
    shared.keep(1, 1, frame(2), 2, size)

    assert [shared.find(1, at) is not None for at in range(2)] == kept


def test_a_frame_that_is_larger_than_all_may_be_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is read for each stream. (§7.6)"""
    monkeypatch.setattr(frames, "FRAMES_SHARED_BYTES_MAX", 100)
    shared = SharedFrames()

    shared.keep(1, 0, frame(1), 1, 101)

    assert shared.find(1, 0) is None
    assert shared.size_bytes == 0
