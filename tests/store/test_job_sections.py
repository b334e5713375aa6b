"""Options of jobs in a segment: a section beside that of the run (117, FORMAT.md)."""

import msgspec
import pytest
from protocol.harness import Harness
from sim.files import SimFiles

from topics.protocol.model.errors import Corrupt, DamagedRun
from topics.protocol.model.job_options import JobRequest, resolved_options
from topics.store import segment
from topics.store.handle import Handle
from topics.store.inspect import inspect
from topics.store.layout import JOBS, segment_name
from topics.store.store import DiskStore

from .ledger import HotRun, entry_of
from .stores import TEXTS, World, sealed
from .test_segment import INSTANCE

OPTIONS = resolved_options([JobRequest(priority=3), None, JobRequest(group="g")], 0)
RAW = msgspec.msgpack.encode(OPTIONS)


def built(*jobs: bytes) -> SimFiles:
    """A segment with a run for each."""
    files = SimFiles()
    entries = [
        msgspec.structs.replace(entry_of(HotRun(1, TEXTS), topic_id=n + 1), jobs=each)
        for n, each in enumerate(jobs)
    ]
    segment.build(files, 3, instance=INSTANCE, batch=5, entries=entries)
    return files


def damaged(files: SimFiles) -> None:
    """Flip a bit of the last section."""
    name = segment_name(3)
    file = files.open(name)
    header = segment.read_header(file, name, number=3, instance=INSTANCE)
    more = segment.read_more(file, name, header)
    other = bytearray(files.tree()[name])
    other[int(more["offset"][-1])] ^= 1
    files.put(name, bytes(other))


def test_each_run_has_its_own_or_none() -> None:
    """The list says whose each section is; another kind is nobody's."""
    handle = Handle(built(RAW, b"", RAW + b"\xc0"), 3, INSTANCE)
    found = [handle.section(nth, JOBS) for nth in range(3)]
    assert [None if each is None else bytes(each) for each in found] == [RAW, None, RAW + b"\xc0"]
    assert handle.section(0, 99) is None
    assert handle.table["more"].tolist() == [1, 0, 1]


def test_a_segment_without_any_is_as_it_was() -> None:
    """No list, and no byte more."""
    files = built(b"", b"")
    file = files.open(segment_name(3))
    header = segment.read_header(file, "seg", number=3, instance=INSTANCE)
    assert len(segment.read_more(file, "seg", header)) == 0
    assert [*segment.more_damages(file, "seg", header)] == []


def test_damage_is_found_where_it_is_read_and_where_it_is_looked_for() -> None:
    files = built(RAW, RAW)
    damaged(files)
    handle = Handle(files, 3, INSTANCE)
    first = handle.section(0, JOBS)
    assert first is not None
    with pytest.raises(Corrupt, match="does not verify"):
        handle.section(1, JOBS)
    header = handle.header
    assert len([*segment.more_damages(handle.file, "seg", header)]) == 1


def test_a_run_tells_its_damage_with_its_seqs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue goes on with the jobs of the others. (§0.5)"""

    def corrupt(handle: Handle, index: int, kind: int) -> None:
        raise Corrupt(handle.path, 7, "a section of a run does not verify")

    run = sealed(world.store)
    assert run.job_options() is None
    monkeypatch.setattr(Handle, "section", corrupt)
    with pytest.raises(DamagedRun) as told:
        run.job_options()
    assert (told.value.first_seq, told.value.last_seq) == (1, 10)


def test_an_inspection_names_what_is_damaged() -> None:
    """Before a start meets it. (FORMAT.md)"""
    files = SimFiles()
    engine = Harness(store=DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10))
    engine.put("q", type="queue")
    engine.append({"data": 1, "priority": 3}, name="q")
    engine.sealing.press()
    engine.seal()
    engine.sync()
    left = files.kill()
    assert inspect(left.kill()).problems == []
    [name] = [each for each in left.tree() if each.endswith(".seg")]
    other = bytearray(left.tree()[name])
    handle = Handle(left, int(name[:10]), bytes.fromhex(engine.store.instance_id))
    more = segment.read_more(handle.file, name, handle.header)
    handle.file.close()
    other[int(more["offset"][-1])] ^= 1
    left.put(name, bytes(other))
    [problem] = inspect(left).problems
    assert "does not verify" in str(problem)


def test_a_start_tells_of_options_that_it_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the jobs without any. (§0.5)"""
    files = SimFiles()

    def started(files: SimFiles) -> Harness:
        return Harness(store=DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10))

    engine = started(files)
    engine.put("q", type="queue")
    engine.append({"data": 1}, {"data": 2, "priority": 3}, name="q")
    engine.sync()
    engine.drive(engine.schedule.round(checkpoint=True))

    def corrupt(handle: Handle, index: int, kind: int) -> None:
        raise Corrupt(handle.path, 7, "a section of a run does not verify")

    monkeypatch.setattr(Handle, "section", corrupt)
    again = started(files.kill())
    [told] = again.reports
    assert 'jobs of queue "q" have lost their options' in told
    assert again.claimed(max=9) == [1, 2]
