"""What a topic is to its readers: its rank among those that a stream watches, and its jobs."""

from typing import Final

from topics.protocol.model.outcomes import JobCounts
from topics.protocol.state.queue import Queue
from topics.protocol.state.topic import Topic

PRIORITY_FRESH: Final = 1000
PRIORITY_HALF_LIFE_MS: Final = 60_000


def effective_priority(topic: Topic, now_ms: int) -> int:
    """The manual priority; else 1000 for a topic read just now, halved each minute (§0.10)."""
    if topic.config.priority is not None:
        return topic.config.priority
    if not topic.config.auto_priority or topic.last_read_ms is None:
        return 0
    minutes = (now_ms - topic.last_read_ms) / PRIORITY_HALF_LIFE_MS
    return int(PRIORITY_FRESH * 0.5 ** min(minutes, 64))


def job_counts(topic: Topic, queue: Queue) -> JobCounts:
    """Where a queue's jobs are (§10.7); the queue is settled."""
    return JobCounts(
        ready=topic.shown()[0] - queue.in_flight - queue.delayed,
        in_flight=queue.in_flight,
        delayed=queue.delayed,
        damaged=queue.damaged,
        dead_lettered=queue.dead_lettered,
    )
