"""Which command is meant by a word that is none: a command of a similar spelling, or the command that
does here what the word does in another tool.

Owns the words of other tools.  Refuses to run anything: a suggestion is part of an error message.
"""

from collections.abc import Collection
from typing import Final

KIN: Final = (
    ("list", "ls"),
    ("create", "put", "add", "new", "make", "set", "declare"),
    ("info", "get", "show", "describe", "status", "view"),
    ("delete", "rm", "remove", "del", "drop"),
    ("pause", "stop", "suspend"),
    ("resume", "start", "unpause"),
    ("run", "trigger", "fire"),
)
"""Words that mean the same below a group of commands: of each row a group has one at most."""

WORDS: Final[dict[str, tuple[str, ...]]] = {
    # Any tool.
    "add": ("create", "router create", "schedules put"),
    "cat": ("read",),
    "clear": ("purge",),
    "del": ("rm", "delete"),
    "describe": ("info",),
    "destroy": ("delete",),
    "diff": ("apply --dry-run",),
    "dump": ("read", "export-config"),
    "edit": ("config",),
    "env": ("settings",),
    "get": ("info", "latest"),
    "head": ("read --limit 10",),
    "help": ("--help",),
    "import": ("append",),
    "list": ("topics",),
    "load": ("append", "bench"),
    "login": ("profiles",),
    "logs": ("read --follow",),
    "ls": ("topics",),
    "new": ("create",),
    "plan": ("apply --dry-run",),
    "put": ("publish", "apply"),
    "query": ("read",),
    "remove": ("rm", "delete"),
    "run": ("serve", "work"),
    "show": ("info",),
    "start": ("serve",),
    "server": ("serve",),
    "status": ("stats", "cluster status"),
    "tail": ("read --follow", "watch --tail"),
    "top": ("stats",),
    "truncate": ("purge",),
    "update": ("config",),
    "version": ("--version",),
    "write": ("publish", "append"),
    # nats.
    "account": ("keys",),
    "consumer": ("groups",),
    "context": ("profiles",),
    "kv": ("latest", "publish"),
    "pub": ("publish",),
    "reply": ("work",),
    "request": ("call",),
    "report": ("stats",),
    "stream": ("topics", "create", "info"),
    "sub": ("watch",),
    "subscribe": ("watch",),
    "view": ("read",),
    # redis-cli.
    "keyspace": ("topics",),
    "lpush": ("publish",),
    "monitor": ("watch", "stats"),
    "rpush": ("publish",),
    "xack": ("work",),
    "xadd": ("publish",),
    "xgroup": ("groups",),
    "xinfo": ("info",),
    "xlen": ("info",),
    "xrange": ("read",),
    "xread": ("read --follow",),
    "xreadgroup": ("work",),
    "xtrim": ("purge --keep",),
    # Kafka's scripts, kcat and rpk.
    "alter": ("config",),
    "alter-topic": ("config",),
    "configs": ("config",),
    "consume": ("read --follow", "watch"),
    "consumer-groups": ("groups",),
    "create-topic": ("create",),
    "delete-records": ("rm",),
    "delete-topic": ("delete",),
    "describe-topic": ("info",),
    "group": ("groups",),
    "list-topics": ("topics",),
    "offsets": ("groups show",),
    "perf-test": ("bench",),
    "produce": ("publish", "append"),
    "producer": ("publish", "append"),
    "consumers": ("groups", "clients"),
    "connections": ("clients",),
    "topic": ("topics", "create", "info"),
    "topic-list": ("topics",),
    # RabbitMQ.
    "declare": ("create",),
    "list-queues": ("topics",),
    "list_queues": ("topics",),
    "purge-queue": ("purge",),
    "purge_queue": ("purge",),
    "queue": ("create --type queue", "jobs list"),
    "queues": ("topics",),
    "shovel": ("redrive", "router create"),
    "bind": ("router create",),
    # Celery, Sidekiq and cron.
    "claim": ("work",),
    "cron": ("schedules",),
    "enqueue": ("publish",),
    "retry": ("jobs retry", "redrive"),
    "requeue": ("redrive",),
    "schedule": ("schedules",),
    "worker": ("work",),
}
"""What words of other tools are here: commands as they are typed, but for the `topics` before them."""


def suggested(word: str, commands: Collection[str], *, is_top: bool) -> tuple[str, ...]:
    """What `word` may have meant, the likeliest first; nothing where no command is like it.

    Args:
        commands: The commands that exist where `word` was typed.
        is_top: Whether they are those of `topics` itself, which `WORDS` is about.
    """
    from difflib import get_close_matches

    lower = word.lower().replace("_", "-") if word.lower() not in WORDS else word.lower()
    if lower in commands:
        return (lower,)
    if is_top and lower in WORDS:
        return WORDS[lower]
    if not is_top:
        for row in KIN:
            if lower in row and (found := tuple(each for each in row if each in commands)):
                return found
    near = get_close_matches(lower, [*commands, *(WORDS if is_top else ())], 3, 0.6)
    # A word of another tool that is misspelled means what that word means.
    found_here = [each for name in near for each in ((name,) if name in commands else WORDS[name])]
    return tuple(dict.fromkeys(found_here))[:3]


def sentence(word: str, path: str, suggestions: tuple[str, ...]) -> str:
    """The error: that `word` is no command of `path`, and what may have been meant."""
    said = f"No such command {word!r}."
    if not suggestions:
        return said
    *others, last = (f"'{path} {each}'" for each in suggestions)
    return f"{said} Did you mean {', '.join(others) + ' or ' if others else ''}{last}?"
