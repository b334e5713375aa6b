"""Which server a command talks to, and how patiently."""

import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topics.cli.exits import UNUSABLE, Stop, refusals

if TYPE_CHECKING:
    import httpx

    from topics.client import AsyncClient, Client
    from topics.client.calls import Call
    from topics.client.wire import AsyncCarrier, Carrier, Sending

F = TypeVar("F", bound=Callable[..., Any])


def with_client(
    command: Callable[..., int | None], *, tells_waits: bool = True
) -> Callable[..., int | None]:
    """Give a command its `Client` as first argument, and the options that choose it.

    Args:
        tells_waits: Say on standard error that the server is waited for; a command that tells of
            its connection itself does not want that.
    """

    @_target_options
    @wraps(command)
    def run(
        url: str, api_key: str | None, retry_for: float, timeout: float, **rest: Any
    ) -> int | None:
        with refusals(), _client(url, api_key, retry_for, timeout, tells_waits) as client:
            return command(client, **rest)

    return run


def with_async_client(
    command: Callable[..., Coroutine[Any, Any, int | None]],
) -> Callable[..., int | None]:
    """The same for a command that awaits: its client is an `AsyncClient`."""

    @_target_options
    @wraps(command)
    def run(
        url: str, api_key: str | None, retry_for: float, timeout: float, **rest: Any
    ) -> int | None:
        import asyncio

        async def awaited() -> int | None:
            async with _async_client(url, api_key, retry_for, timeout) as client:
                return await command(client, **rest)

        with refusals():
            return asyncio.run(awaited())

    return run


def _target_options(command: F) -> F:
    url = click.option(
        "--url",
        envvar="TOPICS_URL",
        default=_local_url,
        show_default="http://127.0.0.1:4000, or where TOPICS_HOST and TOPICS_PORT say",
        show_envvar=True,
        help="The server.",
    )
    key = click.option(
        "--api-key", envvar="TOPICS_API_KEY", show_envvar=True, help="Key to present."
    )
    patience = click.option(
        "--retry-for",
        type=click.FloatRange(min=0),
        default=15.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to try again while the server is away, busy or starting.",
    )
    silence = click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long the server may be silent while a request is under way.",
    )
    return url(key(patience(silence(command))))


def _local_url() -> str:
    """The server that the same environment would start."""
    host = os.environ.get("TOPICS_HOST") or "127.0.0.1"
    port = os.environ.get("TOPICS_PORT") or "4000"
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{shown}:{port}"


class _Patience:
    """Sleeps between attempts, and says once why nothing is seen to happen."""

    def __init__(self, url: str, *, has_told: bool) -> None:
        self._url = url
        self._has_told = has_told

    def sleep(self, seconds: float) -> None:
        self._tell()
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        import asyncio

        self._tell()
        await asyncio.sleep(seconds)

    def _tell(self) -> None:
        if not self._has_told:
            self._has_told = True
            click.echo(f"topics: {self._url} does not answer yet; trying again", err=True)


WAITING_S: Final = 2.0
"""After so long a person wonders whether anything happens."""


class _Waiting:
    """Says once what is waited for, where a person can see it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.has_told = sys.stderr is None or not sys.stderr.isatty()

    def tell(self) -> None:
        if not self.has_told:
            self.has_told = True
            click.echo(f"topics: waiting for {self._url}", err=True)


class _Waited:
    """Carries a `Client`'s calls, and tells of an answer that is long in coming.

    A long poll is expected to take its wait.
    """

    def __init__(self, carrier: "Carrier", waiting: _Waiting) -> None:
        self._carrier = carrier
        self._waiting = waiting

    @property
    def is_closed(self) -> bool:
        return self._carrier.is_closed

    def close(self) -> None:
        self._carrier.close()

    def request(self, call: "Call[Any]", sending: "Sending") -> "httpx.Response":
        with self._told(call):
            return self._carrier.request(call, sending)

    @contextmanager
    def stream(self, call: "Call[Any]", sending: "Sending") -> Iterator["httpx.Response"]:
        with ExitStack() as stack:
            with self._told(call):
                response = stack.enter_context(self._carrier.stream(call, sending))
            yield response

    @contextmanager
    def _told(self, call: "Call[Any]") -> Iterator[None]:
        if self._waiting.has_told:
            yield
            return
        timer = threading.Timer(WAITING_S + call.wait_ms / 1000, self._waiting.tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class _AsyncWaited:
    """The same for an `AsyncClient`."""

    def __init__(self, carrier: "AsyncCarrier", waiting: _Waiting) -> None:
        self._carrier = carrier
        self._waiting = waiting

    @property
    def is_closed(self) -> bool:
        return self._carrier.is_closed

    async def aclose(self) -> None:
        await self._carrier.aclose()

    async def request(self, call: "Call[Any]", sending: "Sending") -> "httpx.Response":
        with self._told(call):
            return await self._carrier.request(call, sending)

    @asynccontextmanager
    async def stream(
        self, call: "Call[Any]", sending: "Sending"
    ) -> AsyncIterator["httpx.Response"]:
        async with AsyncExitStack() as stack:
            with self._told(call):
                response = await stack.enter_async_context(self._carrier.stream(call, sending))
            yield response

    @contextmanager
    def _told(self, call: "Call[Any]") -> Iterator[None]:
        import asyncio

        loop = asyncio.get_running_loop()
        timer = loop.call_later(WAITING_S + call.wait_ms / 1000, self._waiting.tell)
        try:
            yield
        finally:
            timer.cancel()


def _client(
    url: str, api_key: str | None, retry_for_s: float, timeout_s: float, tells_waits: bool
) -> "Client":
    from topics.client import Client, Retry

    try:
        patience = _Patience(url, has_told=not tells_waits)
        retry = Retry(for_s=retry_for_s)
        client = Client(
            url, api_key=api_key, timeout_s=timeout_s, retry=retry, sleep=patience.sleep
        )
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None
    client._carrier = _Waited(client._carrier, _Waiting(url))
    return client


def _async_client(
    url: str, api_key: str | None, retry_for_s: float, timeout_s: float
) -> "AsyncClient":
    from topics.client import AsyncClient, Retry

    try:
        patience = _Patience(url, has_told=False)
        retry = Retry(for_s=retry_for_s)
        client = AsyncClient(
            url, api_key=api_key, timeout_s=timeout_s, retry=retry, sleep=patience.sleep_async
        )
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None
    client._carrier = _AsyncWaited(client._carrier, _Waiting(url))
    return client
