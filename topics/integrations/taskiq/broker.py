"""`TopicsBroker`: tasks of taskiq as jobs of queues.

Owns which topic a queue is, the config of topics that it creates, and what labels of a task say about
its job.  Claims and leases are the client's (`AsyncClient.work`).  Invariant: a task that a worker has
keeps its lease until it is acked, whichever time of the ack the worker has.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from logging import getLogger
from typing import Any, Final, cast

import msgspec
from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from topics.client import (
    PASSING,
    AsyncClient,
    AsyncHeldJob,
    AsyncWork,
    Config,
    Job,
    NewRecord,
    TopicNotFound,
    tag_of,
)
from topics.integrations.taskiq.connection import Connection
from topics.integrations.wire import QUEUE, message_from, require_namespace, to_data, topic_of

LEASE_MS: Final = 30_000
"""How soon another worker has the tasks of a worker that died."""
DEAD_LETTER_TTL_MS: Final = 7 * 86_400_000
WAIT_MS: Final = 30_000
"""How long a claim waits for a task: the longest that a server grants (§10.2)."""
PAUSE_S: Final = 1.0
"""Between the attempts of a client, which has pauses of its own, and the next ones."""

_RETRIES: Final = "_retries"
"""The label that taskiq's middleware of retries counts with."""

_RawJob = Job[msgspec.Raw]
logger = getLogger("taskiq.topics")


class TopicsBroker(AsyncBroker):
    """A broker on a server of `topics`.

        broker = TopicsBroker("http://127.0.0.1:4000")

        @broker.task
        async def greet(name: str) -> None: ...

    Queue `default` is topic `taskiq:default`; what was delivered too often (`max_deliveries`) is in
    `taskiq:default:dead`.  Both are created when they are first used; the config of a topic that exists is
    left as it is.

    Labels of a task, or of a call by `.kicker().with_labels(...)`, say more of its job:

    - `delay`: seconds that it waits in the server, as `SmartRetryMiddleware` gives them.
    - `priority`: within [-128, 127]; the higher is handed out first.
    - `unique`: a key; while a task with it waits or runs, another call makes no second one.
    - `queue_name`: of another queue than the broker's own.

    Args:
        url: The server; by default `TOPICS_URL` of the environment, else http://127.0.0.1:4000.
        api_key: By default `TOPICS_API_KEY` of the environment, if set.
        queue_name: The queue that tasks go to, and that a worker listens to.
        namespace: What names of topics begin with.
        lease_ms: How soon another worker has the tasks of a worker that died.
        prefetch: Tasks of one claim.  More saves requests where tasks are short; tasks that wait for
            their turn are leased meanwhile.
        queue_config: Config of queues that the broker creates, over its own: `discard="reject"`,
            `durability="disk"`, `leases_durable=True`, and a `dead_letter`.
        client: In place of `url` and `api_key`; it is not closed at the shutdown.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        queue_name: str = "default",
        namespace: str = "taskiq",
        lease_ms: int = LEASE_MS,
        prefetch: int = 1,
        queue_config: Config | None = None,
        client: AsyncClient | None = None,
    ) -> None:
        super().__init__()
        self.queue_name = queue_name
        self.namespace = require_namespace(namespace)
        self.lease_ms = lease_ms
        self.prefetch = prefetch
        self._queue_config = queue_config or {}
        self._connection = Connection(url, api_key, client)
        self._works: list[AsyncWork[msgspec.Raw]] = []

    @property
    def client(self) -> AsyncClient:
        """Sends all calls."""
        return self._connection.client

    def topic(self, queue_name: str | None = None) -> str:
        """The topic of a queue; by default of the broker's own."""
        return topic_of(self.namespace, queue_name or self.queue_name)

    def dead_letters(self, queue_name: str | None = None) -> str:
        """The topic of a queue's dead letters, as the broker creates it."""
        # No queue's: the names of queues have no colon in a topic's name but before two digits.
        return f"{self.topic(queue_name)}:dead"

    def config(self, queue_name: str | None = None) -> Config:
        """The config of a queue that the broker creates."""
        own = {"lease_ms": self.lease_ms, "dead_letter": self.dead_letters(queue_name)}
        return cast(Config, {**QUEUE, **own, **self._queue_config})

    async def shutdown(self) -> None:
        """Give back tasks that were not acked, and close the connections."""
        await super().shutdown()
        works, self._works = self._works, []
        for work in works:
            await work.aclose()
        await self._connection.aclose()

    async def create_topics(self) -> None:
        """Create the topics of the broker's queue and of its dead letters, where they are missing."""
        config = self.config()
        if dead := config.get("dead_letter"):
            await self.client.create_topic(dead, ttl_ms=DEAD_LETTER_TTL_MS)
        await self.client.create_topic(self.topic(), **config)

    async def kick(self, message: BrokerMessage) -> None:
        """Append a task as a job.

        Raises:
            TopicsError: The server refused it, or did not answer for as long as the client tries.
        """
        queue_name = message.labels.get("queue_name")
        record = NewRecord(
            to_data(message.message), tag=tag_of(message.task_name), **_job_options(message.labels)
        )
        await self.client.append(self.topic(queue_name), record, config=self.config(queue_name))

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Claim tasks, one after the other, for as long as the worker asks.

        While the server is away it tries on.  Leases of tasks that it handed out are extended until
        they are acked, also after it ended.
        """
        await self._steadily(self.create_topics)
        work = self.client.work(
            self.topic(),
            job_type=_RawJob,
            max=self.prefetch,
            lease_ms=self.lease_ms,
            wait_ms=WAIT_MS,
        )
        self._works.append(work)
        while True:
            try:
                async for job in work:
                    if (message := await self._message(job)) is not None:
                        yield message
                return
            except TopicNotFound:
                await self._steadily(self.create_topics)
            except PASSING as error:
                await _away(error)

    async def _message(self, job: "AsyncHeldJob[msgspec.Raw]") -> AckableMessage | None:
        try:
            data = message_from(job.data)
        except ValueError as error:
            reason = str(error)
            logger.error("Job %d of %s is no task: %s", job.seq, job.queue, reason)
            await self._steadily(lambda: job.reject(reason))
            return None

        async def ack() -> None:
            await self._steadily(job.ack)
            if job.is_lost:
                what = "The lease of job %d of %s ran out: another worker has it, or had it."
                logger.warning(what, job.seq, job.queue)

        return AckableMessage(data=data, ack=ack)

    async def _steadily(self, call: Callable[[], Awaitable[object]]) -> None:
        """Make a call until the server answers."""
        while True:
            try:
                await call()
            except PASSING as error:
                await _away(error)
            else:
                return


async def _away(error: Exception) -> None:
    logger.warning("The server of topics does not answer; trying on: %s", error)
    await asyncio.sleep(PAUSE_S)


def _job_options(labels: Mapping[str, Any]) -> dict[str, Any]:
    """What labels say of a job.  Labels are text by now: taskiq sends them so.

    A retry is a task of its own, while the one before it still runs: it does not take its key.
    """
    options: dict[str, Any] = {}
    if (delay := labels.get("delay")) is not None:
        options["delay_ms"] = max(round(float(delay) * 1000), 0)
    if (priority := labels.get("priority")) is not None:
        options["priority"] = int(priority)
    if (unique := labels.get("unique")) is not None and not int(labels.get(_RETRIES, 0)):
        options["unique"] = str(unique)
    return options
