"""The frames of a stream with their text: from memory, from a thread, or not at all."""

from collections import deque
from collections.abc import Callable
from typing import Any

from topics.protocol.driver.streams import CaughtUpFrame, DamagedFrame, RecordFrame
from topics.protocol.model.errors import Corrupt, DamagedRun
from topics.protocol.model.outcomes import PageText, Records
from topics.server.service import frames
from topics.server.service.frames import Frames, FrameText, Unreadable


class Shell:
    """Threads that do their work when the test lets them."""

    now_ms = 7

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def read_in_thread(self, call: Callable[[], Any]) -> Any:
        shell = self

        class Work:
            def add_done_callback(self, done: Callable[[Any], None]) -> None:
                shell.works.append(lambda: done(self))

            def result(self) -> Any:
                return call()

        return Work()


class Stream:
    """Frames that a test has put there."""

    def __init__(self, *given: Any) -> None:
        self.given = deque(given)
        self.damaged: list[str] = []

    def next_frame(self, now_ms: int) -> Any:
        assert now_ms == 7
        return self.given.popleft() if self.given else None

    def unreadable(self, frame: Any) -> None:
        self.damaged.append(frame.topic)


def records(topic: str, text: bytes = b"text") -> RecordFrame:
    return RecordFrame(topic, Records((), text=PageText(text)), 0, 1, 1)


def over(*given: Any, encoder: str = "") -> tuple[Frames, Stream, Any, list[bool]]:
    stream, shell, woken = Stream(*given), Shell(), list[bool]()
    made: Any = shell
    return Frames(stream, made, lambda: woken.append(True), encoder), stream, shell, woken


def test_what_is_in_memory_comes_at_once() -> None:
    """And what is no record as it is."""
    caught_up = CaughtUpFrame("t", 1)
    first = records("t")
    pulled, *_ = over(first, caught_up)
    assert pulled.next() == FrameText(first, [b"text"])
    assert pulled.next() == FrameText(caught_up)
    assert pulled.next() is None


def test_what_another_stream_has_written_out_is_not_read_again() -> None:
    """Its text is there, in the form that is wanted."""
    frame = records("t")
    frame.texts["sse"] = b"data"
    pulled, *_ = over(frame, encoder="sse")
    assert pulled.next() == FrameText(frame)
    assert pulled.text_now(frame) == ()


def test_a_thread_reads_what_is_cold(monkeypatch: Any) -> None:
    """Nothing else comes meanwhile, and the carrier is woken for it. (§7.3)"""
    read = frames.read

    def cold(one: Records, *, blocking: bool) -> Any:
        return read(one, blocking=True) if blocking else None

    monkeypatch.setattr(frames, "read", cold)
    first, second = records("a"), CaughtUpFrame("a", 1)
    pulled, _, shell, woken = over(first, second)
    assert pulled.next() is None
    assert pulled.is_reading
    assert pulled.next() is None
    assert pulled.text_now(first) is None
    shell.works.pop()()
    assert woken == [True]
    assert pulled.has_kept
    assert pulled.next() == FrameText(first, [b"text"])
    assert not pulled.has_kept
    assert pulled.next() == FrameText(second)


def test_who_has_closed_it_is_not_woken(monkeypatch: Any) -> None:
    """What the thread has read is nobody's."""
    read = frames.read
    monkeypatch.setattr(
        frames, "read", lambda one, *, blocking: read(one, blocking=True) if blocking else None
    )
    pulled, _, shell, woken = over(records("a"))
    assert pulled.next() is None
    pulled.close()
    shell.works.pop()()
    assert woken == []


def test_a_topic_that_cannot_be_read_ends_alone(monkeypatch: Any) -> None:
    """Whether that shows before a record is read, or as it is. (§7.6)"""
    damage = DamagedRun(Corrupt("a.seg", 7, "a block does not verify"), 3, 5)
    found = DamagedFrame("a", 2, damage)
    pulled, stream, *_ = over(found, records("b"), CaughtUpFrame("c", 1))
    first = pulled.next()
    assert isinstance(first, Unreadable)
    assert (first.topic, first.refusal.detail) == (
        "a",
        {"reason": "corrupt", "first_seq": 3, "last_seq": 5},
    )
    monkeypatch.setattr(frames, "read", lambda *_, **__: damage.refusal())
    second = pulled.next()
    assert isinstance(second, Unreadable)
    assert second.topic == "b"
    assert stream.damaged == ["a", "b"]
    assert pulled.next() == FrameText(CaughtUpFrame("c", 1))
