"""How large the benchmarks are, the figures that are no times, and the table at the end.

`pytest bench --benchmark-only` measures, `pytest bench --benchmark-disable` runs every benchmark
once and small, as a test that it still works.  A figure is reported next to its goal and never
asserted: a shared machine would make that a test of its neighbours.
"""

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.desk import Desk
from bench.loads import append, append_body, put

TAGS = tuple(f"kind{n}.{part}" for n in range(10) for part in ("even", "odd"))
"""Twenty tags in turn: one is a record in twenty, one kind a record in ten."""
NODES = tuple(f"node-{n}" for n in range(10))


@dataclass(frozen=True, slots=True)
class Scale:
    """How much data a run builds.

    Attributes:
        rounds: Rounds of a benchmark that brings its own state.
        sealed: Records of the data directory that the reading benchmarks share.
        started: Sealed records of the start-up benchmark.
        replayed: Records in the log of the recovery benchmark.
        singles: Records in the log one by one.
        topics: Topics of the many-topics benchmarks.
        most_topics: Topics of those that look for what grows with them.
        scattered: Records of which every third is deleted at once.
    """

    rounds: int
    sealed: int
    started: int
    replayed: int
    singles: int
    topics: int
    most_topics: int
    scattered: int


FULL = Scale(20, 1_000_000, 10_000_000, 1_000_000, 200_000, 10_000, 100_000, 4_000_000)
USUAL = Scale(10, 1_000_000, 1_000_000, 300_000, 50_000, 10_000, 10_000, 4_000_000)
QUICK = Scale(1, 20_000, 20_000, 5_000, 500, 200, 200, 20_000)


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: str
    goal: str


FIGURES: pytest.StashKey[list[Figure]] = pytest.StashKey()

Report = Callable[[str, str, str], None]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> Scale:
    if request.config.getoption("benchmark_disable"):
        return QUICK
    return FULL if os.environ.get("TOPICS_BENCH_FULL") == "1" else USUAL


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Add a row to the table: what, how much, and the goal."""

    def add(name: str, value: str, goal: str) -> None:
        request.config.stash[FIGURES].append(Figure(name, value, goal))

    return add


@pytest.fixture
def goal(benchmark: Any) -> Callable[..., None]:
    """Name the benchmark's row in the table and its goal; `per` divides the time of one call."""

    def name(what: str, goal: str, *, per: int = 1) -> None:
        benchmark.extra_info.update(what=what, goal=goal, per=per)

    return name


def fill(desk: Desk, topic: str, records: int, *, size_bytes: int = 64, batch: int = 1000) -> None:
    """Append `records` in batches, tags and nodes in turn; full runs are sealed on the way."""
    command = append(topic, append_body(batch, size_bytes, tags=TAGS, nodes=NODES))
    for _ in range(records // batch):
        desk.run(command)
        desk.seal_full()


def built(path: Path, records: int) -> Path:
    """A data directory that was stopped cleanly, with `records` sealed in one topic."""
    desk = Desk.on_disk(path)
    desk.run(put("sealed"))
    fill(desk, "sealed", records)
    desk.stop()
    return path


@pytest.fixture(scope="session")
def sealed_dir(tmp_path_factory: pytest.TempPathFactory, scale: Scale) -> Path:
    return built(tmp_path_factory.mktemp("sealed") / "data", scale.sealed)


@pytest.fixture
def sealed(sealed_dir: Path) -> Iterator[Desk]:
    """An engine over the shared data; whoever changes it must not let it be saved."""
    desk = Desk.on_disk(sealed_dir)
    yield desk
    desk.stop()


# ---------------------------------------------------------------------- the table


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = [*_timed(config), *config.stash[FIGURES]]
    if not rows or config.getoption("benchmark_disable"):
        return
    write = terminalreporter.write_line
    terminalreporter.write_sep("-", "figures: the least of all rounds")
    write(machine())
    widths = [
        max(len(cells) for cells in column) for column in zip(*map(_cells, rows), strict=True)
    ]
    for row in sorted(rows, key=lambda row: row.name):
        cells = [cell.ljust(width) for cell, width in zip(_cells(row), widths, strict=True)]
        write(f"| {' | '.join(cells)} |")


def _cells(row: Figure) -> tuple[str, str, str]:
    return row.name, row.value, row.goal


def _timed(config: pytest.Config) -> Iterator[Figure]:
    session: Any = getattr(config, "_benchmarksession", None)
    for bench in session.benchmarks if session is not None else ():
        info = bench.extra_info
        if "what" in info and bench.stats.rounds:
            yield Figure(info["what"], spoken(bench.stats.min / info["per"]), info["goal"])


def spoken(seconds: float) -> str:
    """A duration with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def machine() -> str:
    """What the figures were measured on, in one line."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} x {cpu}, Linux {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}, load {load:.1f}"
    )
