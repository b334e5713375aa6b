"""JSON text into typed bodies: what is no text, no JSON, or larger than its field may be (§0.5, §2)."""

import threading
from collections.abc import Callable

import msgspec
import pytest

from protocol.harness import refusal, status_of
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.decoding import FIELD_BYTES_MAX, LARGE_BODY_BYTES, decode, too_deep
from topics.protocol.faces.http.queues import parse_ack
from topics.protocol.faces.http.records import parse_delete, parse_diff
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits

LIMITS = Limits()


class Note(msgspec.Struct):
    text: str = ""
    tags: list[str] | None = None


NOTE = msgspec.json.Decoder(Note)


@pytest.mark.parametrize("size", [10, LARGE_BODY_BYTES - 40, 5 * LARGE_BODY_BYTES + 3])
@pytest.mark.parametrize("character", ["x", "é", "€", "🙂"], ids=["1", "2", "3", "4"])
def test_text_is_text_wherever_a_character_is_cut(size: int, character: str) -> None:
    """A large body is looked at in pieces, whose ends fall inside of characters. (§0.3)"""
    for shift in range(4):
        text = b"a" * shift + character.encode() * (size // len(character.encode()))
        body = b'{"unknown":"%b","text":"found"}' % text
        assert decode(NOTE, body).text == "found"
        assert decode(NOTE, memoryview(body)).text == "found"


@pytest.mark.parametrize("size", [10, 5 * LARGE_BODY_BYTES + 3])
@pytest.mark.parametrize(
    ("wrong", "at"), [(b"\xff", 0), (b"\xc3", 0), (b"\xe2\x82", 0), (b"\xed\xa0\x80", 0)]
)
def test_the_byte_that_is_no_text_is_named(size: int, wrong: bytes, at: int) -> None:
    """400, and where to look. (§0.5, decision 64)"""
    for shift in range(4):
        before = b'{"unknown":"' + b"a" * shift + "€".encode() * (size // 3)
        refused = refusal(decode, NOTE, before + wrong + b'"}')
        assert refused.code is ErrorCode.INVALID_REQUEST
        assert f"(byte {len(before) + at})" in refused.message


def test_a_body_that_ends_inside_a_character_is_no_text() -> None:
    """At whatever length. (§0.5)"""
    for size in (10, LARGE_BODY_BYTES, 3 * LARGE_BODY_BYTES):
        refused = refusal(decode, NOTE, b'"' + b"a" * (size - 2) + b"\xe2\x82")
        assert f"(byte {size - 1})" in refused.message


@pytest.mark.parametrize("text", [r'"\ud800"}', r'"\uDBFF\n"}', r'"\\\ud800"}', r'"\ud83dx\u"'])
def test_half_a_pair_of_surrogates_is_called_so(text: str) -> None:
    """Near the end of a body the decoder lacks bytes for the other half. (§0.5)"""
    refused = refusal(decode, NOTE, b'{"text":' + text.encode())

    assert refused.message == "the body is not JSON: an escaped surrogate has no other half"


@pytest.mark.parametrize(
    "text", ['"', r'"\ud83d', r'"\ud83d\ude0', r'"\ud83d\ude00"', r'"\ud83d' "\\", r'"\\ud83d"']
)
def test_a_text_that_ends_early_is_truncated(text: str) -> None:
    """Also inside a pair, behind a whole one, and behind what only looks like one. (§0.5)"""
    refused = refusal(decode, NOTE, b'{"text":' + text.encode())

    assert refused.message == "the body is not JSON: Input data was truncated"


def test_an_empty_body_is_called_empty() -> None:
    """Where a body is needed and none came. (§0.5)"""
    assert refusal(decode, NOTE, b"").message == "the body is not JSON: it is empty"


def test_of_a_field_that_comes_twice_the_first_makes_no_objects() -> None:
    """The last one counts, and it alone is bounded: millions of topics in front of it are skipped.
    (§2)"""
    tags = b'["a"' + b',"a"' * FIELD_BYTES_MAX + b"]"
    counted: list[None] = []

    class Counted(msgspec.Struct):
        def __post_init__(self) -> None:
            counted.append(None)

    class Counting(msgspec.Struct):
        tags: list[str] | None = None
        each: list[Counted] | None = None

    many = b"[" + b",".join([b"{}"] * LARGE_BODY_BYTES) + b"]"
    body = b'{"each":%b,"tags":%b,"tags":["b"],"each":[{}]}' % (many, tags)
    found = decode(msgspec.json.Decoder(Counting), body)

    assert (found.tags, len(counted)) == (["b"], 1)


def test_a_large_body_may_have_to_be_known_whole() -> None:
    """A field that a delete does not know is refused, however long it is. (decision 1)"""
    unknown = b'{"before_seq":1,"sequ":"' + b"a" * LARGE_BODY_BYTES + b'"}'

    assert "unknown field `sequ`" in refusal(parse_delete, "t", unknown, LIMITS).message


def test_a_field_of_a_large_body_is_bounded_by_its_text() -> None:
    """What is ignored is not: only what would become objects costs more than its bytes. (§2)"""
    tags = b'["a"' + b',"a"' * (FIELD_BYTES_MAX // 4) + b"]"

    refused = refusal(decode, NOTE, b'{"tags":%b}' % tags)

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert refused.message == f"{len(tags)} bytes exceed {FIELD_BYTES_MAX} - at `$.tags`"
    ignored = decode(NOTE, b'{"ignored":%b,"tags":["b"]}' % tags)
    assert ignored.tags == ["b"]


def many(item: bytes, size: int) -> bytes:
    return b"[" + (item + b",") * (size // (len(item) + 1)) + item + b"]"


@pytest.mark.parametrize("size", [20 << 10, 600 << 10, 3 << 20], ids=["20K", "600K", "3M"])
@pytest.mark.parametrize(
    ("parse", "path"),
    [
        (lambda wide: parse_diff("t", b'{"match":%b}' % wide, LIMITS), "$.match"),
        (lambda wide: parse_delete("t", b'{"match":%b}' % wide, LIMITS), "$.match"),
        (
            lambda wide: parse_put_router(
                "r", b'{"source":"a","dest":"b","filter":%b}' % wide, LIMITS
            ),
            "$.filter",
        ),
        (
            lambda wide: parse_watch(
                b'{"topics":{"a":{}},"match":%b}' % wide, LIMITS, wid="w", lenient=False
            ),
            "$.match",
        ),
    ],
    ids=["diff", "delete", "router", "watch"],
)
def test_a_pattern_is_as_long_as_a_tag_may_be(
    parse: Callable[[bytes], object], path: str, size: int
) -> None:
    """Whatever is in its place, its text is bounded before any object is made of it. (§5, §6)"""
    refused = refusal(parse, many(b"{}", size))

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert "bytes exceed" in refused.message
    assert path in refused.message


def test_a_longer_tag_has_a_longer_pattern() -> None:
    """The bound follows the limit of tags, however they are escaped. (§2)"""
    limits = Limits(max_tag_bytes=50_000)
    body = b'{"match":"%b"}' % (b"\\u0041" * 50_000)

    asked = parse_diff("t", body, limits)

    assert asked.match is not None
    assert asked.match.lower == b"A" * 50_000
    assert status_of(parse_diff, "t", body, LIMITS) == 400


@pytest.mark.parametrize("size", [1 << 10, 300 << 10, 3 << 20], ids=["1K", "300K", "3M"])
def test_too_many_seqs_are_a_batch_too_large(size: int) -> None:
    """However many they are. (§10.4)"""
    limits = Limits(max_claim=100)

    refused = refusal(parse_ack, "t", b'{"node":"n","seqs":%b}' % many(b"12", size), limits)

    assert (refused.code, refused.detail) == (ErrorCode.BATCH_TOO_LARGE, {"limit": 100})


def test_large_batches_are_counted_apart() -> None:
    """Two that are decoded at the same time do not count each other's records. (§2)"""
    limits = Limits(max_batch_records=10_000)
    body = b'{"records":[' + b'{"data":"%b"},' % (b"x" * 50) * 9999 + b'{"data":1}]}'
    counts: list[int] = []
    refused: list[Rejection] = []

    def decode_some() -> None:
        for _ in range(25):
            try:
                command = parse_append("t", body, limits, return_seqs=False, header_key=None)
                counts.append(len(command.datas))
            except Rejection as error:
                refused.append(error)

    threads = [threading.Thread(target=decode_some) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert refused == []
    assert counts == [10_000] * 75


def test_a_body_that_is_nested_without_end_is_refused() -> None:
    """400, as any text that is no body; the stack of the process is not used up. (§0.5)"""
    anything = msgspec.json.Decoder(object)

    refused = refusal(decode, anything, b"[" * 100_000)

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert refused.message == "the body is nested more than 1000 levels deep (byte 1003)"


def test_a_body_beyond_what_can_be_followed_may_have_no_place() -> None:
    """As where its brackets do not match before it is too deep for its decoder. (§0.5)"""
    error = RecursionError()

    assert too_deep(error, b"]" + b"[" * 2000) == "nested more than 1000 levels deep"
    assert too_deep(error, b"[1]") == "nested more than 1000 levels deep"
