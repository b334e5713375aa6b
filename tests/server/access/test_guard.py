"""Who comes in: the order of refusals, where a token may stand, and other keys (§0.2, §0.6)."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from protocol.harness import refusal

from topics.protocol.faces.http.routes import find_route
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.access.guard import Guard, credentials
from topics.server.access.keys import BadKeys, Entry, source_of
from topics.server.http.interface import Head

ADDRESS = "192.0.2.9"


def guard(text: str = "full,reader:read,inner::in.", **options: bool) -> Guard:
    source = source_of(text, None)
    assert source is not None
    return Guard(source, **options)


def asked(
    known: Guard, method: str, target: str, authorization: str | None = "Bearer full"
) -> tuple[str, str, Caller]:
    path, _, query = target.encode().partition(b"?")
    headers = {} if authorization is None else {b"authorization": authorization.encode("latin-1")}
    head = Head(method, path, query, list(headers.items()), ADDRESS)
    try:
        route, name = find_route(method, path)
    except Rejection:
        known.require_key(head)
        raise
    return route.line, name, known.admit(route, name, head)


@pytest.mark.parametrize(
    "value", ["Bearer full", "bearer full", "BEARER  full ", " Bearer full", "bEaReR full"]
)
def test_a_key_is_a_bearer_token(value: str) -> None:
    """The scheme has no case. (§0.2)"""
    line, name, caller = asked(guard(), "GET", "/v0/topics/a%62", value)

    assert (line, name) == ("GET /v0/topics/:", "ab")
    assert caller.is_key


@pytest.mark.parametrize(
    "value",
    [None, "", "Bearer", "Bearer ", "full", "Basic full", "Bearerfull", "Bearer\tfull", "Bearer Full",
     "Bearer ful", "Bearer full,", "Bearer full, Bearer full", "Bearer full full", "Bearer \xff",
     'Bearer "full"'],
)  # fmt: skip
def test_anything_else_is_401(value: str | None) -> None:
    """In the same words, before anything is said about the path. (§0.2)"""
    told = {
        refusal(asked, guard(), method, target, value).message
        for method, target in (("GET", "/v0/topics"), ("GET", "/nothing"), ("BREW", "/v0/topics"))
    }

    assert len(told) == 1
    assert refusal(asked, guard(), "GET", "/v0/topics", value).code is ErrorCode.UNAUTHORIZED


def test_the_order_of_refusals() -> None:
    """401, 404, 405, 403 for a scope, 403 for a name. (§0.6)"""
    known = guard()

    assert refusal(asked, known, "GET", "/no", "Bearer x").code is ErrorCode.UNAUTHORIZED
    assert refusal(asked, known, "GET", "/no", "Bearer reader").code is ErrorCode.NOT_FOUND
    found = refusal(asked, known, "BREW", "/v0/topics/out", "Bearer inner")
    assert found.code is ErrorCode.METHOD_NOT_ALLOWED
    assert refusal(asked, known, "PUT", "/v0/topics/in.a", "Bearer reader").detail == {
        "scopes": ["admin"]
    }
    assert refusal(asked, known, "PUT", "/v0/topics/out", "Bearer inner").detail is None


@pytest.mark.parametrize(
    ("target", "is_key"),
    [
        ("/v0/watch/w?token=full", True),
        ("/v0/topics/q/work?node=n&token=full", True),
        ("/v0/topics/q/work?token=%66ull&token=x", True),
        ("/v0/watch/w?token=x&token=full", False),
        ("/v0/watch/w?token=", False),
        ("/v0/watch/w?Token=full", False),
        ("/v0/watch/w?" + "&".join(["token=full"] + ["x=1"] * 2000), False),
        ("/v0/topics?token=full", False),
        ("/v0/ws?token=full", False),
        ("/v0/metrics?token=full", False),
    ],
)
def test_a_token_in_the_address(target: str, is_key: bool) -> None:
    """For the two event streams only; the first of two counts. (§7.1)"""
    if is_key:
        assert asked(guard(), "GET", target, None)[2].is_key
    else:
        assert refusal(asked, guard(), "GET", target, None).code is ErrorCode.UNAUTHORIZED


def test_the_header_counts_where_both_are_there() -> None:
    """A wrong one is not mended by the address. (§7.1)"""
    refused = refusal(asked, guard(), "GET", "/v0/watch/w?token=full", "Bearer x")
    assert refused.code is ErrorCode.UNAUTHORIZED
    assert asked(guard(), "GET", "/v0/watch/w?token=x", "Bearer full")[2].is_key


def test_two_keys_are_none() -> None:
    """Several lines are one list, which no key is. (§0.2, RFC 9110 §5.3)"""
    assert credentials([(b"x", b"1")]) is None
    assert (
        credentials([(b"authorization", b"a"), (b"x", b"1"), (b"authorization", b"b")]) == b"a, b"
    )


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v0/health", "/v0/ready"])
def test_probes_ask_for_a_key_if_they_are_told_to(path: str) -> None:
    """Any key will do. (§8)"""
    assert asked(guard(), "GET", path, "Bearer x")[2] is ANYONE
    closed = guard(asks_at_probes=True)
    assert refusal(asked, closed, "GET", path, None).code is ErrorCode.UNAUTHORIZED
    assert asked(closed, "GET", path, "Bearer reader")[2].is_key


@pytest.mark.parametrize("path", ["/", "/v0/openapi.json", "/v0/docs"])
def test_what_holds_no_data_is_open(path: str) -> None:
    """Whatever key is sent along. (§0.2)"""
    assert asked(guard(asks_at_probes=True), "GET", path, "Bearer x")[2] is ANYONE


def test_wrong_keys_are_counted() -> None:
    """No key guesses nothing. (§12)"""
    known = guard()
    for value in ("Bearer x", "Basic full", None, "Bearer full"):
        with suppress(Rejection):
            asked(known, "GET", "/v0/topics", value)

    assert known.failures.of(ADDRESS) == known.failures.total == 2


# Other keys.


def reloaded(known: Guard) -> list[Caller]:
    """Read again; the callers whose keys are gone."""
    gone: list[Caller] = []

    async def in_thread(call: Callable[[], list[Entry]]) -> list[Entry]:
        await asyncio.sleep(0)
        return call()

    asyncio.run(known.reload(in_thread, gone.append))
    return gone


def test_a_file_is_read_again(tmp_path: Path) -> None:
    """What is in the environment stays; a key that is gone is told of. (§0.2)"""
    file = tmp_path / "keys"
    file.write_text("a\nb\n")
    source = source_of("env", file)
    assert source is not None
    known = Guard(source)
    gone = known.keys.find(b"a")
    file.write_text("b\nc\n")

    assert reloaded(known) == [gone]
    assert [known.keys.find(token) is not None for token in (b"env", b"a", b"b", b"c")] == [
        True, False, True, True
    ]  # fmt: skip


def test_a_fault_of_one_key_keeps_no_other_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What each key that is gone has open is ended, whatever came of the one before. (§0.2)"""
    file = tmp_path / "keys"
    file.write_text("a\nb\nc\n")
    source = source_of(None, file)
    assert source is not None
    known = Guard(source)
    gone: list[Caller] = []

    def revoke(caller: Caller) -> None:
        gone.append(caller)
        raise RuntimeError("of a test")

    async def in_thread(call: Callable[[], list[Entry]]) -> list[Entry]:
        return call()

    callers = [known.keys.find(token) for token in (b"a", b"b")]
    file.write_text("c\n")
    asyncio.run(known.reload(in_thread, revoke))

    assert sorted(map(id, gone)) == sorted(map(id, callers))
    assert caplog.text.count("RuntimeError: of a test") == 2


@pytest.mark.parametrize("text", ["", "a:bogus\n", "a\na\n", "env\n"])
def test_a_bad_file_leaves_the_keys_in_force(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A slip of the editor locks nobody out, and lets nobody in. (§0.2)"""
    file = tmp_path / "keys"
    file.write_text("a\n")
    source = source_of("env", file)
    assert source is not None
    known = Guard(source)
    file.write_text(text)

    assert reloaded(known) == []
    assert known.keys.find(b"a") is not None
    assert "the keys in force stay" in caplog.text


def test_a_server_does_not_start_with_a_bad_file(tmp_path: Path) -> None:
    """Fail closed. (§0.2)"""
    source = source_of(None, tmp_path / "none")
    assert source is not None

    with pytest.raises(BadKeys):
        Guard(source)


def test_without_a_file_there_is_nothing_to_read(caplog: pytest.LogCaptureFixture) -> None:
    """The environment of a process does not change. (§12)"""
    caplog.set_level("INFO", "topics.access")

    assert reloaded(guard()) == []
    assert "no keys file" in caplog.text
