"""Everything that a command prints goes one way, and steers no terminal."""

import ast
import functools
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

import topics.cli
import topics.client
from topics.cli import main, printing
from topics.cli.printing import Styled, Table, say, say_json, styled
from topics.visible import visible

EVIL = "a\x1b]0;owned\x07\x9b2J\u202eb"
SHOWN = "a\\u001b]0;owned\\u0007\\u009b2J\\u202eb"
MODULES = sorted(Path(topics.cli.__file__).parent.glob("*.py"))
WRITERS = {
    *("print", "click.confirm", "click.echo", "click.echo_via_pager", "click.secho", "click.style"),
    *("console.print", "sys.stderr.write", "sys.stdout.write", "traceback.print_exc"),
}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_other_module_writes(path: Path) -> None:
    """Text of others cannot slip by: what writes to a terminal is in one module."""
    if path.name == "printing.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        assert called not in WRITERS, f"{path.name}:{node.lineno}: {called}"


def test_a_line_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither its text nor what is in a colour."""
    say("x ", EVIL)
    say(styled(EVIL, fg="red"), err=True)
    say_json(msgspec.json.encode({"a": EVIL}))
    printing.warn(EVIL)

    out, err = capsys.readouterr()
    assert out == f'x {SHOWN}\n{{"a":"{SHOWN}"}}\n'
    assert err == f"{SHOWN}\ntopics: {SHOWN}\n"


def test_text_that_a_stream_cannot_hold_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the locale C with an old interpreter, or `PYTHONIOENCODING=ascii`."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))

    say("größe")

    sys.stdout.flush()
    assert raw.getvalue() == b"gr\\xf6\\xdfe\n"


def test_a_stack_trace_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Its last lines may be a server's."""
    try:
        raise ValueError(f"{EVIL}\nand more")
    except ValueError as error:
        printing.print_traceback(type(error), error, error.__traceback__)

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == [f"ValueError: {SHOWN}", "and more"]


def test_what_python_prints_by_itself_goes_the_same_way(tmp_path: Path) -> None:
    """Traces of any thread, warnings, and log lines where no logging is set up."""
    program = f"""
import logging, threading, warnings
from topics.cli.printing import take_over
take_over()
evil = {EVIL!r}
def fail(): raise ValueError(evil)
thread = threading.Thread(target=fail); thread.start(); thread.join()
warnings.warn(evil)
logging.getLogger("x").error("%s", evil)
fail()
"""
    env = {"PYTHONPATH": str(Path(topics.cli.__file__).parents[2]), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=env, check=False
    )

    lines = done.stderr.decode().splitlines()
    assert [line for line in lines if SHOWN in line] == [
        f"ValueError: {SHOWN}",
        f"topics: UserWarning: {SHOWN}",
        SHOWN,
        f"ValueError: {SHOWN}",
    ]
    assert all(line.isprintable() for line in lines)


def test_a_table_grows_with_its_rows() -> None:
    """Columns are flush left or right; what was printed stays as it is; colours take no room."""
    table = Table("<topic", ">records", "<", ">ready")

    first = list(table.lines([["a", "1,000", styled("full", fg="red")], ["bb", "1"]]))
    second = list(table.lines([["a-long-name", "123,456,789", EVIL, "7"]]))

    assert first == [
        "topic  records        ready",
        "a        1,000  \x1b[31mfull\x1b[0m",
        "bb           1",
    ]
    assert second == [f"a-long-name  123,456,789  {SHOWN}      7"]


def test_a_table_is_printed_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    """Page by page, and its titles alone where there is no row."""

    def rows() -> Iterator[list[str | Styled]]:
        for n in range(printing.PAGE_ROWS + 1):
            if n == printing.PAGE_ROWS:
                assert len(capsys.readouterr().out.splitlines()) == n + 1
            yield [f"t{n}"]

    printing.print_table("<topic", rows=rows())
    assert capsys.readouterr().out == f"t{printing.PAGE_ROWS}\n"

    printing.print_table("<topic", rows=[])
    assert capsys.readouterr().out == "topic\n"


# ---------------------------------------------------------------------- a hostile server

DATA = '{"x":"é\x9b1m\x7f\u202e"}'


def hostile(request: httpx.Request) -> httpx.Response:
    """A server that puts what steers a terminal wherever it can."""
    path = request.url.path
    if path.endswith("/diff"):
        head = {"next_from_seq": 1, "head_seq": 1, "earliest_seq": 1, "caught_up": True}
        gap = {"gap_from": 1, "gap_to": 1, "reason": EVIL}
        record = f'{{"$seq":1,"$ts":1,"$tag":"\x9b","data":{DATA}}}'
        body = msgspec.json.encode(
            {**head, "tombstone": gap, "records": [msgspec.Raw(record.encode())]}
        )
        return httpx.Response(200, content=body)
    error = {"code": EVIL, "message": EVIL, "detail": {}}
    if path == "/v0/topics/t":
        config = {"type": EVIL, "durability": EVIL, "dead_letter": EVIL}
        lost = [{"reason": EVIL, "records": 1}]
        return httpx.Response(200, json={"topic": EVIL, "config": config, "lost_24h": lost,
                                         "head_seq": 1, "earliest_seq": 1, "count": 1, "bytes": 1})  # fmt: skip
    if path == "/v0/routers":
        blocked = {"code": EVIL, "message": EVIL}
        router = {"router": "r", "source": "a", "dest": "b", "guarantee": EVIL, "filter": EVIL}
        return httpx.Response(200, json={"routers": [{**router, "blocked": blocked}]})
    if path == "/v0/cluster":
        node = {"node": EVIL, "role": EVIL, "url": EVIL}
        return httpx.Response(200, json={"enabled": True, "cluster": EVIL, "shard": 0, "term": 1,
                                         "node": EVIL, "leader": EVIL, "nodes": [node]})  # fmt: skip
    return httpx.Response(404, json={"error": error})


@pytest.mark.parametrize(
    "words",
    [
        *("read t", "read t --data", "drain t --yes", "peek t", "info t", "config t", "topics"),
        *("routers", "routers --graph", "routers --json", "router info r", "cluster status"),
        *(
            "delete t -y",
            "read missing\x9b",
            "bogus\x1b[2J",
            "read t --from \x1b[2J",
            "work t -- true",
        ),
        *("rm t --before 2", "publish t 1", "redrive t --to u", "purge t -y"),
    ],
)
@pytest.mark.parametrize("on_terminal", [True, False])
def test_no_command_obeys_a_hostile_server(
    monkeypatch: pytest.MonkeyPatch, words: str, on_terminal: bool
) -> None:
    """On a terminal, nothing that a server says steers it: records, names, reasons, errors.  Into a
    pipe records go as they are, and nothing else does."""
    for name in ("Client", "AsyncClient"):
        transport = httpx.MockTransport(hostile)
        made = functools.partial(getattr(topics.client, name), transport=transport)
        monkeypatch.setattr(topics.client, name, made)
    out, err = Stream(is_terminal=on_terminal), Stream(is_terminal=on_terminal)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setenv("TOPICS_URL", "http://topics.test")

    with pytest.raises(SystemExit):
        main(words.split(" "), prog_name="topics")

    printed, told = out.text(), err.text()
    is_record = words.split()[0] in ("read", "drain", "peek") and not on_terminal
    assert is_record or visible(printed.replace("\n", "")) == printed.replace("\n", "")
    assert visible(told.replace("\n", "")) == told.replace("\n", "")
    assert printed or told
    if words in ("read t", "read t --data", "peek t"):
        assert (DATA in printed) is not on_terminal


class Stream(io.TextIOWrapper):
    """A terminal without colours, or a pipe."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._bytes = io.BytesIO()
        self._is_terminal = is_terminal
        super().__init__(self._bytes, "utf-8")

    def isatty(self) -> bool:
        return self._is_terminal

    def text(self) -> str:
        """What was written, without the colours."""
        self.flush()
        return re.sub(r"\x1b\[[0-9;]*m", "", self._bytes.getvalue().decode())
