"""Celery, without results: the transport is the broker URL's."""

import os

from celery import Celery

from bench.frameworks.apps.producing import produce
from bench.frameworks.starts import note

app = Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task(name="bench.start")  # type: ignore[untyped-decorator]
def start(enqueued_ns: int) -> None:
    note(enqueued_ns)


if __name__ == "__main__":
    produce(start.delay)
