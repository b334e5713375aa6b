"""A queue with jobs that have options."""

from typing import Any

from topics.protocol.state.backlog import Backlog

from ..harness import Harness


def queue(*jobs: dict[str, Any], **config: object) -> Harness:
    engine = Harness()
    engine.put("q", type="queue", **config)
    if jobs:
        engine.append(*[{"data": 0, **job} for job in jobs], name="q")
    return engine


def backlog(engine: Harness) -> Backlog:
    found = engine.engine.state.queues[engine.topic("q").topic_id].backlog
    assert found is not None
    return found


def sealed(engine: Harness) -> Harness:
    engine.sealing.press()
    engine.seal()
    return engine
