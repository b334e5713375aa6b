"""Directories of earlier formats: read by their own rules, and continued in ours."""

import json
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from sim.files import SimFiles
from sim.process import Process, payload

from topics.protocol.commands import Append, Diff, GetTopic
from topics.protocol.effects import Parked
from topics.protocol.limits import Limits
from topics.protocol.models import TopicConfig
from topics.protocol.ports import Recovery
from topics.store.store import DiskStore

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("killed-1", "clean-1", "worked-1", "torn-1")


def left(name: str) -> tuple[SimFiles, dict[str, Any]]:
    """A directory of an earlier format as the kernel that knew it still shows it, and what its
    server had answered."""
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
        held = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    expected = json.loads(held.pop("expected.json"))
    files = SimFiles()
    for each, data in held.items():
        files.put(each, data)
    [*_, last] = [data for each, data in held.items() if each.endswith(".wal") and each[0] == "0"]
    files._boot = int.from_bytes(last[56:72], "little")
    return files, expected


def started(files: SimFiles, now_ms: int) -> tuple[Process, Recovery]:
    store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    process = Process(store, Limits(), writing=lambda: None, wrote=lambda lsn: None)
    return process, process.recover(now_ms)


def asked(process: Process, command: Any) -> dict[str, Any]:
    outcome = process.submit(command, lambda lsn: None)
    assert not isinstance(outcome, Parked)
    return orjson.loads(payload(outcome)[0])  # type: ignore[no-any-return]


def content(process: Process) -> dict[str, Any]:
    """In the words of `expected.json`."""
    found: dict[str, Any] = {}
    for name in sorted(process.engine.state.topics):
        page = asked(process, diff_of(name))
        state = asked(process, GetTopic(name))
        found[name] = {
            "head_seq": state["head_seq"],
            "count": state["count"],
            "records": [
                [r["$seq"], r["$ts"], r.get("$tag"), r.get("$node"), r["data"]]
                for r in page["records"]
            ],
        }
        if "queue" in state:
            found[name]["queue"] = [state["queue"]["ready"], state["queue"]["in_flight"]]
    return found


def diff_of(name: str) -> Diff:
    return Diff(
        topic=name,
        from_seq=0,
        from_ts=None,
        limit=1000,
        budget_bytes=1 << 30,
        nodes=(),
        match=None,
        include_tags=True,
        include_meta=True,
        wait_ms=0,
        epoch=None,
    )


def now_of(expected: dict[str, Any]) -> int:
    """A moment after the last record, when leases still last."""
    return max(r[1] for topic in expected.values() for r in topic["records"]) + 1000


def append(process: Process, topic: str, count: int) -> None:
    for _ in range(count):
        data = b'"' + b"n" * 300 + b'"'
        asked(
            process,
            Append(
                topic=topic,
                datas=[data],
                nodes=None,
                tags=None,
                metas=None,
                text_bytes=len(data),
                key=b"",
                create=None,
                config=TopicConfig(),
                return_seqs=False,
                disable_backpressure=False,
            ),
        )
        process.end_turn()


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_of_an_earlier_format_shows_what_it_held(name: str) -> None:
    """Every record, head and queue is as its own server had answered last; what is torn at its end
    is set aside. (F34)"""
    files, expected = left(name)

    process, recovery = started(files, now_of(expected))

    assert content(process) == expected
    assert recovery.clean is (name == "clean-1")
    assert recovery.same_boot
    assert (recovery.torn_bytes > 0) is (name == "torn-1")
