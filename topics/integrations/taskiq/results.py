"""`TopicsResultBackend`: results and progress of taskiq in a table of the client's, by the id of their task."""

from typing import Any, Final, TypeVar

import msgspec
from taskiq import AsyncResultBackend, TaskiqResult
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import ResultGetError
from taskiq.serializers import JSONSerializer

from topics.client import AsyncClient, AsyncTable
from topics.integrations.taskiq.connection import Connection
from topics.integrations.wire import from_data, require_namespace, to_data

RESULT_TTL_MS: Final = 86_400_000

R = TypeVar("R")


class ResultIsMissing(ResultGetError):
    """The task has no result: it did not end yet, or so long ago that its result is gone."""

    __template__ = "There is no result"


class TopicsResultBackend(AsyncResultBackend[R]):
    """Keeps results in a topic.

        broker = TopicsBroker(url).with_result_backend(TopicsResultBackend(url))

    Args:
        url, api_key, client: As for `TopicsBroker`.
        namespace: The topic.
        result_ttl_ms: How long a topic that the backend creates keeps results, a day by default; the
            `ttl_ms` of a topic that exists is left as it is.
        keep_results: False deletes a result when it is read.
        serializer: Of results and progress; by default JSON, which cannot be made to run code.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        namespace: str = "taskiq-results",
        result_ttl_ms: int = RESULT_TTL_MS,
        keep_results: bool = True,
        serializer: TaskiqSerializer | None = None,
        client: AsyncClient | None = None,
    ) -> None:
        self.namespace = require_namespace(namespace)
        self.result_ttl_ms = result_ttl_ms
        self.keep_results = keep_results
        self.serializer = serializer or JSONSerializer()
        self._connection = Connection(url, api_key, client)

    @property
    def client(self) -> AsyncClient:
        """Sends all calls."""
        return self._connection.client

    async def shutdown(self) -> None:
        """Close the connections."""
        await super().shutdown()
        await self._connection.aclose()

    async def set_result(self, task_id: str, result: TaskiqResult[R]) -> None:
        """Store a result."""
        await self._store(task_id, result.model_dump(mode="json"))

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether a task has a result."""
        return await self._find(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[R]:
        """The result of a task.

        Raises:
            ResultIsMissing: There is none.
        """
        found = await self._find(task_id)
        if found is None:
            raise ResultIsMissing
        if not self.keep_results:
            await self._table.delete(task_id)
        result = TaskiqResult[R].model_validate(found)
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Store how far a task is."""
        await self._store(_progress(task_id), progress.model_dump(mode="json"))

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """How far a task said that it was; None where it did not."""
        found = await self._find(_progress(task_id))
        return None if found is None else TaskProgress[Any].model_validate(found)

    @property
    def _table(self) -> AsyncTable[msgspec.Raw]:
        return self.client.table(self.namespace, decode=msgspec.Raw, ttl_ms=self.result_ttl_ms)

    async def _store(self, key: str, value: Any) -> None:
        await self._table.put(key, to_data(self.serializer.dumpb(value)))

    async def _find(self, key: str) -> Any:
        found = await self._table.get(key)
        return None if found is None else self.serializer.loadb(from_data(found.data))


def _progress(task_id: str) -> str:
    return f"{task_id}:progress"
