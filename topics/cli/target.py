"""Which server a command talks to, and how patiently."""

import os
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from topics.cli.exits import UNUSABLE, Stop, refusals

if TYPE_CHECKING:
    from topics.client import AsyncClient, Client

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
    def run(url: str, api_key: str | None, retry_for: float, **rest: Any) -> int | None:
        with refusals(), _client(url, api_key, retry_for, tells_waits) as client:
            return command(client, **rest)

    return run


def with_async_client(
    command: Callable[..., Coroutine[Any, Any, int | None]],
) -> Callable[..., int | None]:
    """The same for a command that awaits: its client is an `AsyncClient`."""

    @_target_options
    @wraps(command)
    def run(url: str, api_key: str | None, retry_for: float, **rest: Any) -> int | None:
        import asyncio

        async def awaited() -> int | None:
            async with _async_client(url, api_key, retry_for) as client:
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
    return url(key(patience(command)))


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


def _client(url: str, api_key: str | None, retry_for_s: float, tells_waits: bool) -> "Client":
    from topics.client import Client, Retry

    try:
        patience = _Patience(url, has_told=not tells_waits)
        retry = Retry(for_s=retry_for_s)
        return Client(url, api_key=api_key, retry=retry, sleep=patience.sleep)
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None


def _async_client(url: str, api_key: str | None, retry_for_s: float) -> "AsyncClient":
    from topics.client import AsyncClient, Retry

    try:
        patience = _Patience(url, has_told=False)
        retry = Retry(for_s=retry_for_s)
        return AsyncClient(url, api_key=api_key, retry=retry, sleep=patience.sleep_async)
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None
