"""The command line: `topics serve`, and what a person does with a server from a terminal.

Owns the list of commands.  Each is a module of its own, which imports what it needs when it runs,
so that `topics --help` answers at once.
"""

import click

from topics.cli import (
    append,
    config,
    inspect,
    keys,
    listing,
    read,
    redrive,
    routers,
    serve,
    watch,
    work,
)
from topics.cli.exits import Guarded
from topics.version import VERSION


@click.group(
    cls=Guarded,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Exit codes:
  0    done
  1    the server refused
  2    usage, settings, a file, or the server cannot be reached
  3    the data is corrupt
  4    records were lost (read --strict)
  5    jobs failed (work --drain, work --max-jobs)
  130  interrupted; but for watch, the last line says how far it came
""",
)
@click.version_option(VERSION, prog_name="topics", message="%(prog)s %(version)s")
def main() -> None:
    """A persistent event engine with a JSON-first HTTP API.

    \b
    topics serve                                 a server, data in ./topics-data
    topics append jobs jobs.ndjson               one record a line
    topics read jobs --follow                    records as they come, one a line
    topics watch jobs audit --tail               records of several topics, for a person
    topics work jobs -- ./resize                 a command for each job of a queue
    topics redrive jobs-dead --to jobs           dead letters, back to their queue
    topics topics                                what there is
    topics routers --graph                       what flows where
    topics inspect topics-data                   is every byte what was written?
    topics keys new --scopes read                an API key, and its entry for the server

    Every setting of the server is an environment variable and an option of `topics serve`;
    `topics config` shows what is in force and where it came from. There is no other way to
    configure it. Every other command finds its server by --url or TOPICS_URL.
    """


for module in (serve, config, keys, append, read, watch, work, redrive, listing, routers, inspect):
    main.add_command(module.command)
