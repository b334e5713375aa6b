"""The `conftest.py` of dramatiq's own tests, where `test_suite` runs them: all brokers and backends are those of
topics, at the server that `TOPICS_URL` names."""

import json
import logging
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

# What tests of other brokers import; no test that is run uses any of it.
for name in ("pika", "pika.exceptions", "redis", "pylibmc", "prometheus_client"):
    sys.modules.setdefault(name, MagicMock(__spec__=None))
import dramatiq  # noqa: E402
from dramatiq import Worker  # noqa: E402
from dramatiq.brokers.stub import StubBroker  # noqa: E402
from dramatiq.common import xq_name  # noqa: E402

from topics.integrations.dramatiq import (  # noqa: E402
    TopicsBackend,
    TopicsBroker,
    TopicsRateLimiterBackend,
)

for name in ("dramatiq.brokers.redis", "dramatiq.brokers.rabbitmq"):
    made = {"RedisBroker": StubBroker, "RabbitmqBroker": lambda **_: StubBroker()}
    sys.modules[name] = MagicMock(__spec__=None, **made)

LEFT_OUT: dict[str, str] = json.loads((Path(__file__).parent / "left_out.json").read_text())
logging.basicConfig(level=logging.INFO)
random.seed(1337)
dramatiq.set_broker(StubBroker())  # of actors that modules of tests declare


class Rejected(dramatiq.Middleware):
    """Remembers what rejected messages ended with; no exception itself, which would hold its frames."""

    def __init__(self) -> None:
        self.ends: list[tuple[type[BaseException], tuple[Any, ...], dict[str, Any]]] = []

    def before_nack(self, broker: Any, message: Any) -> None:
        error = message._exception or Exception("rejected")
        self.ends.append((type(error), error.args, vars(error)))

    def pop(self) -> BaseException:
        kind, args, values = self.ends.pop()
        error = kind.__new__(kind, *args)
        vars(error).update(values)
        return error


class SuiteBroker(TopicsBroker):
    """With what tests ask of dramatiq's other brokers: errors at a `join`, and counts of messages."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.fail_fast_default = False
        self.rejected = Rejected()
        self.add_middleware(self.rejected)

    def join(
        self,
        queue_name: str,
        *,
        timeout: int | None = None,
        fail_fast: bool | None = None,
        **_: Any,
    ) -> None:
        super().join(queue_name, timeout=timeout, interval=20)
        fails = self.fail_fast_default if fail_fast is None else fail_fast
        if fails and self.rejected.ends:
            raise self.rejected.pop()

    @property
    def dead_letters(self) -> list[dramatiq.Message[Any]]:
        """The dead letters of all queues."""
        topics = [self.topic(xq_name(queue_name)) for queue_name in sorted(self.queues)]
        return [
            dramatiq.Message.decode(json.dumps(record.data).encode())
            for topic in topics
            for record in self.client.read(topic)
        ]

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """Messages of the queue, of its delay queue, and dead letters."""
        counts = self.client.topic(self.topic(queue_name)).queue
        assert counts is not None
        dead = self.client.topic(self.topic(xq_name(queue_name))).count
        return counts.ready + counts.in_flight, counts.delayed, dead


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.partition("/")[2].partition("[")[0]
        file = name.partition("::")[0]
        if reason := LEFT_OUT.get(name) or LEFT_OUT.get(file):
            item.add_marker(pytest.mark.skip(reason=reason))


def fresh(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex}"


@pytest.fixture
def broker() -> Iterator[SuiteBroker]:
    broker = SuiteBroker(namespace=fresh("suite"))
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.flush_all()
    broker.close()


@pytest.fixture
def stub_broker(broker: SuiteBroker) -> SuiteBroker:
    broker.fail_fast_default = True
    return broker


@pytest.fixture
def redis_broker(broker: SuiteBroker) -> SuiteBroker:
    return broker


@pytest.fixture
def rabbitmq_broker(broker: SuiteBroker) -> SuiteBroker:
    return broker


@pytest.fixture
def worker_of_suite(broker: SuiteBroker) -> Iterator[Worker]:
    worker = Worker(broker, worker_timeout=100, worker_threads=32)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def stub_worker(worker_of_suite: Worker) -> Worker:
    return worker_of_suite


@pytest.fixture
def redis_worker(worker_of_suite: Worker) -> Worker:
    return worker_of_suite


@pytest.fixture
def rabbitmq_worker(worker_of_suite: Worker) -> Worker:
    return worker_of_suite


@pytest.fixture
def result_backend() -> TopicsBackend:
    return TopicsBackend(namespace=fresh("results"))


@pytest.fixture
def stub_result_backend(result_backend: TopicsBackend) -> TopicsBackend:
    return result_backend


@pytest.fixture
def redis_result_backend(result_backend: TopicsBackend) -> TopicsBackend:
    return result_backend


@pytest.fixture
def result_backends(result_backend: TopicsBackend) -> dict[str, TopicsBackend]:
    return {"topics": result_backend}


@pytest.fixture
def rate_limiter_backend() -> TopicsRateLimiterBackend:
    return TopicsRateLimiterBackend(namespace=fresh("limits"))


@pytest.fixture
def stub_rate_limiter_backend(
    rate_limiter_backend: TopicsRateLimiterBackend,
) -> TopicsRateLimiterBackend:
    return rate_limiter_backend


@pytest.fixture
def rate_limiter_backends(
    rate_limiter_backend: TopicsRateLimiterBackend,
) -> dict[str, TopicsRateLimiterBackend]:
    return {"topics": rate_limiter_backend}


@pytest.fixture
def info_logging() -> Iterator[None]:
    logging.getLogger().setLevel(logging.INFO)
    yield
    logging.getLogger().setLevel(logging.DEBUG)


@pytest.fixture
def start_cli() -> Iterator[Any]:
    started = []

    def run(broker_module: str, *, extra_args: Any = None, **options: Any) -> Any:
        line = [sys.executable, "-m", "dramatiq", broker_module, *(extra_args or [])]
        started.append(subprocess.Popen(line, **{"bufsize": 0, **options}))
        return started[-1]

    yield run
    for process in started:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


os.environ.setdefault("dramatiq_restart_delay", "200")
