"""The tasks of `test_worker`: `celery -A program worker`, with the URL of the server and options in the environment."""

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task

URL = os.environ["PROGRAM_URL"]
OPTIONS = json.loads(os.environ.get("PROGRAM_OPTIONS", "{}"))

app = Celery("program", broker=URL, backend=URL)
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_transport_options={"wait_ms": 300, "retry_s": 1, **OPTIONS},
    result_backend_transport_options={"prefix": OPTIONS.get("prefix", "")},
    beat_schedule={"tick": {"task": "program.add", "schedule": 0.2, "args": (1, 1)}},
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def flaky(self: Task, failures: int) -> int:
    """Fails so often, and then says how often."""
    if self.request.retries < failures:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@app.task
def fail() -> None:
    raise ValueError("no")


def note(where: str, what: Any) -> None:
    with Path(where).open("a") as file:
        file.write(f"{what}\n")


@app.task(acks_late=True, reject_on_worker_lost=True)
def write(where: str, n: int) -> int:
    """Leave a line, and take a moment."""
    note(where, n)
    time.sleep(0.01)
    return n


@app.task(acks_late=True, reject_on_worker_lost=True)
def held(where: str, gate: str) -> str:
    """Leave a line, and wait for a file."""
    note(where, os.getpid())
    while not Path(gate).exists():
        time.sleep(0.01)
    return "done"
