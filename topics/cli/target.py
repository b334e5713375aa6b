"""The server that a command talks to: its options, its client, and the notice that it waits."""

import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import click

from topics.cli.exits import UNUSABLE, Stop, refusals, spare_httpx_main, terminable
from topics.cli.printing import say, take_over_log
from topics.cli.profiles import choose_server
from topics.visible import without_password

if TYPE_CHECKING:
    from topics.client import AsyncClient, Client
    from topics.client.aiofailover import AsyncConnections
    from topics.client.answer import Answer, AsyncStreamedAnswer, StreamedAnswer
    from topics.client.call import Call
    from topics.client.failover import Connections
    from topics.client.target import PreparedRequest

F = TypeVar("F", bound=Callable[..., Any])


def with_client(
    command: Callable[..., int | None],
    *,
    tells_waits: bool = True,
    is_needed: Callable[[], bool] = lambda: True,
) -> Callable[..., int | None]:
    """Give a command its `Client` as first argument, and the options that choose it.

    Args:
        tells_waits: Say on standard error that the command waits for the server; False for a
            command that reports its connection itself.
        is_needed: Whether there is to be a client; None is given else, and nothing of it is loaded.
    """

    @_target_options
    @wraps(command)
    def run(
        url: str, api_key: str | None, retry_for: float | None, timeout: float, **rest: Any
    ) -> int | None:
        if not is_needed():
            return command(None, **rest)
        with terminable() as ended, refusals():  # noqa: SIM117
            with _client(url, api_key, retry_for, timeout, tells_waits) as client:
                return ended(command(client, **rest))

    return run


def with_async_client(
    command: Callable[..., Coroutine[Any, Any, int | None]],
) -> Callable[..., int | None]:
    """The same for a command that awaits: its client is an `AsyncClient`."""

    @_target_options
    @wraps(command)
    def run(
        url: str, api_key: str | None, retry_for: float | None, timeout: float, **rest: Any
    ) -> int | None:
        import asyncio

        take_over_log()  # asyncio's

        async def awaited() -> int | None:
            async with _async_client(url, api_key, retry_for, timeout) as client:
                return await command(client, **rest)

        with terminable() as ended, refusals():
            return ended(asyncio.run(awaited()))

    return run


def _target_options(command: F) -> F:
    patience = click.option(
        "--retry-for",
        type=click.FloatRange(min=0),
        show_default=f"{PATIENCE_S:g}; {ABSENT_S:g} where nothing listens on this machine",
        metavar="SECONDS",
        help="How long to try again while the server does not answer, is busy or is starting.",
    )
    silence = click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long the server may send nothing while a request is under way.",
    )
    return with_server(patience(silence(command)))


def with_server(command: F) -> F:
    """Give a command `url` and `api_key`, and the options that choose them."""
    url = click.option(
        "--url",
        envvar="TOPICS_URL",
        show_default="that of the profile, or http://127.0.0.1:4000",
        show_envvar=True,
        help="The server; of a cluster, several nodes with commas between.",
    )
    key = click.option("--api-key", envvar="TOPICS_API_KEY", show_envvar=True, help="The API key.")

    @url
    @key
    @wraps(command)
    def run(url: str | None, api_key: str | None, **rest: Any) -> Any:
        chosen = choose_server(click.get_current_context(), url, api_key)
        return command(url=chosen[0], api_key=chosen[1], **rest)

    return cast("F", run)


PATIENCE_S: Final = 15.0
"""How long a command tries again, if nothing else is asked for."""

ABSENT_S: Final = 2.0
"""The same, where nothing listens on this machine and the command had no answer yet."""


def listening_place(url: str) -> tuple[str, int] | None:
    """Host and port of a server on this machine; None for any other."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    host = parts.hostname or ""
    is_here = host == "localhost" or host.startswith("127.") or host == "::1"
    return (host, port) if is_here else None


def is_listening(place: tuple[str, int]) -> bool:
    """Whether the kernel does not refuse a connection there."""
    try:
        socket.create_connection(place, timeout=1).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        pass
    return True


class _RetryNotice:
    """Sleeps between attempts, and says once on standard error that the command tries again."""

    def __init__(self, url: str, *, is_given: bool, gives_up: bool) -> None:
        """`gives_up`: where nothing listens before the first answer, nobody will before long."""
        self._url = without_password(url)
        self._is_given = is_given
        self._began_s: float | None = None
        self._place = listening_place(url) if gives_up else None

    def answered(self) -> None:
        """The server is there: it is waited for from now on, as one that starts again."""
        self._place = None

    def sleep(self, seconds: float) -> None:
        self._give()
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        import asyncio

        self._give()
        await asyncio.sleep(seconds)

    def _give(self) -> None:
        if not self._is_given:
            self._is_given = True
            say(f"topics: {self._url} does not answer yet; trying again", err=True)
        if self._began_s is None:
            self._began_s = time.monotonic()
        if self._place is None or is_listening(self._place):
            self._place = None
        elif time.monotonic() - self._began_s > ABSENT_S:
            raise Stop(
                f"nothing listens at {self._url}; `topics serve` starts a server, and --retry-for "
                f"{PATIENCE_S:g} waits for one",
                UNUSABLE,
            )


WAITING_S: Final = 2.0
"""How long a person waits without a word before the notice."""


class WaitNotice:
    """Says once what the command waits for, if standard error is a terminal."""

    def __init__(self, url: str) -> None:
        self._url = without_password(url)
        self.is_given = sys.stderr is None or not sys.stderr.isatty()

    def give(self) -> None:
        if not self.is_given:
            self.is_given = True
            say(f"topics: waiting for {self._url}", err=True)


class NoticingConnections:
    """The connections of a `Client`, with a notice where an answer takes longer than `WAITING_S`.

    A long poll may take its wait on top of that.
    """

    def __init__(
        self, connections: "Connections", notice: WaitNotice, answered: Callable[[], None]
    ) -> None:
        """`answered` is called at each answer, whatever it says."""
        self._connections = connections
        self._notice = notice
        self._answered = answered

    @property
    def is_closed(self) -> bool:
        return self._connections.is_closed

    def close(self) -> None:
        self._connections.close()

    def request(self, call: "Call[Any]", prepared: "PreparedRequest") -> "Answer":
        with self._noticed(call):
            return self._connections.request(call, prepared)

    @contextmanager
    def stream(self, call: "Call[Any]", prepared: "PreparedRequest") -> Iterator["StreamedAnswer"]:
        with ExitStack() as stack:
            with self._noticed(call):
                response = stack.enter_context(self._connections.stream(call, prepared))
            yield response

    @contextmanager
    def _noticed(self, call: "Call[Any]") -> Iterator[None]:
        if self._notice.is_given:
            yield
            self._answered()
            return
        timer = threading.Timer(WAITING_S + call.wait_ms / 1000, self._notice.give)
        timer.daemon = True
        timer.start()
        try:
            yield
            self._answered()
        finally:
            timer.cancel()


class AsyncNoticingConnections:
    """The same for an `AsyncClient`."""

    def __init__(
        self, connections: "AsyncConnections", notice: WaitNotice, answered: Callable[[], None]
    ) -> None:
        """`answered` is called at each answer, whatever it says."""
        self._connections = connections
        self._notice = notice
        self._answered = answered

    @property
    def is_closed(self) -> bool:
        return self._connections.is_closed

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def request(self, call: "Call[Any]", prepared: "PreparedRequest") -> "Answer":
        with self._noticed(call):
            return await self._connections.request(call, prepared)

    @asynccontextmanager
    async def stream(
        self, call: "Call[Any]", prepared: "PreparedRequest"
    ) -> AsyncIterator["AsyncStreamedAnswer"]:
        async with AsyncExitStack() as stack:
            with self._noticed(call):
                response = await stack.enter_async_context(self._connections.stream(call, prepared))
            yield response

    @contextmanager
    def _noticed(self, call: "Call[Any]") -> Iterator[None]:
        import asyncio

        loop = asyncio.get_running_loop()
        timer = loop.call_later(WAITING_S + call.wait_ms / 1000, self._notice.give)
        try:
            yield
            self._answered()
        finally:
            timer.cancel()


def _client(
    url: str, api_key: str | None, retry_for_s: float | None, timeout_s: float, tells_waits: bool
) -> "Client":
    spare_httpx_main()
    from topics.client import Client, Retry

    try:
        notice = _RetryNotice(url, is_given=not tells_waits, gives_up=retry_for_s is None)
        retry = Retry(for_s=PATIENCE_S if retry_for_s is None else retry_for_s)
        client = Client(url, api_key=api_key, timeout_s=timeout_s, retry=retry, sleep=notice.sleep)
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None
    session = client.session
    session.connections = NoticingConnections(session.connections, WaitNotice(url), notice.answered)
    return client


def _async_client(
    url: str, api_key: str | None, retry_for_s: float | None, timeout_s: float
) -> "AsyncClient":
    spare_httpx_main()
    from topics.client import AsyncClient, Retry

    try:
        notice = _RetryNotice(url, is_given=False, gives_up=retry_for_s is None)
        retry = Retry(for_s=PATIENCE_S if retry_for_s is None else retry_for_s)
        client = AsyncClient(
            url, api_key=api_key, timeout_s=timeout_s, retry=retry, sleep=notice.sleep_async
        )
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None
    session = client.session
    session.connections = AsyncNoticingConnections(
        session.connections, WaitNotice(url), notice.answered
    )
    return client
