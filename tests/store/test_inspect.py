"""What an inspection finds: everything that a start refuses, and the number of files and rows."""

import random

import pytest

from topics.protocol.model.errors import Unusable
from topics.store.inspect import inspect
from topics.store.layout import RESERVE_NAME

from .disks import flipped, interesting, outcome, small_directory


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
