"""`TopicsScheduleSource`: schedules of taskiq in a table of the client's, by their ids.

`taskiq scheduler` reads all of them at each update, so what a program adds or deletes takes effect then.
"""

from typing import Any

from taskiq import ScheduledTask, ScheduleSource

from topics.client import AsyncClient, AsyncTable, TopicNotFound
from topics.integrations.taskiq.connection import Connection
from topics.integrations.wire import require_namespace


class TopicsScheduleSource(ScheduleSource):
    """Keeps schedules in a topic.

        source = TopicsScheduleSource("http://127.0.0.1:4000")
        scheduler = TaskiqScheduler(broker, sources=[source])

        await greet.schedule_by_cron(source, "0 6 * * *", "Ada")

    A schedule with a `time` is deleted once its task was sent.  Arguments are JSON, as far as pydantic
    has JSON for them.

    Args:
        url, api_key, client: As for `TopicsBroker`.
        namespace: The topic.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        namespace: str = "taskiq-schedules",
        client: AsyncClient | None = None,
    ) -> None:
        self.namespace = require_namespace(namespace)
        self._connection = Connection(url, api_key, client)

    @property
    def client(self) -> AsyncClient:
        """Sends all calls."""
        return self._connection.client

    @property
    def _table(self) -> AsyncTable[Any]:
        return self.client.table(self.namespace)

    async def shutdown(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def get_schedules(self) -> list[ScheduledTask]:
        """All schedules, in the order of their ids."""
        try:
            return [
                ScheduledTask.model_validate(record.data)
                async for record in self.client.latest_all(self.namespace)
            ]
        except TopicNotFound:
            return []

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Add a schedule, or replace that of the same `schedule_id`."""
        await self._table.put(schedule.schedule_id, schedule.model_dump(mode="json"))

    async def delete_schedule(self, schedule_id: str) -> None:
        """Delete a schedule, if there is one."""
        await self._table.delete(schedule_id)

    async def post_send(self, task: ScheduledTask) -> None:
        """Delete a schedule of one time, whose task was sent."""
        if task.time is not None:
            await self.delete_schedule(task.schedule_id)
