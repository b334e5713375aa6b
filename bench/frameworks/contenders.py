"""What is measured: a framework on a broker, by the commands that its manual has."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench.frameworks.starts import FILE
from bench.serving import Serving, serve_redis, serve_topics

APPS: Final = Path(__file__).parent / "apps"
MODULES: Final = "bench.frameworks.apps"
NODE_MODULES: Final = Path(__file__).parents[2] / "build" / "frameworks" / "node_modules"
QUIET: Final = ("--loglevel", "WARNING")


@dataclass(frozen=True)
class Contender:
    """A framework on a broker.

    Attributes:
        framework: Its name, and that of what must be installed: a module, or a package of npm.
        broker: `topics` or `redis`.
        worker: The command of the worker, eight jobs at a time.
        producer: The command that enqueues, but for the number of jobs and the pause between two.
        scheme: Of the broker's URL.
    """

    framework: str
    broker: str
    worker: Sequence[str]
    producer: Sequence[str]
    scheme: str

    @property
    def name(self) -> str:
        return f"{self.framework} on {self.broker}"

    def is_installed(self) -> bool:
        if self.broker == "redis" and shutil.which("redis-server") is None:
            return False
        if self.framework == "BullMQ":
            return (NODE_MODULES / "bullmq").is_dir() and shutil.which("node") is not None
        return find_spec(self.framework.lower()) is not None

    def start_broker(self, home: Path) -> Serving:
        """A broker without any job; Redis with an append-only file, as safe as the class `disk`."""
        if self.broker == "topics":
            return serve_topics(home)
        return serve_redis(home, fsync="everysec")

    def environment(self, broker: Serving, starts: Path) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")}
        return {
            **kept,
            "BENCH_BROKER": f"{self.scheme}://127.0.0.1:{broker.port}",
            FILE: str(starts),
            "NODE_PATH": str(NODE_MODULES),
        }


def _celery(broker: str, scheme: str) -> Contender:
    module = f"{MODULES}.on_celery"
    worker = ["-m", "celery", "-A", module, "worker", "--concurrency", "8", *QUIET]
    return Contender("Celery", broker, [sys.executable, *worker], _python(module), scheme)


def _dramatiq(broker: str, scheme: str) -> Contender:
    module = f"{MODULES}.on_dramatiq"
    worker = ["-m", "dramatiq", module, "--processes", "2", "--threads", "4"]
    return Contender("dramatiq", broker, [sys.executable, *worker], _python(module), scheme)


def _taskiq(broker: str, scheme: str) -> Contender:
    module = f"{MODULES}.on_taskiq"
    worker = ["-m", "taskiq", "worker", f"{module}:broker", "--workers", "2"]
    worker += ["--max-async-tasks", "4", "--log-level", "WARNING"]
    return Contender("taskiq", broker, [sys.executable, *worker], _python(module), scheme)


def _python(module: str) -> Sequence[str]:
    return [sys.executable, "-m", module]


_CLIENT: Final = _python(f"{MODULES}.on_client")
_BULLMQ: Final = ["node", str(APPS / "on_bullmq.cjs")]

CONTENDERS: Final = (
    Contender("topics.Client", "topics", [*_CLIENT, "work"], _CLIENT, "http"),
    _celery("topics", "topics"),
    _celery("redis", "redis"),
    _dramatiq("topics", "http"),
    _dramatiq("redis", "redis"),
    _taskiq("topics", "http"),
    _taskiq("redis", "redis"),
    Contender("BullMQ", "redis", [*_BULLMQ, "work"], _BULLMQ, "redis"),
)
