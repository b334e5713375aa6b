"""`topics settings`: the settings in force, and where each comes from."""

import json
from typing import Any

import click

from topics.cli.printing import say, say_lines
from topics.cli.serve import keys_of, setting_options, settings_of
from topics.settings import TABLE, Setting, Settings, shown


@click.command("settings")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, by name.")
@setting_options
def command(as_json: bool, **options: Any) -> None:
    """Show the settings that `topics serve` would run with, and where each comes from.

    Takes the options of `topics serve`, so that a command line can be tried out. Where the server
    would not start, it ends with 2 and the line that `topics serve` would end with.
    """
    settings = settings_of(options)
    keys_of(settings)
    for note in settings.notes:
        say(f"topics: {note}", err=True)
    if as_json:
        rows = {setting.name: _described(setting, settings) for setting in TABLE}
        say_lines([line] for line in json.dumps(rows, indent=2).split("\n"))
        return
    for group in dict.fromkeys(setting.group for setting in TABLE):
        say(f"# {group}")
        for setting in TABLE:
            if setting.group == group:
                say(_line(setting, settings))
        say()


def _line(setting: Setting, settings: Settings) -> str:
    origin = settings.origin(setting.name).value
    return f"{setting.env:<36}{shown(setting, settings) or '-':<24}{origin}"


def _described(setting: Setting, settings: Settings) -> dict[str, Any]:
    value = getattr(settings, setting.name)
    plain = isinstance(value, bool | int | tuple) or value is None
    return {
        "value": value if plain else shown(setting, settings),
        "origin": settings.origin(setting.name).value,
        "env": setting.env,
        "option": setting.option,
    }
