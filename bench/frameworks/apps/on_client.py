"""The worker of this project's client."""

import os
import sys

from bench.frameworks.apps.producing import produce
from bench.frameworks.starts import note
from topics import Client
from topics.client.models import Job


def start(job: Job[int]) -> None:
    note(job.data)


if __name__ == "__main__":
    with Client(os.environ["BENCH_BROKER"]) as client:
        client.put_topic("bench", type="queue")
        if sys.argv[1] == "work":
            client.work("bench", start, concurrency=8)
        else:
            produce(lambda at_ns: client.append("bench", at_ns))
