"""dramatiq, without results."""

import os

import dramatiq
from dramatiq.broker import Broker

from bench.frameworks.apps.producing import produce
from bench.frameworks.starts import note


def broker_of(url: str) -> Broker:
    if url.startswith("redis:"):
        from dramatiq.brokers.redis import RedisBroker

        return RedisBroker(url=url)
    from topics.integrations.dramatiq import TopicsBroker

    return TopicsBroker(url=url)


dramatiq.set_broker(broker_of(os.environ["BENCH_BROKER"]))


@dramatiq.actor(actor_name="start")
def start(enqueued_ns: int) -> None:
    note(enqueued_ns)


if __name__ == "__main__":
    produce(start.send)
