"""The shell scripts on the pages: run, but for lines that would not end or are of another program."""

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest

from bench.flights import Server
from topics import Client, NewRecord
from topics.cli import main
from topics.cli.profiles import load_profiles

from .blocks import blocks, find, run_shell


@dataclass(frozen=True, slots=True)
class Script:
    """What a block needs, and what it prints.

    Attributes:
        given: What is done before.
        prints: Words of its output.
        instead: Words of the block, and what stands for them.
        without: Beginnings of lines that are left out, each with the reason.
        files: What lies in its directory.
    """

    given: Callable[[Client], object] = lambda client: None
    prints: tuple[str, ...] = ()
    instead: dict[str, str] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


LOCAL = {"localhost:4000": "$TOPICS_URL"}
FOLLOWS = "goes on until it is interrupted; tests/cli/test_watch.py and test_work.py run it"
SERVES = "is a server, which does not end; the tests have one"
SUPERVISOR = "is systemd's"
INSTALLS = "installs packages; deploy/try_dist.sh does that"


def queue(client: Client) -> None:
    client.put_topic("jobs", type="queue", max_deliveries=1, dead_letter="jobs-dead")
    client.append("jobs", *(NewRecord({"n": n}, tag="acme") for n in range(3)))


def dead(client: Client) -> None:
    queue(client)
    client.append("jobs-dead", NewRecord({"n": 9}, tag="acme.1"))


def tagged(client: Client) -> None:
    queue(client)
    client.append("chat", NewRecord(1, tag="room-42:a"), NewRecord(2, tag="room-7:a"))
    client.append("orders", *(NewRecord(n, tag="orders.7.eu") for n in range(3)))
    client.append("jobs-dead", 1, 2)


def flow(client: Client) -> None:
    client.append("orders", NewRecord(1, tag="eu.paid"))


SCRIPTS = {
    ("cli.md", "topics --profile prod"): Script(
        prints=("prod\thttp",),
        files={".config/topics/config.toml": '[prod]\nurl = "URL"\n'},
    ),
    ("cli.md", "topics keys new --scopes read+write"): Script(
        prints=("secret  tk_", ":read+write:tenant42:"), files={"plain": "abc\n"}
    ),
    ("cli.md", "topics create jobs --type queue --max-deliveries 5"): Script(
        prints=("jobs was created: queue", "lease_ms=120000", "jobs and its 0 records would be"),
        instead={"| jq .queue.ready": "| grep -c ready"},
    ),
    ("cli.md", "topics publish jobs"): Script(prints=("jobs 1", "hosts 1")),
    ("cli.md", "topics append flights"): Script(
        prints=("2 records appended to flights", "1 record appended to jobs"),
        without={"journalctl": FOLLOWS, "topics read jobs --tags": "below"},
        files={"flights.csv": "carrier,origin,delay\nUA,JFK,NA\nAA,LGA,3\n", "old.ndjson": "1\n"},
        instead={"zcat old.ndjson.gz": "gzip old.ndjson; zcat old.ndjson.gz"},
    ),
    ("cli.md", "topics rm chat"): Script(
        tagged,
        prints=("1 record of chat would be removed", "3 records were removed from orders"),
        instead={"letters.ndjson": "letters.ndjson --yes", "--keep 100": "--keep 1"},
    ),
    ("cli.md", "topics redrive jobs-dead --to jobs --dry-run"): Script(dead, ("1 would be moved",)),
    ("cli.md", "topics stats"): Script(
        prints=("cpu", "topics 0"), instead={"topics stats\n": "topics stats --once\n"}
    ),
    ("cli.md", "topics router create"): Script(flow, ("orders-audit was created", "was deleted")),
    ("cli.md", "topics completion bash"): Script(
        instead={"topics completion bash": "mkdir -p ~/.local/share/bash-completion/completions "
                 "~/.zfunc ~/.config/fish/completions; topics completion bash"},
    ),
    ("cli.md", "topics export orders --to lake --by date"): Script(
        flow, ("1 record of 1 seq exported and verified",),
        without={"topics export orders --path /var": "--follow goes on; tests/cli/test_export.py"},
    ),
    ("queues.md", "curl -X PUT localhost:4000/v0/topics/jobs"): Script(
        prints=('"type":"queue"',),
        # The file that it fetches is one of this server.
        instead={**LOCAL, "https://example.org/a.png": "'$TOPICS_URL'/v0/docs/swagger-ui.css",
                 "--jobs 4 --": "--jobs 4 --drain --"},
    ),
    ("queues.md", "topics read jobs-dead --tags"): Script(dead, ("1 would be moved",)),
    ("queues.md", "curl localhost:4000/v0/topics/jobs "): Script(
        queue, ('"earliest_seq":1', '"deleted":3'), instead=LOCAL
    ),
    ("queues.md", "topics topics"): Script(queue, ("ready",), without={"topics watch": FOLLOWS}),
    ("routers.md", "curl -X PUT localhost:4000/v0/routers/orders-audit"): Script(
        flow, ("orders-eu -> eu",), instead=LOCAL
    ),
    ("routers.md", "curl -X PUT localhost:4000/v0/topics/mails"): Script(
        flow, ("orders-mails",),
        instead={**LOCAL, "topics work mails --": "topics work mails --drain --"},
        files={"send-mail": "#!/bin/sh\ncat >/dev/null\n"},
    ),
    ("routers.md", "topics routers"): Script(flow),
    ("security.md", "topics keys new | tee"): Script(
        prints=("secret",), instead={"/dev/tty": "/dev/stderr", "/etc/topics/keys": "keys"},
        without={"TOPICS_API_KEYS_FILE": SERVES},
    ),
    ("backup.md", "topics backup --data-dir"): Script(
        flow, ("backup 1 of",), instead={"/var/lib/topics": "DATA", "/backup/topics": "backups"}
    ),
    ("upgrade.md", "topics backup --data-dir"): Script(
        flow, ("backup 1 of",),
        instead={"/var/lib/topics": "DATA", "/backup/before-upgrade": "before"},
        without={"systemctl": SUPERVISOR, "pip install": INSTALLS,
                 "topics inspect": "is of a server that is stopped; tests/cli/test_inspect.py"},
    ),
}  # fmt: skip
"""By page and first words of the block; those of `test_docs.py` are not here."""


@pytest.mark.parametrize(("page", "first"), SCRIPTS)
def test_a_script_runs(server: Server, tmp_path: Path, page: str, first: str) -> None:
    """To its end, with what it is said to print."""
    script = SCRIPTS[page, first]
    code = find(page, first).code.replace("\\\n", " ")
    if "jq " in code and shutil.which("jq") is None:
        pytest.skip("no jq")
    for word in script.without:
        assert any(line.startswith(word) for line in code.splitlines()), word
    kept = [ln for ln in code.splitlines() if not ln.startswith(tuple(script.without) or ("\0",))]
    code = "\n".join(kept) + "\n"
    for word, other in script.instead.items():
        assert word in code, word
        code = code.replace(word, other.replace("DATA", str(server.data_dir)))
    for name, text in script.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("URL", server.url))
        (tmp_path / name).chmod(0o700)
    with server.client() as client:
        script.given(client)

    printed = run_shell(code, tmp_path, {"TOPICS_URL": server.url})

    assert [word for word in script.prints if word not in printed] == [], printed


def test_a_restore_and_the_way_back(server: Server, tmp_path: Path) -> None:
    """The scripts of `docs/backup.md` and `docs/upgrade.md`, but for lines of systemd and pip."""
    with server.client() as client:
        flow(client)
    run_shell(f"topics backup --data-dir {server.data_dir} backups", tmp_path, {})
    back = find("upgrade.md", "systemctl stop topics").code.replace(
        "/backup/before-upgrade", "backups"
    )
    restore = find("backup.md", "topics restore").code.replace("/backup/topics", "backups")

    for code, place in ((restore, "one"), (back, "two")):
        lines = code.replace("/var/lib/topics", place).splitlines()
        ours = [line for line in lines if not line.startswith(("systemctl", "pip"))]
        printed = run_shell(f"mkdir -p {place}\n" + "\n".join(ours), tmp_path, {})
        assert "1 record in 1 topic" in printed

    repair = find("backup.md", "topics inspect DATA_DIR --repair").code.replace("DATA_DIR", "one")
    assert "nothing" in run_shell(repair, tmp_path, {})


def test_the_profiles_shown_are_read(tmp_path: Path) -> None:
    """The file of `docs/cli.md`."""
    (tmp_path / "config.toml").write_text(find("cli.md", "[default]").code)

    assert set(load_profiles(tmp_path / "config.toml")) == {"default", "prod"}


def commands() -> list[str]:
    """Each line of a shell block that calls `topics`, up to what follows it."""
    lines = [line for b in blocks() if b.kind == "sh" for line in b.code.splitlines()]
    return [line for line in lines if line.startswith("topics ")]


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_a_command_is_understood(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are not run: every command, argument and option is one that there is."""
    monkeypatch.chdir(tmp_path)
    lexer = shlex.shlex(line.replace("DIR", "dir"), posix=True, punctuation_chars="|><;&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word[0] in "|><;&":
            break
        words.append(word)
    (tmp_path / "jobs.ndjson").touch()

    context: Any = main.make_context("topics", words[1:], resilient_parsing=False)
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert command is not None, name
        context = command.make_context(name, rest, parent=context)
