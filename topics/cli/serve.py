"""`topics serve`: a server in the foreground."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from topics.cli.exits import UNUSABLE, Stop
from topics.settings import TABLE, BadSetting, Setting, Settings, load

if TYPE_CHECKING:
    from topics.server.access.keys import KeySource


def setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Every setting as an option, in the table's order."""
    for setting in reversed(TABLE):
        function = _option(setting)(function)
    return function


def _option(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    help = f"{setting.help}  [{setting.env}{_default(setting)}]"
    if setting.is_flag:
        names = f"{setting.option}/--no-{setting.option.removeprefix('--')}"
        return click.option(names, setting.name, default=None, help=help)
    # A string for click: `load` parses options and environment alike, with the same messages.
    return click.option(setting.option, setting.name, metavar="VALUE", help=help)


def _default(setting: Setting) -> str:
    if setting.is_flag or setting.default in (None, ()) or setting.name == "log_format":
        return ""
    return f"; default {setting.default}"


def settings_of(options: dict[str, Any]) -> Settings:
    """The settings of the options and the environment; a value that cannot be used ends the
    command."""
    words = {True: "1", False: "0"}
    texts = {name: words.get(value, value) for name, value in options.items()}
    try:
        return load(os.environ, texts, is_terminal=sys.stderr is not None and sys.stderr.isatty())
    except BadSetting as refusal:
        raise Stop(str(refusal), UNUSABLE) from None


def keys_of(settings: Settings) -> "KeySource | None":
    """The API keys that the settings name; keys that cannot be used end the command."""
    from topics.server.access.keys import BadKeys, source_of

    try:
        source = source_of(settings.api_keys, settings.api_keys_file)
        if source is not None:
            source.read()
        return source
    except BadKeys as refusal:
        raise Stop(str(refusal), UNUSABLE) from None


@click.command("serve")
@click.option(
    "--server",
    type=click.Choice(["own", "hypercorn"]),
    default="own",
    show_default=True,
    help="What speaks HTTP: the server's own transport, or hypercorn as it is installed.",
)
@setting_options
def command(server: str, **options: Any) -> int:
    """Run a server until SIGTERM or ^C stops it.

    By default it listens on 127.0.0.1:4000 and keeps its data in ./topics-data. An option overrides
    its environment variable, which overrides the default.

    \b
    topics serve --data-dir /var/lib/topics --port 4001
    TOPICS_MAX_TOTAL_BYTES=100000000000 topics serve

    Ends with 0 when it was stopped, with 2 where a setting, the address or the data directory
    cannot be used, and with 3 where the data is proven corrupt; a line on standard error says what
    and where.
    """
    settings = settings_of(options)
    if (source := keys_of(settings)) is not None:
        from topics.server.process.concealment import conceal

        conceal(settings.api_keys, source)
    if server == "hypercorn":
        from topics.asgi import hypercorn

        return hypercorn.serve(settings)
    from topics.server.serving import serve as run

    return run(settings)
