"""Jobs that have become dead letters, for tests that bring them back."""

from typing import Any

from topics.testing import MemoryTopics


def bury(memory: MemoryTopics, *values: Any, **options: Any) -> None:
    """Append jobs that are dead letters then."""
    client = memory.client
    client.append("jobs", *values, **options)
    jobs = client.claim("jobs", node="w", max=1000).jobs
    client.nack("jobs", jobs, node="w")
    assert client.claim("jobs", node="w", max=1000).jobs == []
