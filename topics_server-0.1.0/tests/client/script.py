"""A server that answers from a script, and both faces of the client before it.

A `Script` is a list of answers, given in order; it keeps the requests that came and the pauses the
client made.  A test is written once, against `Face.do`, and runs over `Client` and `AsyncClient`.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from topics.client import AsyncClient, Client, Clock, Retry

URL = "http://topics.test"


def ok(body: Any = None, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, content=msgspec.json.encode(body), headers=headers)


def error(
    status: int, code: str, detail: dict[str, Any] | None = None, **headers: str
) -> httpx.Response:
    body: dict[str, Any] = {"code": code, "message": f"no: {code}"}
    body |= {} if detail is None else {"detail": detail}
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json={"error": body}, headers=headers)


def appended(first_seq: int, last_seq: int, **more: Any) -> httpx.Response:
    body = {"topic": "jobs", "first_seq": first_seq, "last_seq": last_seq, "head_seq": last_seq}
    return ok({**body, "performance": {"server_total_ms": 0.1}, **more})


def page(*records: dict[str, Any], head_seq: int, cursor: int, **more: Any) -> httpx.Response:
    body = {
        "records": list(records),
        "next_from_seq": cursor,
        "head_seq": head_seq,
        "earliest_seq": 1,
        "caught_up": cursor == head_seq,
        "lag": head_seq - cursor,
        "tombstone": None,
        "epoch": "e1",
    }
    return ok({**body, **more})


def record(seq: int, data: Any = None, **more: Any) -> dict[str, Any]:
    return {"$seq": seq, "$ts": 1_748_450_000_000 + seq, "data": data, **more}


class Script:
    """Answers (a response, an exception, or a function of the request) in order.

    `pauses_s` are the client's sleeps; its clock is their sum, and chance always says 0.
    """

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.pauses_s: list[float] = []
        self.clock = Clock(now_s=lambda: sum(self.pauses_s), jitter=lambda: 0.0)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        given: httpx.Response = answer(request) if callable(answer) else answer
        # A copy: httpx binds a response to the face that took it.
        return httpx.Response(given.status_code, headers=given.headers, content=given.content)

    @property
    def lines(self) -> list[str]:
        return [f"{r.method} {r.url.raw_path.decode()}" for r in self.requests]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(r.content) for r in self.requests]


class SyncFace:
    def __init__(self, script: Script, **options: Any) -> None:
        self._script, self._options = script, options

    def do(self, use: Callable[[Any], Any]) -> Any:
        """What `use(client)` gives; an iterator's items as a list."""
        script = self._script
        client = Client(
            URL,
            transport=httpx.MockTransport(script),
            clock=script.clock,
            sleep=script.pauses_s.append,
            **self._options,
        )
        return collect(client, use)


class AsyncFace:
    def __init__(self, script: Script, **options: Any) -> None:
        self._script, self._options = script, options

    def do(self, use: Callable[[Any], Any]) -> Any:
        """What `use(client)` gives when awaited; an asynchronous iterator's items as a list."""
        script = self._script

        async def sleep(pause_s: float) -> None:
            script.pauses_s.append(pause_s)

        client = AsyncClient(
            URL,
            transport=httpx.MockTransport(script),
            clock=script.clock,
            sleep=sleep,
            **self._options,
        )
        return collect(client, use)


def collect(client: Client | AsyncClient, use: Callable[[Any], Any]) -> Any:
    """What `use(client)` gives, awaited and iterated as the face wants it; closes the client."""
    if isinstance(client, AsyncClient):
        return asyncio.run(_collect(client, use))
    with client:
        given = use(client)
        return list(given) if inspect.isgenerator(given) else given


async def _collect(client: AsyncClient, use: Callable[[Any], Any]) -> Any:
    async with client:
        given = use(client)
        if inspect.isasyncgen(given):
            return [item async for item in given]
        return await given


ONE_TRY = Retry(for_s=0)


def spelled(value: object) -> str:
    """A value as the name of a test, which is the same in every process: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
