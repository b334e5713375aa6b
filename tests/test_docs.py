"""The documentation against what it describes: links, settings, routes, errors, and real answers."""

import asyncio
import functools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import click.testing
import httpx
import msgspec
import pytest

from bench.flights import Server
from topics.cli import COMMANDS, all_commands, main
from topics.cli.work import VARIABLES
from topics.protocol.http import bodies, websocket
from topics.protocol.http.routes import ROUTES
from topics.protocol.http.statuses import STATUSES
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode
from topics.server.cluster.figures import HELP as CLUSTER_FAMILIES
from topics.server.readers.figures import families as reader_families
from topics.server.transport.guards import Guards
from topics.settings import TABLE, Setting
from topics.testing import MemoryTopics

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
TRANSCRIPTS: Final = (ROOT / "README.md", ROOT / "docs" / "api.md", ROOT / "docs" / "queues.md")

MOVING: Final = frozenset(
    {"$ts", "epoch", "uptime_ms", "last_write_ts", "last_read_ts", "effective_priority"}
    | {"wid", "stream_url", "lease_id", "deadline", "deadlines"}
)
"""What differs from run to run in an answer; of it only the type is compared."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def api() -> str:
    return (ROOT / "docs" / "api.md").read_text()


def operations() -> str:
    return (ROOT / "docs" / "operations.md").read_text()


# ---------------------------------------------------------------------- links and names


@every_page
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

    of_others = {"--timeout-graceful-shutdown", "--interface", "--workers-kill-timeout"}
    of_others |= {"--no-access-log", "--upgrade", "--build", "--from-file"}
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
    named = {word for row in rows for word in re.findall(r"`([a-z]+(?: [a-z]+)?)", row[1])}

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

    assert set(re.findall(r"^topics ([a-z]+)", text, re.M)) <= set(COMMANDS)
    assert set(re.findall(r"`topics ([a-z]+)", text)) <= set(COMMANDS)
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.M)) <= set(targets)


@every_page
def test_every_metric_is_there(page: Path) -> None:
    """A metric in the text is one that the server tells. (§8.3)"""
    with MemoryTopics() as topics:
        told = set(answer(topics, ["curl", "-H", "accept:application/json", "/v0/metrics"]))
    told |= {family.name for family in Guards().families(0)}  # of a transport, which it has not
    told |= {family.name for family in reader_families([])}  # nor reader processes
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
        bodies.AppendBody,
        bodies.RecordBody,
        bodies.DiffBody,
        bodies.DeleteBody,
        bodies.PurgeBody,
        bodies.WatchBody,
        websocket.SubscribeBody,
    ],
)
def test_every_field_is_described(body: type[msgspec.Struct]) -> None:
    """Each field of a body stands in the reference."""
    named = set(re.findall(r"`(?:records\[\]\.|topics\.\*\.)?([a-z_]+)`", api()))

    assert {field.name for field in msgspec.structs.fields(body)} <= named


# ---------------------------------------------------------------------- transcripts


@pytest.mark.parametrize("page", TRANSCRIPTS, ids=lambda page: page.name)
def test_every_answer_is_real(page: Path) -> None:
    """Each command shown is answered as shown, but for times, epochs and durations."""
    steps = list(transcript(page.read_text()))
    assert len(steps) >= 6

    with MemoryTopics() as topics:
        for command, shown in steps:
            told = answer(topics, command)
            if shown:
                assert steady(told) == steady(json.loads(shown)), command


def test_the_stream_shown_is_real() -> None:
    """The events in the README are those of the session that is posted right before them."""
    page = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"```console\n\$ curl -N [^\n]*\n(retry: .*?)```", page, re.S)
    before = page[: page.index("$ curl -N ")]

    with MemoryTopics() as topics:
        for command, _ in transcript(before):
            told = answer(topics, command)
        pieces = asyncio.run(streamed(topics, told["stream_url"], shown.count("event: ")))

    assert still(b"".join(pieces).decode()) == still(shown)


async def streamed(topics: MemoryTopics, path: str, events: int) -> list[bytes]:
    """The pieces of a stream up to so many events."""
    pieces: list[bytes] = []
    enough = asyncio.Event()
    asked = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if not asked:
            await enough.wait()
            return {"type": "http.disconnect"}
        return asked.pop()

    async def send(message: Any) -> None:
        pieces.append(message.get("body", b""))
        if b"".join(pieces).count(b"event: ") >= events:
            enough.set()
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "http_version": "1.1", "headers": []}
    await topics.app({**scope, "raw_path": path.encode(), "query_string": b""}, receive, send)
    return pieces


def still(stream: str) -> str:
    """A stream without its times and without the line breaks that were added for readers."""
    joined = re.sub(r"\n (?=\S)", "", stream.strip())
    return re.sub(r'(?<="\$ts":)\d+|(?<=: hb )\d+', "0", joined)


def transcript(text: str) -> Iterator[tuple[list[str], str]]:
    """(words of the command, what is shown) of every command on a page; a command in the background
    (or whose answer is thrown away) shows nothing and is done at once, as what waits for it would otherwise wait for ever."""
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
            if step.startswith("curl -N "):
                continue
            if step.startswith("("):
                yield shlex.split(step[step.index("curl") : step.index(">")]), ""
                continue
            if step.rstrip().endswith(">/dev/null"):
                yield shlex.split(step.rstrip().removesuffix(">/dev/null")), ""
                continue
            # The answer begins where a line begins with a brace and no quote is open.
            command, shown = re.split(r"(?<=[^\s{\[,])\n(?=\{)", step, maxsplit=1)
            yield shlex.split(command), shown


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


def steady(value: Any) -> Any:
    """An answer without what changes from run to run."""
    if isinstance(value, list):
        return [steady(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: type(v).__name__ if key in MOVING else steady(v) for key, v in value.items()}
    return {**kept, "performance": sorted(value["performance"])} if "performance" in kept else kept


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


def test_the_settings_shown_are_those() -> None:
    """`topics settings` prints what `docs/cli.md` shows, through the filters that it shows."""
    page = (ROOT / "docs/cli.md").read_text()
    ((words, shown),) = re.findall(
        r"```console\n\$ TOPICS_PORT=4001 topics (settings.*?)\n(.*?)```", page, re.S
    )
    command, first, second = words.split(" | ")
    assert (first, second) == ("grep '^TOPICS_'", "grep -v default")

    told = click.testing.CliRunner().invoke(main, shlex.split(command), env={"TOPICS_PORT": "4001"})

    lines = told.stdout.splitlines(keepends=True)
    kept = [ln for ln in lines if ln.startswith("TOPICS_") and "default" not in ln]
    assert "".join(kept) == shown


def test_the_queue_of_a_router_is_one() -> None:
    """The commands of `docs/routers.md` under "Fan-out", in order, leave jobs to be worked on."""
    page = (ROOT / "docs/routers.md").read_text()
    (block,) = re.findall(r"```sh\n(curl -X PUT localhost:4000/v0/topics/mails.*?)```", page, re.S)

    with MemoryTopics() as topics:
        topics.client.put_topic("orders")
        for line in block.replace("\\\n", "").splitlines():
            if line.startswith("curl "):
                answer(topics, shlex.split(line))
        topics.client.append("orders", {"n": 1}, tag="paid.eu")

        assert topics.client.claim("mails", node="w").count == 1


# ---------------------------------------------------------------------- what can be pasted


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.end()


def block(page: str, kind: str, after: str) -> str:
    """The first block of a page's code behind these words."""
    text = (ROOT / "docs" / page).read_text().partition(after)[2]
    found = re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def pasted(command: list[str], server: Server, cwd: Path) -> str:
    """What it prints, with the server and the commands of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {**os.environ, "TOPICS_URL": server.url, "PATH": path}
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_commands(server: Server, tmp_path: Path) -> None:
    """What a newcomer pastes from `docs/cli.md` works as it stands."""
    script = block("cli.md", "sh", "can be pasted into another")

    printed = pasted(["sh", "-euc", script], server, tmp_path).splitlines()

    assert printed[:3] == ['{"n": 1}', '{"n": 2}', '{"n": 3}']
    assert any(line.split()[:2] == ["numbers", "3"] for line in printed)


def test_the_first_program(server: Server, tmp_path: Path) -> None:
    """And so does the first program of `docs/client.md`, also where it has run before."""
    (tmp_path / "first.py").write_text(block("client.md", "python", "# The Python client"))

    for times in (1, 2):
        printed = pasted([sys.executable, "first.py"], server, tmp_path)
        told = [f"{n} {{'url': 's3://b/a.png'}}" for n in range(1, times + 1)]
        assert printed.splitlines() == told


def test_a_producer_as_shown(server: Server, tmp_path: Path) -> None:
    """A program sends record by record as `docs/client.md` has it."""
    shown = block("client.md", "python", "### Record by record").partition("async with")[0]
    text = "from topics import Client\nclient = Client()\n" + shown.replace("jobs", "many")
    (tmp_path / "many.py").write_text(text + 'print(client.topic("many").count)\nclient.close()\n')

    assert pasted([sys.executable, "many.py"], server, tmp_path) == "100000\n"


@pytest.fixture(scope="module")
def exported(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first commands of `docs/export.md` were pasted."""
    cwd = tmp_path_factory.mktemp("exported")
    script = block("export.md", "sh", "can be pasted into another")
    printed = pasted(["sh", "-euc", script], server, cwd)
    assert "3 records of 3 seqs exported and verified" in printed
    assert "nothing new to export" in printed
    assert "3 records are the topic's, byte for byte" in printed
    return cwd


@pytest.mark.parametrize("library", ["topics.export", "duckdb", "polars", "pandas"])
def test_readers_of_an_export(server: Server, exported: Path, library: str) -> None:
    """Each program of `docs/export.md` reads it, where its library is installed."""
    if library != "topics.export":
        pytest.importorskip(library, exc_type=ImportError)
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs/export.md").read_text(), re.DOTALL)
    (program,) = [text for text in programs if f"import {library}\n" in text]
    (exported / "reader.py").write_text(program)
    printed = pasted([sys.executable, "reader.py"], server, exported)
    shown = {"topics.export": "3", "duckdb": "hello", "polars": "6", "pandas": "hello"}
    assert shown[library] in printed


# ---------------------------------------------------------------------- the tutorial


PASSING: Final = re.compile(
    r'(?<="\$ts":)\d+|\d+\.\d s, [\d,]+/s|(?<="epoch":")[^"]+|(?<="server_total_ms":)[\d.]+'
)
"""What differs from run to run in what the tutorial's commands print."""


def typed(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a page's console blocks, with the lines that it prints."""
    for code in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        command: list[str] = []
        printed: list[str] = []
        for line in code.splitlines():
            if line.startswith("$ "):
                if command:
                    yield "\n".join(command), printed
                command, printed = [line[2:]], []
            elif line.startswith("> "):
                command.append(line[2:])
            else:
                printed.append(line)
        yield "\n".join(command), printed


def test_the_tutorial(tmp_path: Path) -> None:
    """Every command of `docs/tutorial.md`, one after the other, prints what is shown."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    text = (ROOT / "docs" / "tutorial.md").read_text()
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    server.start()
    try:
        for command, shown in typed(text):
            done = subprocess.run(
                ["sh", "-c", command.replace("localhost:4000", server.url)],
                cwd=tmp_path,
                env={**os.environ, "TOPICS_URL": server.url, "PATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=100,
            )
            printed = [line.rstrip() for line in PASSING.sub("…", done.stdout).splitlines()]
            assert printed == [PASSING.sub("…", line).rstrip() for line in shown], command
    finally:
        server.end()
