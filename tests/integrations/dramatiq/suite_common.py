"""The `common.py` of dramatiq's own tests, which its source distribution leaves out: what tests import from it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dramatiq import Worker


@contextmanager
def worker(*args: Any, **options: Any) -> Iterator[Worker]:
    running = Worker(*args, **options)
    running.start()
    try:
        yield running
    finally:
        running.stop()


never = pytest.mark.skipif(False, reason="")
skip_in_ci = skip_on_windows = skip_on_pypy = skip_with_gevent = never
skip_without_gevent = pytest.mark.skip(reason="without gevent")
skip_unless_rabbit_mq = pytest.mark.skip(reason="about connections of RabbitMQ")
RABBITMQ_USERNAME = RABBITMQ_PASSWORD = RABBITMQ_CREDENTIALS = os.devnull
