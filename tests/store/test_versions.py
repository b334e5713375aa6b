"""Directories of earlier formats: read by their own rules, and continued in the present one."""

import errno
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from sim.files import Cut, Fault, SimFiles
from sim.process import Process, payload

from topics.protocol.model.commands import Append, Diff, GetTopic
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Unusable
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Parked
from topics.protocol.model.ports import Recovery
from topics.store.inspect import inspect
from topics.store.layout import LOCK_NAME, LOG_MAGIC
from topics.store.store import DiskStore

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = (
    *("killed-1", "clean-1", "worked-1", "torn-1"),
    *("killed-2", "clean-2", "worked-2", "torn-2", "restored-3"),
)
PRESENT = 4


def left(name: str) -> tuple[SimFiles, dict[str, Any]]:
    """A directory of an earlier format as its kernel still shows it, and the last answers of its
    server."""
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
        held = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    expected = json.loads(held.pop("expected.json"))
    files = SimFiles()
    for each, data in held.items():
        files.put(each, data)
    [*_, last] = [data for data in held.values() if data.startswith(LOG_MAGIC)]
    files._boot = int.from_bytes(last[56:72], "little")
    return files, expected


def started(files: SimFiles, now_ms: int) -> tuple[Process, Recovery]:
    store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    process = Process(store, Limits(), writing=lambda: None, wrote=lambda lsn: None)
    return process, process.recover(now_ms)


def asked(process: Process, command: Any) -> dict[str, Any]:
    process.pay(command)
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
    """A time after the last record, at which leases are still valid."""
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
    """Every record, head and queue is as in the last answers of its server; a torn end is set
    aside. (F34)"""
    files, expected = left(name)

    process, recovery = started(files, now_of(expected))

    assert content(process) == expected
    assert recovery.clean is name.startswith("clean")
    assert recovery.same_boot
    assert (recovery.torn_bytes > 0) is name.startswith("torn")


@pytest.mark.parametrize("name", NAMES)
def test_it_goes_on_in_our_format(name: str) -> None:
    """New files have the present format, old ones stay as they are, and the next starts read both,
    after a kill, a power cut and a clean stop."""
    files, expected = left(name)
    now_ms = now_of(expected)
    process, _ = started(files, now_ms)
    old = {log.name for log in inspect(files).logs if log.version < PRESENT}
    append(process, "in" if name.startswith("worked") else "a", 3)
    process.sync()
    stood = content(process)

    files = files.kill()
    process, _ = started(files, now_ms)
    assert content(process) == stood
    files = files.cut(random.Random(1))
    process, _ = started(files, now_ms)
    assert all(content(process)[topic]["records"] == stood[topic]["records"] for topic in stood)
    report = inspect(files)
    assert (report.problems, report.format_version) == ([], PRESENT)
    assert {log.name for log in report.logs if log.version < PRESENT} == old
    assert {log.version for log in report.logs} == {1 if name.endswith("1") else 2, PRESENT}
    assert process.stop()
    assert started(files.kill(), now_ms)[1].clean


@pytest.mark.parametrize("name", NAMES)
def test_a_start_that_is_cut_off_may_be_repeated(name: str) -> None:
    """At whatever call the first start in the present format ends, the next one finds the same.
    (F30)"""
    files, expected = left(name)
    whole = files.kill()
    started(whole, now_of(expected))
    for call in range(whole.calls):
        broken = files.kill()
        broken.cut_at = call
        with pytest.raises(Cut):
            started(broken, now_of(expected))
        for after in (broken.kill(), broken.cut(random.Random(call), harsh=call % 2 == 1)):
            found = content(started(after, now_of(expected))[0])
            assert all(found[t]["records"] == expected[t]["records"] for t in expected)


def test_the_end_of_an_old_log_has_no_witness() -> None:
    """A log of version 1 that ends after a rotation is accepted as it is: that version left such
    logs itself, when it was killed during a start."""
    files, expected = left("worked-1")
    *_, before, last = [log for log in inspect(files).logs if log.batches]
    assert before.marks["rotate"]
    files.remove(last.name)
    files.remove("0000000002.ckpt")

    process, recovery = started(files, now_of(expected))

    assert recovery.torn_bytes == 0
    assert 0 < content(process)["in"]["head_seq"] < expected["in"]["head_seq"]


def test_an_upgrade_that_finds_no_space_changes_nothing() -> None:
    """The identity is written first: until it says format 4, no file in the directory has it."""
    files, expected = left("killed-1")
    files.faults[files.calls + 2] = Fault(errno.ENOSPC)
    before = files.tree()

    with pytest.raises(Unusable, match="cannot be brought to format 4: injected"):
        started(files, now_of(expected))

    assert {name: data for name, data in files.tree().items() if name != LOCK_NAME} == before
