"""What outcomes do besides holding values: text that a thread reads (§3)."""

from typing import Any

import pytest

from topics.protocol.model.errors import Corrupt
from topics.protocol.model.outcomes import Fetch, Grant, Granted, Jobs, Records
from topics.protocol.model.ports import Extent
from topics.protocol.state.hot_run import HotRun


class Run:
    """A run whose text is its spans, or an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def still(self) -> "Run":
        return self

    def read_blocking(self, spans: Any) -> list[bytes]:
        if self._error is not None:
            raise self._error
        return [b"%d-%d" % span for span in spans]


def fetched(*runs: Run) -> Any:
    extents = [Extent(run, [(n, n + 1), (7, 9)]) for n, run in enumerate(runs)]  # type: ignore[arg-type]
    return Fetch(extents, lambda result: None).read()


def test_a_fetch_is_the_text_of_each_run() -> None:
    """A list a run, in order; none where there is nothing to read."""
    assert fetched(Run(), Run()) == [[b"0-1", b"7-9"], [b"1-2", b"7-9"]]
    assert fetched() == []


@pytest.mark.parametrize("error", [OSError(5, "disk"), Corrupt("/data/1.seg", 512, "digest")])
def test_an_error_of_a_fetch_is_its_result(error: Exception) -> None:
    """It is met on a thread, and belongs to the command that waits for the text. (§0.5)"""
    assert fetched(Run(), Run(error)) is error


@pytest.mark.parametrize(
    ("changes", "is_verbatim"),
    [({}, True), ({"tags": True}, False), ({"meta": False}, False), ({"data": False}, False)],
)
def test_records_are_served_as_they_lie_or_cut(changes: dict[str, bool], is_verbatim: bool) -> None:
    """A slice of the stored text, unless something is put in or left out. (§0.4)"""
    assert Records([], **changes).is_verbatim(HotRun(1), [(0, 1)]) is is_verbatim


def test_jobs_for_a_thread_have_runs_that_do_not_grow() -> None:
    """The claim stays the same; its jobs are those that the thread has read. (§10.2)"""

    class Growing(Run):
        def still(self) -> Run:
            return kept

    kept = Run()
    jobs = Jobs(Grant(1, "w", [1], [1], [1], 9), [Extent(Growing(), [(0, 1)])])  # type: ignore[arg-type]
    granted = Granted("q", jobs, 0)

    still = granted.of(jobs.still())

    assert still.jobs is not None
    assert [(extent.run, extent.spans) for extent in still.jobs.extents] == [(kept, [(0, 1)])]
    assert (still.topic, still.ready, still.jobs.grant) == ("q", 0, jobs.grant)
