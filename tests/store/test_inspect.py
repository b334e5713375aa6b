"""What an inspection finds: everything that a start refuses, and the number of files and rows."""

import random
from pathlib import Path

import pytest
from sim.files import SimFiles

from topics.protocol.model.errors import Unusable
from topics.protocol.model.events import Floors, RunRef, RunsDropped, RunsSealed, TopicDeleted
from topics.store.files import OsFiles
from topics.store.inspect import Named, inspect
from topics.store.layout import RESERVE_NAME

from .disks import (
    begun,
    copy_of,
    flipped,
    interesting,
    log_names,
    outcome,
    small_directory,
)


def test_inspection_names_what_a_start_refuses() -> None:
    """An inspection finds everything that a start refuses or a read cannot serve, and changes
    nothing."""
    files, history = small_directory()
    rng = random.Random(9)
    assert inspect(files).ok
    for name, data in files.tree().items():
        for at in rng.sample(interesting(data), min(60, len(data))) if data else []:
            damaged = flipped(files, name, at, rng.randrange(8))
            before = damaged.tree()
            try:
                report = inspect(damaged)
            except Unusable:
                assert isinstance(outcome(damaged), str)
                continue
            assert damaged.tree() == before
            found = outcome(damaged)
            if isinstance(found, str):
                assert report.problems, (name, at)
            if report.ok:
                assert found == history[-1]


@pytest.mark.parametrize("clean", [False, True])
def test_inspection_checks_what_only_the_older_checkpoint_needs(clean: bool) -> None:
    """Damage that a start would meet only if the newest checkpoint fails is found while that is
    sound."""
    files, _ = small_directory(clean=clean)
    newest = max(name for name in files.names() if name.endswith(".ckpt"))
    logs = [name for name in files.names() if name.endswith(".wal") and name != RESERVE_NAME]
    refused = set()
    for name in logs:
        data = files.tree()[name]
        for at in [*range(80), *interesting(data)[80::7]]:
            damaged = flipped(files, name, at, at % 8)
            if isinstance(outcome(flipped(damaged, newest, 3, 1)), str):
                refused.add(name)
                assert inspect(damaged).problems, (name, at)
    assert min(logs) in refused


def test_an_inspection_counts_what_is_there() -> None:
    """The report shows files, batches, runs, rows and flags as they are."""
    files, _ = small_directory()

    report = inspect(files)

    assert [log.name for log in report.logs] == sorted(log.name for log in report.logs)
    assert sum(log.events for log in report.logs) >= 5
    assert report.logs[-1].marks == {"idle": 1}
    assert sum(segment.rows for segment in report.segments) == 8 + 3 + 2 + 4
    assert sum(segment.dead for segment in report.segments) == 2
    assert all(segment.named and segment.verified for segment in report.segments)
    assert [c.clean for c in report.checkpoints] == [False, False]
    assert report.checkpoints[-1].topics == 2
    assert (report.torn_bytes, report.clean, report.others) == (0, False, [])


def test_a_segment_that_is_missing_is_a_problem() -> None:
    """The report names the file; the others are checked all the same."""
    files, _ = small_directory()
    names = [name for name in files.names() if name.endswith(".seg")]
    for name in names:
        damaged = copy_of(files)
        damaged.remove(name)

        report = inspect(damaged)

        assert [(p.path, p.what) for p in report.problems] == [
            (f"sim/{name}", "the file is missing")
        ]
        assert len(report.segments) == len(names) - 1


@pytest.mark.parametrize("how", ["dropped", "deleted"])
def test_a_segment_that_no_run_refers_to_may_be_missing(how: str) -> None:
    """The log says that its runs were dropped, or their topic deleted."""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    [name] = [name for name in files.names() if name.endswith(".seg")]
    if how == "dropped":
        ledger.write(RunsDropped(1, 1, [1], Floors()))
    else:
        ledger.write(TopicDeleted(1, 1))
    ledger.store.sync()
    assert inspect(files.kill()).segments[0].named is False

    after = files.kill()
    after.remove(name)

    assert inspect(after).ok


def test_a_log_file_that_cannot_be_read_is_a_problem() -> None:
    """The report says where, and goes on with the segments."""
    files, _ = small_directory()
    name = log_names(files)[0]
    files.unreadable.add(name)

    report = inspect(files)

    assert {problem.path for problem in report.problems} == {f"sim/{name}"}
    assert report.segments


def test_damage_before_the_newest_checkpoint_is_told_where_nothing_behind_it_vouches() -> None:
    """The walk that begins at the oldest file ends at the damage as at a torn tail; the checkpoint
    says that the log was durable beyond it. (F14)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    store = ledger.store
    boundary = store.rotate(stay=True)
    store.sync()
    store.checkpoint(ledger.image(), boundary)
    whole = files.kill()
    [name] = [name for name in log_names(whole) if any(whole.tree()[name])][:1]
    last = whole.tree()[name].index(b"second")

    report = inspect(flipped(whole, name, last, 1))

    assert [(p.path, p.what) for p in report.problems] == [
        (f"sim/{name}", "batch 3 had been durable and does not verify")
    ]


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    """A path that is missing, and a directory of something else."""
    (tmp_path / "notes.txt").write_text("of someone else")
    for root in (tmp_path / "none", tmp_path):
        with pytest.raises(Unusable):
            inspect(OsFiles(root))


def test_the_runs_that_a_log_refers_to_are_counted_to_its_end() -> None:
    """Runs of the checkpoint, without the dropped ones, and runs that were sealed since."""
    files = SimFiles()
    ledger = begun(files)
    ledger.create(2)
    ledger.append(2, b"of another")
    ledger.checkpoint()
    named = Named()
    named.restore(ledger.image())
    assert named.refs() == ledger.refs()

    ledger.append(1, b"more")
    ledger.write(sealed := RunsSealed(1, 1, 2, 2, [RunRef(9, 0, 2, 1, 5)]))
    named.apply(sealed)

    assert [(ref.segment, ref.first_seq) for ref in named.refs()] == [(1, 1), (9, 2), (2, 1)]
