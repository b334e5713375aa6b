"""Options that do not exist: refused by the call, by name, with nothing sent."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from topics.client import AsyncClient, Client

from .script import URL

MISTYPED: dict[str, Callable[[Any], Any]] = {
    "cap_record": lambda c: c.put_topic("x", cap_record=5),
    "ttl": lambda c: c.configure_topic("x", ttl=5),
    "idempotency_ky": lambda c: c.append("jobs", 1, idempotency_ky="k"),
    "priorty": lambda c: c.append("jobs", 1, priorty=1),
    "rates": lambda c: c.put_topic("x", rates={"max": 1, "per_ms": 1}),
    "caps": lambda c: c.append("jobs", 1, config={"caps": 5}),
    "batch_record": lambda c: c.append_many("jobs", [1], batch_record=5),
    "cap": lambda c: c.append_many("jobs", [1], config={"cap": 5}),
    "from_sq": lambda c: c.read("jobs", from_sq=2500),
    "form_seq": lambda c: c.diff("jobs", form_seq=2500),
    "follow": lambda c: c.diff("jobs", follow=True),
    "tags": lambda c: c.watch("jobs", tags=True),
    "fromseq": lambda c: c.watch({"audit": 1, "jobs": {"fromseq": 1}}),
    "from": lambda c: c.delete("jobs", **{"from": 1}),
    "keeps": lambda c: c.purge("jobs", keeps=1),
    "nod": lambda c: c.claim("jobs", node="w", nod="w"),
    "lease": lambda c: c.work("jobs", lease=1),
    "chron": lambda c: c.put_schedule("s", "jobs", 1, chron="0 0 * * *"),
    "cap_rec": lambda c: c.put_schedule("s", "jobs", 1, at_ms=1, config={"cap_rec": 1}),
    "filters": lambda c: c.put_router("r", "a", "b", filters="x"),
}
"""By the option that is wrong, a call with it."""


def refuse(request: httpx.Request) -> httpx.Response:
    raise AssertionError("something was sent")


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def client(request: pytest.FixtureRequest) -> Any:
    """A client of either kind that must not send anything."""
    return request.param(URL, transport=httpx.MockTransport(refuse))


@pytest.mark.parametrize("name", MISTYPED)
def test_a_mistyped_option(client: Any, name: str) -> None:
    """The call itself raises, as Python does for an argument that a function has not: neither the
    first item nor an `await` is waited for, and no topic is left without its cap."""
    with pytest.raises(TypeError, match=f"'{name}'"):
        MISTYPED[name](client)


@pytest.mark.parametrize(
    "topics", [5, None, ["jobs", 5], b"jobs", [["jobs"]], {"jobs": "4096"}, {"jobs": None}], ids=str
)
def test_what_names_no_topic(client: Any, topics: Any) -> None:
    """What a watch cannot be of is refused likewise."""
    with pytest.raises(TypeError):
        client.watch(topics)


def test_a_value_that_is_no_json(client: Any) -> None:
    """So is a value that JSON has no form for, wherever it would be sent from."""
    with pytest.raises(TypeError):
        client.append("jobs", object())


def test_what_an_async_call_gives() -> None:
    """A coroutine, as before: for `create_task`, `gather` and `wait_for`."""

    async def story() -> None:
        answer = {"topic": "x", "created": True, "config": {}}
        transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
        async with AsyncClient(URL, transport=transport) as client:
            asked = client.put_topic("x", cap_records=5)
            assert inspect.iscoroutine(asked)
            assert (await asyncio.create_task(asked)).created

    asyncio.run(story())
