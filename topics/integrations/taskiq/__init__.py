"""A broker, a result backend and a source of schedules for taskiq.

    from topics.integrations.taskiq import TopicsBroker, TopicsResultBackend

    broker = TopicsBroker("http://127.0.0.1:4000").with_result_backend(
        TopicsResultBackend("http://127.0.0.1:4000")
    )

- `broker`: `TopicsBroker`, which appends tasks as jobs of a queue, and listens to one.
- `results`: `TopicsResultBackend`, results and progress as records of a log.
- `schedules`: `TopicsScheduleSource`, schedules as the newest record of each tag.
- `connection`: the client that each of them has.

All of it uses the public client and the public API of taskiq.  The extra is `taskiq`.
"""

from topics.distribution import needs

with needs("taskiq", of="topics.integrations.taskiq"):
    import taskiq as _taskiq  # noqa: F401

from topics.integrations.taskiq.broker import TopicsBroker
from topics.integrations.taskiq.results import ResultIsMissing, TopicsResultBackend
from topics.integrations.taskiq.schedules import TopicsScheduleSource

__all__ = ["ResultIsMissing", "TopicsBroker", "TopicsResultBackend", "TopicsScheduleSource"]
