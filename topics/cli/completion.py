"""`topics completion`, and names of topics completed from the server."""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from topics.client import Client

F = TypeVar("F", bound=Callable[..., Any])

SHELLS: Final = ("bash", "zsh", "fish")
COMPLETE_S: Final = 1.0
"""How long a person who presses the tab key waits for a server."""
COMPLETE_NAMES: Final = 200
"""The most names that are offered."""


def topic_argument(name: str = "topic", **options: Any) -> Callable[[F], F]:
    """An argument that is the name of a topic."""
    return click.argument(name, shell_complete=_topics, **options)


def topic_option(*names: str, **options: Any) -> Callable[[F], F]:
    """An option whose value is the name of a topic."""
    return click.option(*names, shell_complete=_topics, **options)


def router_argument() -> Callable[[F], F]:
    """The argument NAME of a router."""
    return click.argument("name", shell_complete=_routers)


def group_argument() -> Callable[[F], F]:
    """The argument NAME of a group of consumers."""
    return click.argument("name", shell_complete=_groups)


def schedule_argument() -> Callable[[F], F]:
    """The argument NAME of a schedule."""
    return click.argument("name", shell_complete=_schedules)


def _topics(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, lambda client: (t.topic for t in client.topics(prefix=begun)))


def _routers(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, lambda client: (r.router for r in client.routers(prefix=begun)))


def _groups(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, lambda client: (g.group for g in client.groups(prefix=begun)))


def _schedules(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, lambda client: (s.schedule for s in client.schedules(prefix=begun)))


def _names(context: click.Context, ask: "Callable[[Client], Iterable[str]]") -> list[str]:
    """The first names that a server has; none where it does not answer soon."""
    from itertools import islice

    from topics.cli.exits import spare_httpx_main
    from topics.cli.profiles import choose_server

    spare_httpx_main()
    from topics.client import Client, Retry

    try:
        url, key = choose_server(
            context,
            context.params.get("url") or os.environ.get("TOPICS_URL"),
            context.params.get("api_key") or os.environ.get("TOPICS_API_KEY"),
        )
        with Client(url, api_key=key, timeout_s=COMPLETE_S, retry=Retry(for_s=0)) as client:
            return list(islice(ask(client), COMPLETE_NAMES))
    except Exception:  # a shell that completes nothing says enough
        return []


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options and names of topics.

    \b
    topics completion bash > ~/.local/share/bash-completion/completions/topics
    topics completion zsh  > ~/.zfunc/_topics          # a folder of your $fpath
    topics completion fish > ~/.config/fish/completions/topics.fish
    """
    from topics.cli.exits import output
    from topics.cli.shells import script

    output().write(script(context.find_root().command, shell).encode())
