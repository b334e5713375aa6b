"""The documentation against what it describes: links, settings, routes, errors, and real answers."""

import asyncio
import functools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import click.testing
import httpx
import msgspec
import pytest
from docs.pages import blocks

from topics.cli import COMMANDS, all_commands, main
from topics.cli.work import VARIABLES
from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.append_body import AppendBody, RecordBody
from topics.protocol.faces.http.records import DeleteBody, DiffBody, PurgeBody
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.watch import WatchBody
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import Limits
from topics.server.cluster.figures import HELP as CLUSTER_FAMILIES
from topics.server.kafka.measures import KafkaMeasures
from topics.server.readers.figures import families as reader_families
from topics.server.transport.abuse_counts import AbuseCounts
from topics.settings import TABLE, Setting
from topics.testing import MemoryTopics

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
)
DECISIONS: Final = sorted((ROOT / "docs").glob("decisions/*.md"))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def api() -> str:
    return (ROOT / "docs" / "api.md").read_text()


def operations() -> str:
    return (ROOT / "docs" / "operations.md").read_text()


# ---------------------------------------------------------------------- links and names


@pytest.mark.parametrize("page", [*PAGES, *DECISIONS], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """A relative link names a file that is there."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())

    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]

    assert missing == []


@every_page
def test_every_variable_is_a_setting(page: Path) -> None:
    """A variable in the text is one that the server or a command reads, or that a job has."""
    named = set(re.findall(r"\bTOPICS_[A-Z_]+", page.read_text()))

    ours = {setting.env for setting in TABLE} | {p.envvar for p in options() if p.envvar}

    assert named <= ours | VARIABLES.keys()


def test_every_variable_of_a_command_has_its_row() -> None:
    """What `topics work` tells its commands stands in the table as the code has it."""
    page = (ROOT / "docs" / "cli.md").read_text()

    for name, (meaning, _) in VARIABLES.items():
        assert f"| `{name}` | {meaning} |" in page.splitlines()


@every_page
def test_every_option_is_one(page: Path) -> None:
    """An option in the text is an option of some command."""
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", without_other_tools(page.read_text())))
    spelled = {word for option in options() for word in (*option.opts, *option.secondary_opts)}

    of_others = {"--timeout-graceful-shutdown", "--interface", "--workers-kill-timeout", "--reload"}
    of_others |= {"--no-access-log", "--upgrade", "--build", "--from-file", "--unbuffered"}
    assert named <= spelled | {"--help"} | of_others


def compared(page: str) -> list[list[str]]:
    """The table of `docs/cli.md` beside other tools, a list of cells for each row."""
    rows = page.partition("## Beside other tools\n")[2].partition("\n## ")[0]
    return [row.strip("|").split("|") for row in re.findall(r"^\| .*\|$", rows, re.M)]


def without_other_tools(page: str) -> str:
    """A page without the cells that hold commands of others."""
    for cells in compared(page):
        page = page.replace("|".join(cells), "|".join(cells[:2]))
    return page


def test_every_command_is_compared() -> None:
    """The table in `docs/cli.md` has each command of ours, and no other."""
    _, *rows = compared((ROOT / "docs" / "cli.md").read_text())
    named = {word for row in rows for word in re.findall(r"`([a-z][a-z-]*(?: [a-z]+)?)", row[1])}

    assert {len(row) for row in rows} == {6}
    assert {name.partition(" ")[0] for name in named} == set(COMMANDS)
    assert named <= set(all_commands())


def options() -> Iterator[click.Option]:
    for command in (main, *all_commands().values()):
        yield from (p for p in command.params if isinstance(p, click.Option))


@every_page
def test_every_command_is_one(page: Path) -> None:
    """`topics ...` in code is a command of ours, `make ...` a target."""
    text = page.read_text()
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)

    assert set(re.findall(r"^topics ([a-z][a-z-]*)", text, re.M)) <= set(COMMANDS)
    assert set(re.findall(r"`topics ([a-z][a-z-]*)", text)) <= set(COMMANDS)
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.M)) <= set(targets)


@every_page
def test_every_metric_is_there(page: Path) -> None:
    """A metric in the text is one that the server tells. (§8.3)"""
    with MemoryTopics() as topics:
        told = set(answer(topics, ["curl", "-H", "accept:application/json", "/v0/metrics"]))
    told |= {
        family.name for family in AbuseCounts().families(0)
    }  # of a transport, which it has not
    told |= {family.name for family in reader_families([])}  # nor reader processes
    told |= {family.name for family in KafkaMeasures().families()}  # nor a client of Kafka's
    told |= {f"topics_cluster_{name}" for name, _, _ in CLUSTER_FAMILIES}  # nor a cluster

    assert set(re.findall(r"\btopics_[a-z_]+", page.read_text())) <= told


# ---------------------------------------------------------------------- completeness


@pytest.mark.parametrize("setting", TABLE, ids=lambda setting: setting.name)
def test_every_setting_has_its_row(setting: Setting) -> None:
    """Name, default and meaning stand in the operators' table as the server has them."""
    row = f"| `{setting.env}` | {shown_default(setting)} | {setting.help} |"

    assert row in operations().splitlines()


def shown_default(setting: Setting) -> str:
    default = setting.default
    if setting.name == "log_format":
        return "`text` on a terminal, else `json`"
    if default is None or default == ():
        return "–"
    if isinstance(default, bool):
        return f"`{int(default)}`"
    return f"`{default}`{_size(default) if 'bytes' in setting.name else ''}"


def _size(value: Any) -> str:
    for bits, unit in ((20, "MiB"), (10, "KiB")):
        if value and value % (1 << bits) == 0:
            return f" ({value >> bits} {unit})"
    return ""


def test_every_route_is_described() -> None:
    """The index of §9 is the route table, no more and no less."""
    index = api().split("## §9 ")[1].split("\n## ")[0]
    listed = set(re.findall(r"`([A-Z]+ /[^`]*)`", index))

    there = {f"{r.method} /{b'/'.join(r.path).decode()}" for r in ROUTES}

    named = {"topics/:": "topics/:topic", "watch/:": "watch/:wid", "routers/:": "routers/:router"}
    named |= {
        "groups/:": "groups/:group",
        "jobs/:": "jobs/:seq",
        "schedules/:": "schedules/:schedule",
    }
    named |= {"docs/:": "docs/:file", "console/:": "console/:file"}
    for short, full in named.items():
        there = {path.replace(short, full) for path in there}
    assert listed == there


def test_every_error_is_described() -> None:
    """The table of §0.6 has each code that some line of the server can answer, and no other."""
    rows = re.findall(r"^\| (\d{3}) \| `([a-z_]+)` \|", api(), re.M)
    sources = [
        p for p in (ROOT / "topics").rglob("*.py") if p.name not in ("errors.py", "statuses.py")
    ]
    raised = {n for p in sources for n in re.findall(r"\bErrorCode\.([A-Z_]+)", p.read_text())}

    assert {(int(status), code) for status, code in rows} == {
        (STATUSES[ErrorCode[name]], ErrorCode[name].code) for name in raised
    }


@pytest.mark.parametrize(
    "body",
    [
        TopicConfig,
        AppendBody,
        RecordBody,
        DiffBody,
        DeleteBody,
        PurgeBody,
        WatchBody,
        websocket.SubscribeBody,
    ],
)
def test_every_field_is_described(body: type[msgspec.Struct]) -> None:
    """Each field of a body stands in the reference."""
    named = set(re.findall(r"`(?:records\[\]\.|topics\.\*\.)?([a-z_]+)`", api()))

    assert {field.name for field in msgspec.structs.fields(body)} <= named


# ---------------------------------------------------------------------- transcripts


def answer(topics: MemoryTopics, words: list[str]) -> Any:
    """What the engine answers to a `curl` command of ours, as JSON."""
    method, body, headers, path = "", None, {}, ""
    arguments = iter(words[1:])
    for word in arguments:
        match word:
            case "-X":
                method = next(arguments)
            case "-d":
                body = next(arguments)
            case "-H":
                name, _, value = next(arguments).partition(":")
                headers[name] = value
            case _:
                path = word.removeprefix("localhost:4000")
    assert path.startswith("/"), words
    method = method or ("GET" if body is None else "POST")
    request = httpx.Request(
        method, f"http://localhost:4000{path}", headers=headers, content=body or ""
    )
    return asyncio.run(sent(topics, request)).json()


async def sent(topics: MemoryTopics, request: httpx.Request) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=topics.app)) as client:
        return await client.send(request)


# ---------------------------------------------------------------------- programs


def test_the_program_without_the_client_outlives_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `docs/watching.md` shows goes on after a server that is away, starts, forgot the session
    or breaks off, from the last id; what is refused for good it raises."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/watching.md").read_text(), re.S)
    session = {"stream_url": "/v0/watch/w1", "cursor": "c0"}

    def stream(seq: int) -> httpx.Response:
        text = f'retry: 2000\nid: i{seq}\n\nevent: record\ndata: {{"n": {seq}}}\nid: c{seq}\n\n'
        return httpx.Response(200, text=text)

    posts = [httpx.ConnectError("away"), 503, 429, session, 503, session, 400]
    gets = [503, httpx.ReadError("cut"), stream(1), 404, stream(2), 502, stream(3), 404]
    asked: list[Any] = []
    paused_s: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        is_post = request.method == "POST"
        asked.append(json.loads(request.content) if is_post else request.headers["last-event-id"])
        given = (posts if is_post else gets).pop(0)
        if isinstance(given, Exception):
            raise given
        if isinstance(given, int):
            return httpx.Response(given)
        return httpx.Response(200, json=given) if isinstance(given, dict) else given

    program: dict[str, Any] = {}
    exec(code, program)
    transport = httpx.MockTransport(answer)
    client = functools.partial(httpx.Client, transport=transport)
    monkeypatch.setattr(program["httpx"], "Client", client)
    monkeypatch.setattr(program["time"], "sleep", paused_s.append)
    found: list[int] = []
    followed = program["follow"]("http://topics.test", {"jobs": {}})
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        found.extend(data["n"] for _, data in followed)

    assert (found, posts, gets) == ([1, 2, 3], [], [])
    assert [body.get("cursor") for body in asked if isinstance(body, dict)] == (
        [None] * 4 + ["c1"] * 2 + ["c3"]
    )
    assert [at for at in asked if isinstance(at, str)] == ["c0"] * 3 + ["c1"] * 2 + ["c2"] * 2 + [
        "c3"
    ]
    assert len(paused_s) == len(asked) - 3  # a session that is posted is opened at once


# ---------------------------------------------------------------------- what pages show


def commands() -> set[str]:
    """Each line of a shell block that calls `topics`, up to what follows it."""
    lines = [ln for p in PAGES for b in blocks(p) if b.kind == "sh" for ln in b.code.splitlines()]
    return {line for line in lines if line.startswith("topics ")}


@pytest.mark.parametrize("line", sorted(commands()))
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


def test_json_of_a_socket_is_json() -> None:
    """The messages of `docs/watching.md` are those that the server takes. (§7.7)"""
    page = ROOT / "docs" / "watching.md"
    shown = [block.code for block in blocks(page) if block.code.startswith('{"op": "subscribe"')]
    assert len(shown) == 2

    for line in "".join(shown).splitlines():
        asked = websocket.parse(line.encode(), Limits())
        assert not isinstance(asked.order, Exception), line
