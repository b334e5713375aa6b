"""`TopicsBroker`: messages of dramatiq as jobs of queues.

Owns which topic a queue is, the config of topics that it creates, and the priority and the time of a
message.  A delayed message waits in the server (`not_before`), in the queue itself: no worker holds it.
Delay queues (`NAME.DQ`) are declared all the same, because workers and middleware expect them, and
stay empty.
"""

import time
from contextlib import suppress
from typing import Any, Final, cast

from dramatiq import Broker, Consumer, Message, Middleware
from dramatiq.common import current_millis, dq_name, q_name, xq_name
from dramatiq.errors import QueueJoinTimeout, QueueNotFound

from topics.client import Client, Config, NewRecord, TopicNotFound, tag_of
from topics.integrations.dramatiq.consumer import DelayQueueConsumer, TopicsConsumer
from topics.integrations.dramatiq.errors import connection_errors
from topics.integrations.wire import QUEUE, require_namespace, to_data, topic_of

LEASE_MS: Final = 30_000
"""How soon another worker has the messages of a worker that died."""
DEAD_LETTER_TTL_MS: Final = 7 * 86_400_000
"""As long as dramatiq's other brokers keep dead letters."""
PRIORITIES: Final = (-128, 127)


class TopicsBroker(Broker):
    """A broker on a server of `topics`.

        broker = TopicsBroker(url="http://127.0.0.1:4000")
        dramatiq.set_broker(broker)

    Queue `default` is topic `dramatiq:default`; its dead letters are in `dramatiq:default.XQ`.  Both are
    created when they are first used; the config of a topic that exists is left as it is.

    Among the messages of a queue the server hands out the highest `broker_priority` first, an option
    of actors and messages within [-128, 127].  Without it the priority is the actor's own, negated:
    a lower `priority` of an actor is more urgent, as in a worker.

    Args:
        url: The server; by default `TOPICS_URL` of the environment, else http://127.0.0.1:4000.
        api_key: By default `TOPICS_API_KEY` of the environment, if set.
        namespace: What names of topics begin with.
        lease_ms: How soon another worker has the messages of a worker that died.  Leases of messages
            in hand are extended in the background.
        queue_config: Config of queues that the broker creates, over its own: `discard="reject"`,
            `durability="disk"`, `leases_durable=True`, and a `dead_letter`.
        dead_letter_ttl_ms: How long topics of dead letters that the broker creates keep them.
        client: In place of `url` and `api_key`; it is not closed by `close`.
        middleware: As for any broker of dramatiq.

    Attributes:
        client: Sends all calls.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        namespace: str = "dramatiq",
        lease_ms: int = LEASE_MS,
        queue_config: Config | None = None,
        dead_letter_ttl_ms: int = DEAD_LETTER_TTL_MS,
        client: Client | None = None,
        middleware: list[Middleware] | None = None,
    ) -> None:
        super().__init__(middleware=middleware)
        self.actor_options.add("broker_priority")
        self.queues: set[str] = set()
        self.namespace = require_namespace(namespace)
        self.lease_ms = lease_ms
        self.dead_letter_ttl_ms = dead_letter_ttl_ms
        self.client = client or Client(url, api_key=api_key)
        self._owns_client = client is None
        self._queue_config = queue_config or {}

    def close(self) -> None:
        """Close the connections."""
        if self._owns_client:
            self.client.close()

    # ------------------------------------------------------------------ queues

    def topic(self, queue_name: str) -> str:
        """The topic of a queue, of its delay queue, which is the same, or of its dead letters (`.XQ`)."""
        name = queue_name if queue_name.endswith(".XQ") else q_name(queue_name)
        return topic_of(self.namespace, name)

    def config(self, queue_name: str) -> Config:
        """The config of a queue that the broker creates."""
        dead = self.topic(xq_name(queue_name))
        own = {"lease_ms": self.lease_ms, "dead_letter": dead}
        return cast(Config, {**QUEUE, **own, **self._queue_config})

    def declare_queue(self, queue_name: str) -> None:
        """Make a queue known; its topic is created when it is first used."""
        queue_name = q_name(queue_name)
        if queue_name in self.queues:
            return
        self.emit_before("declare_queue", queue_name)
        self.queues.add(queue_name)
        self.emit_after("declare_queue", queue_name)
        delayed = dq_name(queue_name)
        self.delay_queues.add(delayed)
        self.emit_after("declare_delay_queue", delayed)

    def get_declared_queues(self) -> set[str]:
        return self.queues.copy()

    def create_topics(self, queue_name: str) -> None:
        """Create the topics of a queue and of its dead letters, where they are missing."""
        config = self.config(queue_name)
        dead = config.get("dead_letter")
        if dead is not None:
            self.client.create_topic(dead, ttl_ms=self.dead_letter_ttl_ms)
        self.client.create_topic(self.topic(queue_name), **config)

    # ------------------------------------------------------------------ messages

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Append a message as a job; with a delay it may not be claimed before.

        Args:
            delay: Milliseconds, at most ten years.

        Returns:
            The message as it was announced to middleware: of a delayed one, with its `eta` and the
            name of the delay queue.

        Raises:
            ConnectionClosed: The server did not answer for as long as the client tries.
            TopicsError: The server refused the message.
        """
        if delay is not None:
            eta = current_millis() + delay
            name = dq_name(message.queue_name)
            message = message.copy(queue_name=name, options={"eta": eta})
        else:
            message = message.copy(queue_name=q_name(message.queue_name))
        self.logger.debug("Enqueueing message %r.", message.message_id)
        self.emit_before("enqueue", message, delay)
        with connection_errors():
            queue_name = q_name(message.queue_name)
            self.client.append(
                self.topic(queue_name), self._record(message), config=self.config(queue_name)
            )
        self.emit_after("enqueue", message, delay)
        return message

    def _record(self, message: Message[Any]) -> NewRecord:
        stored = message.copy(queue_name=q_name(message.queue_name))
        eta = stored.options.pop("eta", None)
        return NewRecord(
            to_data(stored.encode()),
            tag=tag_of(message.actor_name),
            not_before=int(eta) if isinstance(eta, int | float) else None,
            priority=self._priority(message),
        )

    def _priority(self, message: Message[Any]) -> int | None:
        """The priority of a job, higher first; None for 0."""
        actor = self.actors.get(message.actor_name)
        own = {} if actor is None else actor.options
        given = message.options.get("broker_priority", own.get("broker_priority"))
        if given is None:
            given = 0 if actor is None else -actor.priority
        lowest, highest = PRIORITIES
        return min(max(int(given), lowest), highest) or None

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """A consumer of a queue.

        Args:
            prefetch: How many messages may be in the worker, those in process included.
            timeout: Milliseconds that it waits for a message.

        Raises:
            QueueNotFound: The queue was not declared.
        """
        if queue_name in self.delay_queues:
            return DelayQueueConsumer(timeout)
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        return TopicsConsumer(
            self.client,
            self.topic(queue_name),
            queue_name,
            create=lambda: self.create_topics(queue_name),
            prefetch=prefetch,
            timeout_ms=timeout,
            lease_ms=self.lease_ms,
        )

    # ------------------------------------------------------------------ for tests and operators

    def flush(self, queue_name: str) -> None:
        """Drop all messages of a queue, delayed ones too; its dead letters stay."""
        # A queue that was never used has no topic.
        with connection_errors(), suppress(TopicNotFound):
            self.client.purge(self.topic(q_name(queue_name)))

    def flush_all(self) -> None:
        """Drop all messages of all declared queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Wait until a queue has no messages, delayed and prefetched ones included.  For tests.

        Args:
            interval: Milliseconds between two looks.
            timeout: Milliseconds; None waits for as long as it takes.

        Raises:
            QueueJoinTimeout: There are still messages then.
        """
        end_s = None if timeout is None else time.monotonic() + timeout / 1000
        while self._count(queue_name):
            if end_s is not None and time.monotonic() >= end_s:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)

    def _count(self, queue_name: str) -> int:
        with connection_errors():
            try:
                return self.client.topic(self.topic(q_name(queue_name)), touch=False).count
            except TopicNotFound:
                return 0
