"""What a run of the tests tells of itself: how long each test took, and which lines of the core and the
store it reached.

A plugin of pytest.  Durations go to `build/durations.txt`, a line a test, and the fifty longest are
printed by `python -m tests.measured`.  Where `TOPICS_TESTS_COVERAGE=1` is set, each process measures the
lines that the tests of `COVERED` reach; `coverage combine` puts them together.  Only those tests are
measured: to trace all others would take three times as long.
"""

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parent.parent
DURATIONS: Final = ROOT / "build" / "durations.txt"
SHOWN: Final = 50
COVERED: Final = (
    *("tests/protocol/", "tests/cluster/", "tests/store/", "tests/test_transcripts.py"),
    *("tests/sim/test_regressions.py", "tests/sim/test_backup.py", "tests/sim/test_ordering.py"),
    *("tests/server/http/test_damage.py", "tests/server/observing/test_history.py"),
    *("tests/server/observing/test_observer.py", "tests/server/http/test_read_your_writes.py"),
)
"""The tests of the two packages, and those that drive them from one step outside.  Every draw of theirs is
seeded, so that a line is reached in each run or in none."""


PACKAGES: Final = ("topics.protocol", "topics.store")

UNMEASURED: Final = (
    *("test_a_sown_bug_is_found", "test_no_world_breaks_an_invariant", "test_page_tags.py"),
    *("test_router_stories.py", "test_watch_stories.py", "test_long_lives_do_not_let_heaps_grow"),
    *("test_a_flipped_bit_is_never_served", "test_small_topics_hold_little"),
    *("test_long_stretches_of_the_dead_take_no_rows", "test_a_world_that_failed["),
    *(
        "test_a_checkpoint_and_the_log_behind_it_lead_to_the_state",
        "test_any_topic_reads_as_a_dict",
    ),
    *("test_a_power_cut_takes_only_an_unsynced_end", "test_a_story_of_many_cuts_is_one_story"),
    *("test_a_kill_takes_nothing", "test_recovery_may_be_cut_anywhere_and_run_again"),
    *("test_groups_and_their_offsets_are_what_the_log_says", "test_any_story_may_end_at_any_step"),
    *("test_a_delete_in_parts_is_decided_at_one_moment", "test_201_is_what_made_something"),
    *("test_jobs_are_given_in_their_order", "test_groups_are_forgotten_all_the_time"),
    *("test_a_read_in_parts_is_a_page_of_its_last_turn", "test_an_answer_is_what_its_model_says"),
)
"""Tests among them that take long and reach nothing that others do not, as coverage's contexts show: to trace a
test takes three times as long as to run it."""


class Coverage:
    """Measures while the modules of the two packages are imported, which is before anything else is
    (`tests/conftest.py`), and while a test of `COVERED` runs."""

    def __init__(self) -> None:
        import coverage

        self._coverage: Any = coverage.Coverage(data_suffix=True)
        self._is_on = False
        self._coverage.start()
        for name in PACKAGES:
            package = importlib.import_module(name)
            for each in pkgutil.walk_packages(package.__path__, f"{name}."):
                importlib.import_module(each.name)
        self._coverage.stop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        name = item.nodeid
        is_covered = name.startswith(COVERED) and not any(each in name for each in UNMEASURED)
        if is_covered != self._is_on:
            if is_covered:
                _forget()  # what was kept by a test that is not measured would not be reached again
            (self._coverage.start if is_covered else self._coverage.stop)()
            self._is_on = is_covered
        return (yield)

    def pytest_unconfigure(self) -> None:
        if self._is_on:
            self._coverage.stop()
        self._coverage.save()


def _forget() -> None:
    """Empty the caches of the two packages."""
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGES):
            for each in vars(module).values():
                if isinstance(each, _CACHED):
                    each.cache_clear()  # type: ignore[attr-defined]


_CACHED: Final[type] = type(cache(_forget))
COVERAGE: Final = Coverage() if os.environ.get("TOPICS_TESTS_COVERAGE") else None


def pytest_configure(config: pytest.Config) -> None:
    if COVERAGE is not None:
        config.pluginmanager.register(COVERAGE)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """In the process that hears of all tests."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    took: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took[report.nodeid] = took.get(report.nodeid, 0.0) + report.duration
    DURATIONS.parent.mkdir(exist_ok=True)
    with DURATIONS.open("a") as file:
        file.writelines(f"{seconds:.3f} {test}\n" for test, seconds in took.items())


def main() -> None:
    if sys.argv[1:] == ["--covered"]:
        print(*COVERED)
        return
    lines = [line.split(" ", 1) for line in DURATIONS.read_text().splitlines()]
    rows = sorted(((float(seconds), test) for seconds, test in lines), reverse=True)
    print(f"{len(rows)} tests, {sum(seconds for seconds, _ in rows):.0f} s; the longest:")
    for seconds, test in rows[:SHOWN]:
        print(f"{seconds:8.1f} s  {test}")


if __name__ == "__main__":
    sys.exit(main())
