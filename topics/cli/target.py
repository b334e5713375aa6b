"""Which server a command talks to, and how patiently."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from topics.cli.exits import UNUSABLE, Stop, refusals

if TYPE_CHECKING:
    from topics.client import Client

F = TypeVar("F", bound=Callable[..., Any])


def with_client(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command its `Client` as first argument, and the options that choose it."""

    @click.option(
        "--url",
        envvar="TOPICS_URL",
        default="http://127.0.0.1:4000",
        show_default=True,
        show_envvar=True,
        help="The server.",
    )
    @click.option("--api-key", envvar="TOPICS_API_KEY", show_envvar=True, help="Key to present.")
    @click.option(
        "--retry-for",
        type=click.FloatRange(min=0),
        default=15.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to try again while the server is away, busy or starting.",
    )
    @wraps(command)
    def run(url: str, api_key: str | None, retry_for: float, **rest: Any) -> int | None:
        with refusals(), _client(url, api_key, retry_for) as client:
            return command(client, **rest)

    return run


def _client(url: str, api_key: str | None, retry_for_s: float) -> "Client":
    from topics.client import Client, Retry

    try:
        return Client(url, api_key=api_key, retry=Retry(for_s=retry_for_s))
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None
