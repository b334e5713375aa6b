"""Lines that a client cannot forge and a flood cannot multiply."""

import io
import logging
import sys

import orjson
import pytest

from topics.server.process.logs import (
    BURST,
    KINDS_MAX,
    WINDOW_S,
    JsonFormat,
    RateLimit,
    TextFormat,
)


def record(message: str, *args: object, failure: BaseException | None = None) -> logging.LogRecord:
    info = None if failure is None else (type(failure), failure, failure.__traceback__)
    return logging.LogRecord("topics", logging.INFO, "f.py", 1, message, args, info)


def raised(message: str) -> BaseException:
    try:
        raise ValueError(message)
    except ValueError as failure:
        return failure


@pytest.mark.parametrize("code", [0, 7, 8, 10, 13, 27, 0x7F, 0x85, 0x9B, 0x2028, 0x202E, 0x2066])
@pytest.mark.parametrize("form", [TextFormat(), JsonFormat()])
def test_no_control_character_reaches_the_log(form: logging.Formatter, code: int) -> None:
    """Neither a line break nor a terminal's escape sequence, nor what turns the order of letters."""
    failure = raised(f"a{chr(code)}b")
    text = form.format(record("name %s", f"a{chr(code)}b", failure=failure))

    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.split("\n")) == (1 if isinstance(form, JsonFormat) else len(text.split("  | ")))


@pytest.mark.parametrize("form", [TextFormat(), JsonFormat()])
def test_a_record_is_one_line(form: logging.Formatter) -> None:
    """Also if its message has line breaks and lone surrogates."""
    text = form.format(record("name %s", "x\r\n00:00:00 error fake\ud800"))

    assert len(text.splitlines()) == 1


def test_a_traceback_cannot_pass_for_a_record() -> None:
    """Each of its lines is marked in text; in JSON it is one field."""
    failure = raised("x\n00:00:00 error fake")

    text = TextFormat().format(record("failed", failure=failure)).splitlines()
    entry = orjson.loads(JsonFormat().format(record("failed", failure=failure)))

    assert all(line.startswith("  | ") for line in text[1:])
    assert entry["message"] == "failed"
    assert "fake" in entry["traceback"]


def test_a_kind_of_line_is_bounded_and_the_rest_counted() -> None:
    """A kind is a message without its arguments; the next line has the count."""
    now_s = [0.0]
    limit = RateLimit(lambda: now_s[0])

    passed = [limit.filter(record("client %d is odd", i)) for i in range(BURST + 30)]
    other = limit.filter(record("another"))
    now_s[0] = WINDOW_S
    late = record("client %d is odd", 99)
    assert limit.filter(late)

    assert passed.count(True) == BURST
    assert other
    assert late.getMessage() == "client 99 is odd (and 30 more like it since)"


def test_a_flood_of_kinds_holds_no_memory() -> None:
    """Beyond a limit all kinds are forgotten."""
    limit = RateLimit(lambda: 0.0)

    assert all(limit.filter(record(f"kind {i}")) for i in range(3 * KINDS_MAX))
    assert len(limit._kinds) <= KINDS_MAX


def test_configure_replaces_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """One handler, also after an earlier configuration."""
    from topics.server.process.logs import configure

    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [*root.handlers])
    monkeypatch.setattr(root, "level", root.level)
    out = io.StringIO()
    configure("json", sys.stderr)
    configure("json", out)

    logging.getLogger("topics").info("hello %s", "you")

    assert orjson.loads(out.getvalue())["message"] == "hello you"
