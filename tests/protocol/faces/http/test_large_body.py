"""A large write, decoded in steps (§2): it is what one call of a decoder would make of it."""

import json
import random
from typing import Any

import msgspec
import pytest

from protocol.harness import refusal
from topics.protocol.faces.http import large_body
from topics.protocol.faces.http.append_body import AppendBody, parse_append
from topics.protocol.faces.http.decoding import FIELD_BYTES_MAX, LARGE_BODY_BYTES
from topics.protocol.faces.http.large_body import FIELDS_MAX, LargeBody
from topics.protocol.model import outline
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import Limits
from topics.protocol.model.outline import TooDeep

LIMITS = Limits()
WHOLE = msgspec.json.Decoder(AppendBody)
STEP = 100


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "STEP_BYTES", STEP)
    monkeypatch.setattr(large_body, "STEP_BYTES", STEP)


def read(body: bytes, limits: Limits = LIMITS) -> Any:
    return LargeBody(body, AppendBody, limits, lambda: None).read()


def contents(body: AppendBody) -> Any:
    texts = [
        (bytes(each.data), bytes(each.meta or b""), each.tag, each.node) for each in body.records
    ]
    return texts, body.node, body.create, body.config, body.idempotency_key


class Draw(random.Random):
    def value(self, depth: int = 0) -> Any:
        kind = self.randrange(3 if depth > 4 else 9)
        if kind < 3:
            some = [
                1,
                -2.5,
                True,
                None,
                'q"x',
                "back\\",
                "é€",
                "{[,]}",
                '\\"',
                "x" * self.randrange(60),
            ]
            return self.choice(some)
        if kind < 6:
            return [self.value(depth + 1) for _ in range(self.randrange(5))]
        names = ["a", "b\\", 'c"d', "data", ",{"]
        return {self.choice(names): self.value(depth + 1) for _ in range(self.randrange(4))}

    def record(self) -> dict[str, Any]:
        made: dict[str, Any] = {"data": self.value()}
        for name, value in (
            ("tag", "u\\"),
            ("node", "n"),
            ("meta", {"k": self.value(3)}),
            ("x", 1),
        ):
            if self.random() < 0.2:
                made[name] = value
        return made

    def body(self) -> bytes:
        fields: dict[str, Any] = {"node": "x", "x": [1, 2]} if self.random() < 0.5 else {}
        fields["records"] = [self.record() for _ in range(self.randrange(1, 20))]
        if self.random() < 0.3:
            fields["create"] = True
        between = self.choice([(",", ":"), (", ", ": "), (" ,\n", " : ")])
        text = json.dumps(fields, separators=between, ensure_ascii=self.random() < 0.5)
        if self.random() < 0.1:
            text = text[:-1] + ',"records":' + json.dumps([self.record()] * 3) + "}"
        return text.encode()

    def broken(self, body: bytes) -> bytes:
        at = self.randrange(len(body))
        put = self.choice([b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"1"])
        return self.choice(
            [
                body[:at] + body[at + 1 :],
                body[:at] + put + body[at + 1 :],
                body[:at] + put + body[at:],
            ]
        )


def outcome(decode: Any, body: bytes) -> Any:
    try:
        return contents(decode(body))
    except msgspec.DecodeError:
        return "refused"


@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_one_call_would_make_of_it(short_steps: None, seed: int) -> None:
    """Whole bodies and broken ones, cut at every kind of place. (§2)"""
    draw = Draw(seed)
    for _ in range(150):
        body = draw.body()
        assert contents(read(body)) == contents(WHOLE.decode(body))
        broken = draw.broken(body)
        assert outcome(read, broken) == outcome(WHOLE.decode, broken), broken


def test_no_step_is_much_longer_than_a_step(short_steps: None) -> None:
    """However the values of a body are nested; only a single text is taken whole. (§2)"""
    steps: list[int] = []
    value = b"[" + b",".join([b'{"a":[1,[2,{"b":3}]]}'] * 200) + b"]"
    body = b'{"records":[{"data":%b,"meta":{"m":%b}}],"node":"n"}' % (value, value)
    decoder = LargeBody(body, AppendBody, LIMITS, lambda: None)
    decode = decoder._decode

    def counted(by: Any, text: bytes, begin: int) -> Any:
        steps.append(len(text))
        return decode(by, text, begin)

    decoder._decode = counted  # type: ignore[method-assign]
    assert contents(decoder.read()) == contents(WHOLE.decode(body))

    assert len(steps) > len(body) / (3 * STEP)
    assert max(steps) < 4 * STEP


def lines(*records: str, head: str = '{"records":[', tail: str = "]}") -> bytes:
    return (head + ",".join(records) + tail).encode()


LONG = '{"data":"%s"}' % ("x" * 300)
ONE = '{"data":1}'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[1]", "Expected `object`, got `array`"),
        (b"  ", "Input data was truncated"),
        (b"?", "JSON is malformed: invalid character (byte 0)"),
        (lines(ONE, head='{"x":1,"node":3,"records":['), "Expected `str | null`, got `int` - at `$.node`"),
        (lines(*[ONE] * 30, "2"), "Expected `object`, got `int` - at `$.records[30]`"),
        (lines(*[ONE] * 30, '{"data":1,"tag":2}'), "Expected `str | null`, got `int` - at `$.records[30].tag`"),
        (lines(ONE, LONG, "[%s]" % ("1," * 200 + "1")), "Expected `object`, got `array` - at `$.records[2]`"),
        (lines(ONE, LONG[:-1] + ',"tag":1}'), "Expected `str | null`, got `int` - at `$.records[1].tag`"),
        (lines(ONE, LONG.replace("data", "meta")), "Object missing required field `data` - at `$.records[1]`"),
        (lines(ONE, LONG, "{}"), "Object missing required field `data` - at `$.records[2]`"),
        (b'{"node":"%b"}' % (b"n" * 300), "Object missing required field `records`"),
        (b'{"node":"n","records":{"a":[%b1]}}' % (b"1," * 200), "Expected `array`, got `object` - at `$.records`"),
        (lines(LONG, tail="]"), "Input data was truncated"),
        (lines(LONG, tail="]}}"), "JSON is malformed: brackets do not match"),
        (lines(LONG, tail="}}"), "JSON is malformed: expected a bracket (byte 323)"),
        (lines(LONG, LONG, "", ONE), "JSON is malformed: expected a value or a name (byte 636)"),
        (b'{"x":[%b1],%b:1,"records":[]}' % (b"1," * 80, b" " * 200), "JSON is malformed: expected a name (byte 369)"),
        (lines(LONG, '{"data":[%s1]}' % ("{,1}" * 90)), "JSON is malformed: expected a value or a name (byte 410)"),
        (lines(*[ONE] * 30, r'{"data":"\ud800"}'), "an escaped surrogate has no other half"),
        (b'{"x":[%b1],"%b" 1,"records":[]}' % (b"1," * 80, b"a" * 90), None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(short_steps: None, body: bytes, said: str) -> None:
    """In the whole body, wherever it was cut. (§0.5)"""
    with pytest.raises(msgspec.DecodeError) as wrong:
        read(body)

    assert said is None or str(wrong.value) == said
    with pytest.raises(msgspec.DecodeError):
        WHOLE.decode(body)


def test_a_byte_is_named_where_it_is_in_the_body(short_steps: None) -> None:
    """In whichever piece it was decoded. (§0.5)"""
    for body in (
        lines(*[ONE] * 30, '{"data":?}', *[ONE] * 30),
        lines(LONG, '{"data":[%s?]}' % ("1," * 99)),
    ):
        at = body.index(b"?")
        with pytest.raises(msgspec.DecodeError, match=rf"\(byte {at}\)"):
            read(body)


def test_white_space_is_skipped(short_steps: None) -> None:
    """As long as it may be, wherever JSON has room for it. (RFC 8259 §2)"""
    space = " \n" * STEP
    wide = (
        f'{space}{{{space}"records"{space}:{space}[{space}{LONG}{space},{space}{{{space}"data"{space}:'
        f'{space}[{"1," * 80}1]{space}}}{space}]{space},{space}"node"{space}:{space}"n"{space}}}{space}'
    ).encode()

    assert contents(read(wide)) == contents(WHOLE.decode(wide))
    assert read(f'{{"records":[{space}],"x":1}}'.encode()).records == []


def test_long_tags_and_nodes_are_taken_whole(short_steps: None) -> None:
    """They have limits of their own. (§2)"""
    body = b'{"records":[{"data":1,"tag":"%b","node":"%b"}]}' % (b"t" * 256, b"n" * 128)

    assert contents(read(body)) == contents(WHOLE.decode(body))


def test_nesting_has_an_end(short_steps: None) -> None:
    """A thousand levels of a value are followed, and no more. (§0.3)"""
    body = b'{"records":[{"data":%b1%b}]}'
    (record,) = read(body % (b"[" * 1000, b"]" * 1000)).records
    assert bytes(record.data) == b"[" * 1000 + b"1" + b"]" * 1000
    with pytest.raises(TooDeep) as raised:
        read(body % (b"[" * 1001, b"]" * 1001))
    assert raised.value.place == len(b'{"records":[{"data":') + 1000


def parse(body: bytes, limits: Limits = LIMITS) -> Any:
    return parse_append("t", body, limits, return_seqs=True, header_key=None)


WIDE = b"[" + b"[1]," * (FIELD_BYTES_MAX // 4) + b"1]"


def test_a_field_that_nobody_reads_is_bounded() -> None:
    """So is their number: a body of megabytes is refused before it is read to its end. (§2)"""
    refused = refusal(parse, b'{"records":[{"data":1}],"x":%b,"y":[not JSON' % WIDE)
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert refused.message.endswith(f"bytes exceed {FIELD_BYTES_MAX} - at `$.x`")

    many = b'"a":1,' * LARGE_BODY_BYTES
    assert f"more than {FIELDS_MAX} fields" in refusal(parse, b"{" + many).message

    record = b'{"records":[{"data":1,"y":%b}]}' % WIDE
    assert (
        "exceed 65536, and it is no field of a record - at `$.records[0].y`"
        in refusal(parse, record).message
    )


def test_too_many_records_are_refused_wherever_they_stand() -> None:
    """Before they are decoded. (§2)"""
    many = b"[" + b'{"data":1},' * 30_000 + b"not JSON"
    for head in (b'{"records":', b'{"node":"n","records":'):
        assert refusal(parse, head + many).code is ErrorCode.BATCH_TOO_LARGE


def test_a_record_that_no_limit_allows_is_refused_before_it_is_read() -> None:
    """Whatever it is that makes it long. (§2, §11)"""
    for wide in (b'"%b"' % (b"x" * (2 << 20)), b"[" + b"[1]," * (1 << 19) + b"1]"):
        refused = refusal(parse, b'{"records":[{"data":1},{"data":%b},not JSON' % wide)
        assert refused.code is ErrorCode.RECORD_TOO_LARGE
        assert refused.message == "a record exceeds 1048576 bytes - at `$.records[1]`"


def test_a_large_write_is_one() -> None:
    """Records of a few bytes and of a mebibyte, with what belongs to each. (§2)"""
    texts = [b"%d" % n for n in range(5000)]
    texts += [b"[" + b"[1]," * (1 << 17) + b"1]", b'"%b"' % (b"x" * (1 << 19))]
    items = [b'{"data":%b,"tag":"t%d"}' % (text, n) for n, text in enumerate(texts)]
    paused: list[None] = []

    command = parse_append(
        "t",
        b'{"records":[%b],"node":"n"}' % b", ".join(items),
        LIMITS,
        return_seqs=True,
        header_key=None,
        pause=lambda: paused.append(None),
    )

    assert [bytes(each) for each in command.datas] == texts
    assert (command.nodes, command.tags) == ("n", [f"t{n}" for n in range(len(texts))])
    assert len(paused) > 10


def test_a_last_byte_that_is_no_text_is_named() -> None:
    """A large body is looked at in pieces, too. (§0.5)"""
    body = b'{"records":[{"data":"%b' % (b"x" * LARGE_BODY_BYTES)
    assert f"(byte {len(body)})" in refusal(parse, body + b'\xff"}]}').message
