"""How lines become records, and how far a source has been taken."""

import contextlib
import functools
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.cli.sources import LINE_BYTES, BadLine, BadSource, Lines, Piped, Shape, records


def read(
    text: str | bytes, shape: Shape, offset: int = 0, header: list[str] | None = None
) -> list[Any]:
    """The records of a text, as they would be sent."""
    raw = text.encode() if isinstance(text, str) else text
    lines = Lines(io.BytesIO(raw), offset)
    return [
        msgspec.json.decode(msgspec.json.encode(record)) for record in records(lines, shape, header)
    ]


def test_ndjson() -> None:
    """A line is data, whatever JSON it holds; blank lines are none."""
    text = '{"a": 1}\n\n[2]\r\n  null  \n"x"'

    assert read(text, Shape("ndjson")) == [
        {"data": {"a": 1}},
        {"data": [2]},
        {"data": None},
        {"data": "x"},
    ]


def test_ndjson_is_sent_byte_for_byte() -> None:
    """A line's own spelling reaches the server. (§0.3)"""
    lines = Lines(io.BytesIO(b'{"x": 1.0e5, "n": 123456789012345678901234567890}\n'))

    (record,) = records(lines, Shape("ndjson"))

    assert bytes(record.data) == b'{"x": 1.0e5, "n": 123456789012345678901234567890}'


def test_tags_are_made_of_fields() -> None:
    """The tag is the named fields' values, joined by dots."""
    text = '{"carrier": "UA", "origin": "EWR", "flight": 1545}\n'

    assert read(text, Shape("ndjson", ("carrier", "origin")))[0]["tag"] == "UA.EWR"
    assert read(text, Shape("ndjson", ("flight",)))[0]["tag"] == "1545"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"a":', "line 2: .*truncated; a record is one line"),
        ("{'a': 1}", "line 2: JSON is malformed"),
        ('{"b": 1}', 'line 2: no field "a"'),
        ('{"a": null}', 'line 2: field "a" is neither text nor a whole number'),
        ('{"a": true}', 'line 2: field "a" is neither'),
        ('{"a": 1.5}', 'line 2: field "a" is neither'),
        ("[1]", "line 2: Expected `object`"),
    ],
)
def test_a_bad_line_is_named(line: str, what: str) -> None:
    """A line that is no record, or makes no tag, is refused with its number."""
    with pytest.raises(BadLine, match=what):
        read(f'{{"a": "x"}}\n{line}\n', Shape("ndjson", ("a",)))


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        (Shape("ndjson"), "%s"),
        (Shape("ndjson", ("a",)), '{"a": %s}'),
        (Shape("records"), '{"data": %s}'),
        (Shape("records", ("a",)), '{"data": {"a": 1}, "meta": %s}'),
    ],
    ids=str,
)
def test_a_line_that_is_nested_too_deeply(shape: Shape, line: str) -> None:
    """JSON of a depth that no server takes is a bad line like any other. (§0.3)"""
    for levels in (1001, 200_000):
        with pytest.raises(BadLine, match=r"^line 1: nested more than 1000 levels deep$"):
            read(line % ("[" * levels + "]" * levels), shape)


@pytest.mark.parametrize(
    ("format", "line", "what"),
    [
        ("ndjson", b'"\xff"', "utf-8"),
        ("ndjson", b'1},{"data":2', "trailing"),
        ("records", b'{"data":"\xff"}', "utf-8"),
        ("records", b'{"data":1,"meta":[1]}', "meta is no object"),
        ("raw", b"\xff", "utf-8"),
    ],
)
def test_a_line_that_no_server_takes(format: Any, line: bytes, what: str) -> None:
    """It is refused with its number, before the batch that it would spoil is sent."""
    with pytest.raises(BadLine, match=rf"line 2: .*{what}"):
        list(records(Lines(io.BytesIO(b'{"data":1}\n' + line)), Shape(format)))


class Endless(io.RawIOBase):
    """A short line, and one that does not end."""

    def __init__(self) -> None:
        self.given_bytes = 0
        self.begin = b"1\n"

    def seekable(self) -> bool:
        return False

    def readline(self, size: int | None = -1, /) -> bytes:
        if self.begin:
            line, self.begin = self.begin, b""
            return line
        assert size is not None
        assert size >= 0
        self.given_bytes += size
        return b" " * size


def test_a_line_that_no_record_is_as_long_as() -> None:
    """It is refused without being read to its end; the limit is asked for where it matters. (§2)"""
    asked: list[int] = []

    def most_bytes() -> int:
        asked.append(1)
        return LINE_BYTES + 10

    stream = Endless()
    found = records(Lines(stream, 0, most_bytes), Shape("ndjson"))

    assert (bytes(next(found).data), asked) == (b"1", [])
    with pytest.raises(BadLine, match=r"line 2: more than 8,388,618 bytes in a line"):
        next(found)
    assert (stream.given_bytes, asked) == (LINE_BYTES + 11, [1])


def test_a_long_line_that_is_one() -> None:
    """Of a server that takes such records; also the last one, without its end."""
    text = b'"' + b"x" * (LINE_BYTES + 5) + b'"'
    lines = Lines(io.BytesIO(b"1\n" + text + b"\n2\n" + text), 0, lambda: 1 << 30)

    assert [len(line) for line in lines] == [2, len(text) + 1, 2, len(text)]


def test_what_read_prints_can_be_appended() -> None:
    """`topics read` prints lines that `--format records` takes, with their tag, node and meta."""
    text = (
        '{"$seq":7,"$ts":5,"$node":"n","$tag":"t","data":{"a":1},"meta":{"k":1.0}}\n'
        '{"data":2,"tag":"own","node":"w"}\n'
    )

    assert read(text, Shape("records")) == [
        {"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"k": 1.0}},
        {"data": 2, "tag": "own", "node": "w"},
    ]
    assert read('{"data":{"a":"x"},"tag":"old"}', Shape("records", ("a",)))[0]["tag"] == "x"


def test_a_record_line_without_data() -> None:
    """A line of another shape is refused with its number."""
    with pytest.raises(BadLine, match=r"line 1: .*data"):
        read('{"a": 1}', Shape("records"))


def test_csv() -> None:
    """A row is an object of text by the header's names; quoted fields may hold line ends."""
    text = '\ufeffid,"full name",x\r\n1,"Ann\nLee",\r\n\r\n2,"say ""hi""",3'

    assert read(text, Shape("csv", ("id",))) == [
        {"data": {"id": "1", "full name": "Ann\nLee", "x": ""}, "tag": "1"},
        {"data": {"id": "2", "full name": 'say "hi"', "x": "3"}, "tag": "2"},
    ]


def test_csv_numbers_and_nulls() -> None:
    """Asked for, numbers go as they are spelled, and one text stands for null."""
    text = "a,b,c,d,e,f\n1,-2.50,NA,007,1e5,+1\n"
    lines = Lines(io.BytesIO(text.encode()))

    (record,) = records(lines, Shape("csv", numbers=True, null="NA"))

    sent = msgspec.json.encode(record.data)
    assert sent == b'{"a":1,"b":-2.50,"c":null,"d":"007","e":1e5,"f":"+1"}'


def test_csv_numbers_that_are_none() -> None:
    """What JSON has no number for stays text, as does what no reader could hold."""
    text = "a,b,c,d,e\nNaN,inf,-Infinity,1e999,-1e400\n"

    (row,) = read(text, Shape("csv", numbers=True))

    assert list(row["data"].values()) == ["NaN", "inf", "-Infinity", "1e999", "-1e400"]
    (row,) = read(text, Shape("csv", numbers=True, null="NaN"))
    assert row["data"]["a"] is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a,b\n1,2\n3\n", "line 3: 1 fields, but 2 columns"),
        ("a,a\n1,2\n", "line 1: two columns"),
        ('a\n"x\n', "line 2: unexpected end"),
        ("a\n1\n", 'line 2: no field "z"'),
    ],
)
def test_bad_csv(text: str, what: str) -> None:
    """A row that does not fit is refused with its line."""
    with pytest.raises(BadLine, match=what):
        read(text, Shape("csv", ("z",) if what.endswith('"z"') else ()))


def test_csv_that_is_not_text() -> None:
    """Bytes that are not UTF-8 are refused with their line."""
    with pytest.raises(BadLine, match="line 2: 'utf-8'"):
        read(b"a\n\xff\n", Shape("csv"))


@pytest.mark.parametrize("format", ["ndjson", "csv"])
def test_any_record_is_a_place_to_go_on_from(format: Any) -> None:
    """After each record the offset is where the rest begins: reading from there gives the rest."""
    text = b'"a"\n\n"b\\n"\n  "c"\n' if format == "ndjson" else b'k\n1\n"x\ny"\n\n3\n'
    header = None if format == "ndjson" else ["k"]
    whole = read(text, Shape(format))
    lines = Lines(io.BytesIO(text))

    for taken, _ in enumerate(records(lines, Shape(format)), start=1):
        assert read(text, Shape(format), lines.offset, header) == whole[taken:]


def test_a_digest_is_of_what_was_taken() -> None:
    """Equal bytes have equal digests, wherever a run began."""
    text = b"1\n2\n3\n2\n"
    lines = Lines(io.BytesIO(text))
    digests = []
    for _ in lines:
        lines.settle()
        digests.append(lines.take_digest())

    rest = Lines(io.BytesIO(text), 2)
    next(rest)

    rest.settle()
    assert rest.take_digest() == digests[1] == digests[3]
    assert len(set(digests)) == 3


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


def test_a_pipe_is_skipped_by_reading() -> None:
    """What cannot be sought in is read past; one that is too short is refused."""
    lines = Lines(Pipe(b"1\n2\n3\n"), 2)
    assert [r.data for r in records(lines, Shape("csv"), ["k"])] == [{"k": "2"}, {"k": "3"}]

    with pytest.raises(BadSource, match=r"^it ends at byte 6, before --offset 9"):
        Lines(Pipe(b"1\n2\n3\n"), 9)


class Due:
    """Lets a pipe be filled when its reader has waited."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)
        self.waits_s = [0.0] * len(steps)

    def due_s(self) -> float | None:
        return self.waits_s[0] if self.waits_s else None

    def is_due(self) -> None:
        self.waits_s.pop(0)
        self.steps.pop(0)()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def test_a_pipe_that_waits(pipe: tuple[int, int]) -> None:
    """Whoever waits for a line has its turn meanwhile; a line is given when its end is there."""
    reading, writing = pipe
    due = Due(
        lambda: os.write(writing, b"1\n2"),
        lambda: os.write(writing, b"0"),
        lambda: os.write(writing, b"\n3\n4"),
        lambda: os.close(writing),
    )

    piped = Piped(reading, due)

    assert [piped.readline() for _ in range(6)] == [b"1\n", b"20\n", b"3\n", b"4", b"", b""]
    assert due.steps == []


@given(st.lists(st.binary(max_size=8), max_size=8), st.integers(1, 9))
def test_a_pipe_is_read_like_a_file(pieces: list[bytes], size: int) -> None:
    """However it comes: first a part as bytes, as `--offset` skips it, then lines."""
    reading, writing = os.pipe()
    text = b"".join(pieces)
    steps = [functools.partial(os.write, writing, piece) for piece in pieces if piece]
    piped = Piped(reading, Due(*steps, functools.partial(os.close, writing)))
    file = io.BytesIO(text)
    try:
        skipped = b""
        while len(skipped) < min(size, len(text)):
            skipped += piped.read(size - len(skipped))
        assert skipped == file.read(size)
        assert list(iter(piped.readline, b"")) == file.readlines()
    finally:
        os.close(reading)


def test_a_row_that_is_not_there_yet() -> None:
    """What was made into records is counted and digested by itself: a row may go before the next
    one is whole."""
    whole = Lines(io.BytesIO(b"a,b\n1,2\n"))
    list(records(whole, Shape("csv")))
    cut = Lines(io.BytesIO(b'a,b\n1,2\n3,"x\n'))
    row = iter(records(cut, Shape("csv")))
    next(row)
    with pytest.raises(BadLine):
        next(row)

    assert (cut.offset, cut.settled, whole.settled) == (13, 8, 8)
    assert cut.take_digest() == whole.take_digest()
