"""`topics keys`: make a key for a server, or the digest that stands for one in its settings.

Secrets come in by standard input and go out by standard output, never by an argument: the arguments
of a process can be read by everybody on its machine.
"""

import json
import re
import secrets
import sys
from collections.abc import Iterable
from typing import Any, Final

import click

from topics.cli.exits import UNUSABLE, Guarded, Stop, output
from topics.cli.printing import say, say_json
from topics.server.access.keys import BadKeys, Entry, parse_line

SECRET_BYTES: Final = 32
"""256 bits: what cannot be guessed needs no slow hash."""
STDIN_BYTES_MAX: Final = 1 << 20


def rights(function: Any) -> Any:
    """Options for what a key may do."""
    scopes = click.option(
        "--scopes",
        default="",
        metavar="SCOPES",
        help="Out of read, write, delete and admin, joined by +; without it, all of them.",
    )
    prefix = click.option(
        "--prefix",
        "prefixes",
        multiple=True,
        metavar="TEXT",
        help="The beginning of the names it may touch; may be repeated. Without it, any name.",
    )
    return scopes(prefix(function))


@click.group("keys", cls=Guarded)
def command() -> None:
    """Make API keys, and digests that a server may be given in place of them.

    \b
    topics keys new --scopes read+write --prefix tenant42:
    topics keys hash < plain-keys > keys
    TOPICS_API_KEYS_FILE=keys topics serve
    """


@command.command("new")
@rights
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def new(scopes: str, prefixes: tuple[str, ...], as_json: bool) -> None:
    """Make a key: print the secret, for its client, and the entry, for the server's keys file.

    The secret is not stored anywhere: whoever loses it makes another one.
    """
    output()
    secret = "tk_" + secrets.token_urlsafe(SECRET_BYTES)
    (entry,) = _entries(f"{secret}{_suffix(scopes, prefixes)}", "the new key")
    if as_json:
        say_json(json.dumps({"secret": secret, "entry": entry.text}))
        return
    say(f"secret  {secret}")
    say(f"entry   {entry.text}")


@command.command("hash")
@rights
def hash_(scopes: str, prefixes: tuple[str, ...]) -> None:
    """Read entries from standard input, one a line, and print each with the digest of its secret.

    An entry is SECRET[:SCOPES[:PREFIXES]], as in TOPICS_API_KEYS. --scopes and --prefix are for
    lines that hold a secret only.
    """
    output()
    suffix = _suffix(scopes, prefixes)
    if sys.stdin.isatty():
        lines = [click.prompt("Secret", hide_input=True, err=True)]
    else:
        text = sys.stdin.read(STDIN_BYTES_MAX + 1)
        if len(text) > STDIN_BYTES_MAX:
            raise Stop(f"more than {STDIN_BYTES_MAX} characters of keys", UNUSABLE)
        lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            if suffix and ":" in line:
                raise Stop(f"line {number}: it has rights of its own already", UNUSABLE)
            for entry in _entries(line + suffix, f"line {number}"):
                say(entry.text)


def _suffix(scopes: str, prefixes: Iterable[str]) -> str:
    """The fields behind a secret."""
    joined = "|".join(prefixes)
    if re.search(r"[,:]", scopes) or "," in joined:
        raise Stop("a comma ends an entry, and a colon a field", UNUSABLE)
    return f":{scopes}:{joined}" if scopes or joined else ""


def _entries(text: str, where: str) -> list[Entry]:
    buffer = bytearray(text.encode("utf-8", "surrogateescape"))
    try:
        return parse_line(buffer, 0, len(buffer), where)
    except BadKeys as refusal:
        raise Stop(str(refusal), UNUSABLE) from None
