"""Answers as the pools of this package gather them."""

import gzip
import zlib
from typing import Any

import httpx
import pytest

from topics.client import answer as answers
from topics.client.answer import Answer, GatheredAnswer, StreamedAnswer, Unpacker
from topics.client.faults import Broken

TEXT = b'{"topic":"jobs"}' * 100


def test_headers_are_found_in_lower_case() -> None:
    """Whatever the server or a proxy writes; one that is repeated is joined. (RFC 9110 §5.3)"""
    given = [(b"ETag", b'"t1"'), (b"Via", b"1.1 a"), (b"VIA", b"1.1 b"), (b"X-Odd", b"\xe4")]
    answer = GatheredAnswer(200, given, b"")

    assert answer.headers == {"etag": '"t1"', "via": "1.1 a, 1.1 b", "x-odd": "\xe4"}


@pytest.mark.parametrize(
    ("status", "is_success"), [(199, 0), (200, 1), (299, 1), (300, 0), (503, 0)]
)
def test_what_is_a_success(status: int, is_success: int) -> None:
    """2xx and nothing else."""
    assert GatheredAnswer(status, [], b"").is_success is bool(is_success)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", " GZIP "])
def test_a_packed_body(coding: str) -> None:
    """The client asks for gzip where it may (§0.3); the names of it are those of RFC 9110 §8.4.1.3."""
    head = [(b"Content-Encoding", coding.encode())]

    assert GatheredAnswer(200, head, gzip.compress(TEXT)).content == TEXT


@pytest.mark.parametrize("coding", [b"identity", b"", b"br"])
def test_a_body_that_is_not_packed(coding: bytes) -> None:
    """Nor in a way that was not asked for: what cannot be read is the decoder's to say."""
    assert GatheredAnswer(200, [(b"content-encoding", coding)], TEXT).content == TEXT


def test_a_body_that_says_gzip_and_is_not() -> None:
    """It is as a broken connection, and no error of zlib."""
    with pytest.raises(Broken, match="incorrect header"):
        GatheredAnswer(200, [(b"content-encoding", b"gzip")], TEXT)


def test_a_small_body_cannot_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte that unpacks to a gigabyte is refused at the bound of a body that is not packed."""
    monkeypatch.setattr(answers, "BODY_BYTES_MAX", len(TEXT))
    head = [(b"content-encoding", b"gzip")]

    assert GatheredAnswer(200, head, gzip.compress(TEXT)).content == TEXT
    with pytest.raises(Broken, match=f"more than {len(TEXT)} bytes"):
        GatheredAnswer(200, head, gzip.compress(TEXT + b"}"))


def test_pieces_of_a_packed_body() -> None:
    """Wherever it is cut, the pieces unpack to the whole."""
    packed, unpacker = gzip.compress(TEXT), Unpacker()

    assert b"".join(unpacker.unpack(packed[at : at + 1]) for at in range(len(packed))) == TEXT


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_an_answer_of_several_members(step: int) -> None:
    """What a proxy packed in parts is their texts one behind the other, and zeros behind a member are no
    text. (RFC 1952 §2.2, §0.3)"""
    packed = (
        gzip.compress(TEXT) + bytes(9) + gzip.compress(b"") + gzip.compress(TEXT[:5]) + bytes(3)
    )
    unpacker = Unpacker()

    pieces = [unpacker.unpack(packed[at : at + step]) for at in range(0, len(packed), step)]

    assert b"".join(pieces) == TEXT + TEXT[:5]
    with pytest.raises(Broken):
        unpacker.unpack(b"no gzip")


def test_an_answer_of_httpx_is_one_as_it_stands() -> None:
    """What the rest of the client reads of an answer is a part of httpx's interface."""
    whole: Answer = httpx.Response(200, headers={"ETag": "t"}, content=b"a")
    streamed: StreamedAnswer = httpx.Response(200, content=b"ab")

    assert (whole.status_code, whole.is_success, whole.content) == (200, True, b"a")
    assert (whole.headers.get("etag"), whole.headers.get("via", "none")) == ("t", "none")
    assert b"".join(streamed.iter_bytes()) == streamed.read() == b"ab"
    assert "network_stream" not in streamed.extensions


def test_a_stream_that_a_proxy_packed() -> None:
    """It is read all the same, flush by flush, though the client asked for none. (§7.1)"""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    unpacker = Unpacker()
    told: list[Any] = []
    for event in (b"id: 1\n\n", b"id: 2\n\n"):
        told.append(unpacker.unpack(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)))

    assert told == [b"id: 1\n\n", b"id: 2\n\n"]
