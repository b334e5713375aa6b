"""What the tests of maintenance look at: the runs and segments of an engine."""

from protocol.harness import Harness, tagged
from topics.protocol.state.hot_run import HotRun


def hot(engine: Harness) -> list[int]:
    return [run.count for run in engine.topic().runs if isinstance(run, HotRun)]


def sealed(engine: Harness) -> list[int]:
    return [run.count for run in engine.topic().runs if run.ref is not None]


def shared(**limits: int) -> Harness:
    """A segment of three topics: of `t` and `u` almost all text, a little of `other`."""
    engine = Harness(**limits)
    for name in ("t", "u"):
        engine.append(*(tagged(f"k{i}", "x" * 200) for i in range(50)), name=name)
    engine.append("stays", name="other")
    engine.seal_all()
    return engine


def segments(engine: Harness) -> set[int]:
    """Files that the engine's runs are in."""
    return {ref.segment for ref in engine.engine.state.refs()}
