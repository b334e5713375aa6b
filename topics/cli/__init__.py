"""The command line: `topics serve`, and what a person does with a server from a terminal.

Owns the list of commands.  Each is a module of its own, which imports what it needs when it runs,
so that `topics --help` answers at once.
"""

from importlib import import_module
from typing import Final

import click

from topics.cli.exits import Guarded
from topics.cli.printing import say
from topics.version import VERSION

COMMANDS: Final = {
    "append": "append:command",
    "apply": "apply:command",
    "backup": "backup:command",
    "bench": "bench:command",
    "call": "call:command",
    "clients": "clients:command",
    "cluster": "cluster:group",
    "completion": "completion:command",
    "config": "topic:configure",
    "create": "topic:create",
    "delete": "topic:delete",
    "drain": "records:drain",
    "export": "export:command",
    "export-config": "apply:export",
    "groups": "groups:group",
    "info": "topic:info",
    "inspect": "inspect:command",
    "job": "job:command",
    "jobs": "jobs:group",
    "keys": "keys:command",
    "latest": "latest:command",
    "peek": "records:peek",
    "profiles": "profiles:command",
    "publish": "records:publish",
    "purge": "records:purge",
    "read": "read:command",
    "redrive": "redrive:command",
    "restore": "restore:command",
    "rm": "records:rm",
    "router": "router:group",
    "routers": "routers:command",
    "schedules": "schedules:group",
    "serve": "serve:command",
    "settings": "settings:command",
    "spark": "spark:command",
    "stats": "stats:command",
    "topics": "listing:command",
    "watch": "watch:command",
    "work": "work:command",
}
"""Where each command is: `module:name` in this package."""


class Commands(Guarded):
    """The commands, each imported when it is asked for, and an old name of one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(f"topics.cli.{module}"), name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        if name == "config":
            from topics.cli.topic import names_one

            # While a shell completes a line, the topic may be what is being typed.
            if not ctx.resilient_parsing and not names_one(rest):
                # Before topics could be configured from here, it showed the server's settings.
                hint = "`topics config` without a topic is `topics settings` now"
                say(f"topics: {hint}", err=True)
                return "settings", self.get_command(ctx, "settings"), rest
        return name, found, rest


def _profiles(_context: click.Context, _option: click.Parameter, begun: str) -> list[str]:
    from topics.cli.exits import Stop
    from topics.cli.profiles import config_file, load_profiles

    try:
        return [name for name in load_profiles(config_file()) if name.startswith(begun)]
    except Stop:
        return []


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Exit codes:
  0    done
  1    the server refused
  2    usage, settings, a file, or the server cannot be reached
  3    the data is corrupt
  4    records were lost (read --strict, export)
  5    jobs failed (work --drain, work --max-jobs, call)
  6    changes are pending (apply --dry-run --exit-code)
  130  interrupted; but for watch, the last line says how far it came
  143  the same by SIGTERM
""",
)
@click.version_option(VERSION, prog_name="topics", message="%(prog)s %(version)s")
@click.option(
    "--profile",
    envvar="TOPICS_PROFILE",
    show_envvar=True,
    metavar="NAME",
    shell_complete=_profiles,
    help="The server of this name in ~/.config/topics/config.toml.",
)
def main(profile: str | None) -> None:
    """A persistent event engine with a JSON-first HTTP API.

    \b
    topics serve                                 a server, data in ./topics-data
    topics create jobs --type queue              a topic; config, info and delete are its others
    topics apply -f topics.yaml --dry-run        topics, routers and schedules as files; export-config
    topics publish jobs '{"n": 1}'               one record
    topics append jobs jobs.ndjson               one record a line
    topics read jobs --follow                    records as they come, one a line
    topics watch jobs audit --tail               records of several topics, for a person
    topics work jobs -- ./resize                 a command for each job of a queue
    topics call sizes '{"image": "a.png"}'       a job, and the result that its worker gives
    topics jobs list jobs --state delayed        the jobs of a queue; show, promote, retry, cancel
    topics redrive jobs-dead --to jobs           dead letters, back to their queue
    topics rm jobs --match 'old:*'               records, away without a trace; purge, drain
    topics topics                                what there is
    topics stats                                 what the server does, live
    topics clients                               who is connected, and how far behind
    topics cluster status                        who leads, and how far each replica is; trim
    topics routers --graph                       what flows where; router create, info, delete
    topics schedules                             records by the clock; put, get, run, pause, rm
    topics groups                                groups of consumers; show, commit, delete
    topics export orders --to lake --by date     records as Parquet, for analysis
    topics bench                                 requests a second, by a load of its own
    topics inspect topics-data                   is every byte what was written?
    topics backup /backup/topics                 of a running server, incremental
    topics restore /backup/topics new-data       a data directory from a backup
    topics keys new --scopes read                an API key, and its entry for the server
    topics profiles                              servers that have a name
    topics spark doctor                          can Spark read topics here?
    topics job sessions --topic t --to out       a job of Spark that comes with topics

    Every setting of the server is an environment variable and an option of `topics serve`;
    `topics settings` shows what is in force and where it came from. There is no other way to
    configure it. Every other command finds its server by --url, --profile or TOPICS_URL.
    """


def all_commands() -> dict[str, click.Command]:
    """Every command by what is typed for it: `serve`, `router create`."""
    context = click.Context(main)
    found = {}
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {below}": each for below, each in command.commands.items()}
    return found
