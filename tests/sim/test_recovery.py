"""What a start reads after a power loss: the log, and of the segments their headers."""

import random
from typing import Any

import orjson
import pytest

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.limits import Limits
from topics.store.handle import Handle
from topics.store.store import DiskStore

from .files import SimFiles
from .process import Process

NOW_MS = 1_750_000_000_000
LIMITS = Limits()
SEALED, DELETED, TAIL = 12, 2, 3


def started(files: SimFiles) -> Process:
    process = Process(
        DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10),
        LIMITS,
        writing=lambda: None,
        wrote=lambda lsn: None,
    )
    process.recover(NOW_MS)
    return process


def ask(process: Process, command: Any) -> None:
    process.submit(command, told=lambda lsn: None)
    process.end_turn()


def append(process: Process, name: str, count: int, config: dict[str, Any] | None = None) -> None:
    body = orjson.dumps({"records": [{"data": "x"}] * count, "config": config or {}})
    ask(process, parse_append(name, body, process.limits, return_seqs=True, header_key=None))


def lived(durability: str) -> SimFiles:
    """A topic with sealed records, some of them deleted, and a tail in the log; then a power
    loss."""
    files = SimFiles()
    process = started(files)
    append(process, "t", SEALED, {"durability": durability})
    process.sync()
    process.step_maintenance(checkpoint=True)
    process.finish_maintenance()
    ask(process, parse_delete("t", orjson.dumps({"before_seq": DELETED + 1})))
    append(process, "t", TAIL)
    process.sync()
    append(process, "t", 1)  # never synced
    assert len(process.engine.state.refs()) == 1
    return files.cut(random.Random(1))


@pytest.mark.parametrize("durability", ["disk", "memory", "fsync"])
def test_a_topic_whose_end_is_uncertain_is_not_counted_anew(
    durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lost writes had not been counted by the log that is left, so a start after a power loss
    opens no segment for the topic, and its count and bytes are right all the same."""
    found = lived(durability)
    opened: list[int] = []

    def seen(self: Handle, index: int) -> Any:
        opened.append(index)
        raise AssertionError("a run's columns are looked at by a start")

    with monkeypatch.context() as patch:
        patch.setattr(Handle, "checked_columns", seen)
        patch.setattr(Handle, "flags", seen)
        process = started(found)
        assert opened == []

    topic = process.engine.state.topics["t"]
    assert (topic.count, topic.size_bytes) == topic.recount()
    assert topic.count in (SEALED - DELETED + TAIL, SEALED - DELETED + TAIL + 1)
    assert bool(topic.holes) == (durability != "fsync")


def test_a_topic_that_lost_what_was_counted_is_counted_anew() -> None:
    """A topic that was `ephemeral` for a while: its records in memory are in the log's counts, and
    are lost."""
    files = SimFiles()
    process = started(files)
    append(process, "t", SEALED)
    process.sync()
    process.step_maintenance(checkpoint=True)
    process.finish_maintenance()
    for durability, count in (("ephemeral", 5), ("disk", TAIL)):
        put = parse_put("t", orjson.dumps({"durability": durability}))
        ask(process, put)
        process.sync()
        append(process, "t", count)
    process.sync()

    process = started(files.cut(random.Random(1)))

    topic = process.engine.state.topics["t"]
    assert topic.count == SEALED + TAIL
    assert (topic.count, topic.size_bytes) == topic.recount()


def test_what_was_counted_of_an_ephemeral_topic_is_gone() -> None:
    """A delete of records on the disk is logged with the counts after it, which include the records
    that the topic has in memory only."""
    files = SimFiles()
    process = started(files)
    append(process, "t", 4)
    ask(process, parse_put("t", orjson.dumps({"durability": "ephemeral"})))
    append(process, "t", 5)
    ask(process, parse_delete("t", orjson.dumps({"before_seq": 3})))
    process.sync()
    assert process.engine.state.topics["t"].count == 7

    process = started(files.cut(random.Random(1)))

    topic = process.engine.state.topics["t"]
    assert topic.count == 2
    assert (topic.count, topic.size_bytes) == topic.recount()
