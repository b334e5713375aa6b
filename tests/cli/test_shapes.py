"""Templates and columns of records: the language of paths, and the commands that have it."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from topics.cli.shapes import Path, parse_columns, parse_path, parse_template, text_of
from topics.client import NewRecord, RawRecord
from topics.testing import MemoryTopics

DATA = b'{"user": "ada", "n": 1.50e2, "big": 123456789012345678901234567890, "none": null, "ok": true,' \
    b' "list": [1, {"a.b": "x"}], "inner": {"a": [ ], "b": "t"}, "user": "bob"}'  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (["user"], "bob"),
        (["n"], "1.50e2"),
        (["big"], "123456789012345678901234567890"),
        (["none"], ""),
        (["ok"], "true"),
        (["list"], '[1,{"a.b":"x"}]'),
        (["list", "0"], "1"),
        (["list", "1", "a.b"], "x"),
        (["list", "2"], ""),
        (["list", "-1"], ""),
        (["list", "9" * 30], ""),
        (["list", "a"], ""),
        (["inner"], '{"a":[],"b":"t"}'),
        (["user", "a"], ""),
        (["nothing", "a"], ""),
    ],
)
def test_a_path_leads_to_a_value(steps: list[str], text: str) -> None:
    """Numbers as they are spelled, texts bare, the last of two equal names, and nothing for what is missing."""
    assert text_of(DATA, steps) == text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("seq", ("seq", ())),
        ("data", ("data", ())),
        ("data.user", ("data", ("user",))),
        ("data.items.0", ("data", ("items", "0"))),
        ('meta."trace.id"', ("meta", ("trace.id",))),
        (r'data."a\"b"', ("data", ('a"b',))),
        ("data.é-x$1", ("data", ("é-x$1",))),
    ],
)
def test_paths(text: str, path: tuple[str, tuple[str, ...]]) -> None:
    """A field of the record, and steps."""
    assert parse_path(text) == Path(text, *path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing is no path"),
        ("user", "those of data are data.user"),
        ("tga", "is it tag?"),
        ("seq.a", "seq has no fields"),
        ("data.", "is no path"),
        ("data..a", "is no path"),
        ("data a", "' a' is not expected"),
        ('data."a', "is no path"),
    ],
)
def test_what_is_no_path(text: str, why: str) -> None:
    """Says why."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_path(text)
    assert why in str(caught.value)


def test_templates() -> None:
    """Texts, paths, doubled braces, escapes."""
    parts = parse_template(r"{{{seq}}}\t{data.a}\n\\")

    assert [part.text if isinstance(part, Path) else part for part in parts] == [
        "{",
        "seq",
        "}\t",
        "data.a",
        "\n\\",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{seq", "has no } behind the path"),
        ("{}", "is no path"),
        ("{ seq}", "is no path"),
        ("a } b", "a single } is written as }}"),
        (r"\q", "is no escape"),
        ("\\", "is no escape"),
        ("{user}", "data.user"),
    ],
)
def test_what_is_no_template(text: str, why: str) -> None:
    """Says why."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_template(text)
    assert why in str(caught.value)


def test_columns() -> None:
    """Between commas; blanks before them do not count, and quotes keep a comma."""
    columns = parse_columns('seq, data.a,meta."x,y"')

    assert [column.text for column in columns] == ["seq", "data.a", 'meta."x,y"']
    for text in ("", "seq,", "seq;tag", "seq,,tag"):
        with pytest.raises(ValueError, match=r"."):
            parse_columns(text)


def test_fields_of_a_record_have_their_text() -> None:
    """`time` is `ts` in words, in UTC; a time that no calendar has is the number."""
    record = RawRecord(seq=7, ts_ms=1_750_000_000_012, node="n", data=Raw(b"1"))
    late = RawRecord(seq=7, ts_ms=2**62, data=Raw(b"1"))

    def text(path: str, of: RawRecord = record) -> str:
        return parse_path(path).of("jobs", of, 2)

    assert [text(each) for each in ("seq", "ts", "node", "topic", "partition", "data")] == [
        *("7", "1750000000012", "n", "jobs", "2", "1"),
    ]
    assert [text(each) for each in ("tag", "key", "meta", "meta.a")] == ["", "", "", ""]
    assert text("time") == "2025-06-15T15:06:40.012Z"
    assert text("time", late) == str(2**62)


@given(
    st.lists(
        st.sampled_from(["", "\n", "\r", '"', ","])
        | st.text(st.characters(exclude_categories=["Cs"])),
        min_size=2,
        max_size=4,
    )
)
def test_any_text_comes_back_out_of_a_row(cells: list[str]) -> None:
    """A reader of CSV finds the columns again, whatever they hold. (RFC 4180)"""
    from topics.cli.shapes import Columns

    paths = [parse_path(f"data.{at}") for at in range(len(cells))]
    record = RawRecord(seq=1, ts_ms=0, data=Raw(json.dumps(cells).encode()))

    row = Columns(paths, has_header=False).line("t", record, 0).decode()

    assert next(csv.reader(io.StringIO(row, newline=""))) == cells


# ---------------------------------------------------------------------- commands


@pytest.fixture
def people(memory: MemoryTopics) -> MemoryTopics:
    memory.client.append(
        "people",
        NewRecord({"user": "ada", "n": 1}, tag="a", meta={"k": "x"}),
        NewRecord({"user": 'b"o,b', "n": None}, tag="b"),
        NewRecord("text"),
    )
    return memory


def test_read_by_a_template(people: MemoryTopics, run: Any) -> None:
    """Tags and meta are asked for where it has them. (§3)"""
    done = run("read", "people", "--format", r"{seq}\t{tag}\t{meta.k}\t{data.user}{{}}")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == '1\ta\tx\tada{}\n2\tb\t\tb"o,b{}\n3\t\t\t{}\n'


def test_read_as_csv(people: MemoryTopics, run: Any) -> None:
    """A line of names first, unless it is not wanted; an empty topic has that line alone."""
    done = run("read", "people", "--csv", "seq,data.user,data.n")
    bare = run("read", "people", "--csv", "data.user", "--no-header", "--limit", "1")
    people.client.put_topic("empty")

    assert done.stdout == 'seq,data.user,data.n\n1,ada,1\n2,"b""o,b",\n3,,\n'
    assert bare.stdout == "ada\n"
    assert run("read", "empty", "--csv", "seq,data").stdout == "seq,data\n"


def test_the_other_commands_that_print_records(people: MemoryTopics, run: Any) -> None:
    """One language of paths, and the same options."""
    template = ("--format", "{topic} {tag} {data.user}")

    assert run("peek", "people", "-n", "2", *template).stdout.splitlines()[0] == "people a ada"
    assert run("peek", "people", "-n", "1", "--csv", "seq,tag").stdout == "seq,tag\n1,a\n"
    assert run("latest", "people", "a", *template).stdout == "people a ada\n"
    assert run("latest", "people", "--csv", "tag,seq").stdout == "tag,seq\na,1\nb,2\n"


def test_a_watched_record_is_written_at_once() -> None:
    """The names before the first one, so that a reader of the pipe has its columns. (§7.5)"""
    from topics.cli.shapes import Columns
    from topics.cli.watch import Shaped

    out = io.BytesIO()
    printer = Shaped(out, Columns(parse_columns("topic,partition,data.a"), has_header=True))
    begun = out.getvalue()
    printer.print("jobs", RawRecord(seq=1, ts_ms=0, data=Raw(b'{"a": 5}')), 3)

    assert begun == b"topic,partition,data.a\n"
    assert out.getvalue() == begun + b"jobs,3,5\n"


def test_data_that_is_nested_deeply_is_printed(memory: MemoryTopics, run: Any) -> None:
    """As deep as the server takes it."""
    deep = "[" * 900 + "1" + "]" * 900
    memory.client.append("deep", Raw(f'{{"a": {deep}}}'.encode()))

    assert run("read", "deep", "--format", "{data.a}").stdout == deep + "\n"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--format", "{seq}", "--csv", "seq"], "exclude each other"),
        (["--format", "{seq}", "--data"], "exclude each other"),
        (["--format", "{sq}"], "--format: a record has"),
        (["--csv", "user"], "--csv: a record has"),
        (["--no-header"], "--no-header is for --csv"),
    ],
)
def test_what_is_refused(people: MemoryTopics, run: Any, args: list[str], why: str) -> None:
    """Before anything is printed."""
    done = run("read", "people", *args)

    assert (done.exit_code, done.stdout) == (2, "")
    assert why in done.stderr


def test_values_steer_no_terminal(
    people: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There control characters of a record are spelled out, and those of the template are not."""
    from topics.cli import shapes

    monkeypatch.setattr(shapes, "is_terminal", lambda: True)
    people.client.append("bad", {"a": "\x1b[2J"})

    assert run("read", "bad", "--format", r"{seq}\t{data.a}").stdout == "1\t\\u001b[2J\n"
    assert "\x1b" not in run("read", "bad", "--csv", "data.a").stdout
