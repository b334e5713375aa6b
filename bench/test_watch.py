"""Watching, in process: what a frame costs, and what many streams at once do."""

from typing import Any

from bench.conftest import Scale, fill
from bench.desk import NOTHING_SEALED, Desk
from bench.loads import put
from topics.protocol.faces.http import sse
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.cursor import composite
from topics.protocol.state.frames import RecordFrame
from topics.server.service.texts import read


def watched(desk: Desk, wid: str) -> Any:
    """A session on the topic from its start, and its stream."""
    body = b'{"topics":{"t":{"from_seq":0}},"limit":1000,"max_batch_bytes":1048576}'
    desk.run(parse_watch(body, desk.limits, wid=wid, lenient=False))
    return desk.engine.watch_commands.open_stream(wid, None, lambda: None, desk.now_ms)


def drain(desk: Desk, session: Any, stream: Any) -> int:
    """Every frame until none is left, written out; how many records."""
    records = 0
    while (frame := desk.engine.watch_commands.next_frame(stream, desk.now_ms)) is not None:
        frame_id = composite(session.watched.values())
        if isinstance(frame, RecordFrame):
            texts = () if "sse" in frame.texts else read(frame.records, blocking=True)
            assert isinstance(texts, list | tuple)
            sse.encode(frame, frame_id, texts)
            records += frame.to_seq - frame.from_seq
        else:
            sse.encode(frame, frame_id)
    return records


def test_backlog_of_one_stream(benchmark: Any, goal: Any, scale: Scale) -> None:
    goal(f"watch, backlog of {scale.sealed:,} records, rendered", "1,500,000 records/s")
    desk = Desk.in_memory(NOTHING_SEALED)
    desk.run(put("t"))
    fill(desk, "t", scale.sealed)
    count = iter(range(1 << 30))

    def run() -> int:
        return drain(desk, *watched(desk, f"w{next(count)}"))

    assert benchmark.pedantic(run, rounds=max(scale.rounds // 3, 1)) == scale.sealed


def test_a_thousand_sessions_resume_at_once(benchmark: Any, goal: Any, scale: Scale) -> None:
    goal("watch, 1,000 sessions resumed at once, their backlog of 1,000 rendered", "2 s")
    desk = Desk.in_memory(NOTHING_SEALED)
    desk.run(put("t"))
    fill(desk, "t", 1000)
    count = iter(range(1 << 30))

    def run() -> int:
        opened = [watched(desk, f"w{next(count)}") for _ in range(1000)]
        return sum(drain(desk, *each) for each in opened)

    assert benchmark.pedantic(run, rounds=max(scale.rounds // 3, 1)) == 1_000_000
