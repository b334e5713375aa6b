"""Pages that many readers ask for: when their text is kept, found, and let go (§3)."""

from typing import Any, Final

import pytest

from protocol.harness import Harness, shown, tagged, text_of
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.model.commands import Diff
from topics.protocol.model.outcomes import Page
from topics.protocol.state.recent_pages import ONCE_MAX, RecentPages

PLAIN: Final = b'{"from_seq":0,"limit":40}'
HEAD: Final = 100


@pytest.fixture
def engine() -> Harness:
    made = Harness()
    made.append(*[tagged(f"t.{n}", n) for n in range(1, HEAD + 1)])
    return made


def asked(body: bytes = PLAIN) -> Diff:
    return parse_diff("t", body, Harness().limits)


def read(engine: Harness, body: bytes = PLAIN) -> tuple[bool, Any]:
    """(whether the text was there already, the page); the text is left for others."""
    found = engine.ask(asked(body))
    assert isinstance(found, Page)
    text = found.records.text
    was_there = text is not None and text.text is not None
    text_of(found)
    return was_there, shown(found)


def reads(engine: Harness, times: int, body: bytes = PLAIN) -> list[bool]:
    return [read(engine, body)[0] for _ in range(times)]


def recent(engine: Harness) -> RecentPages:
    return engine.engine.reads.recent


def test_a_page_is_kept_when_it_is_read_a_second_time(engine: Harness) -> None:
    """A reader that goes through a topic once keeps nothing."""
    assert reads(engine, 1) == [False]
    assert recent(engine).held_bytes == 0

    assert reads(engine, 3) == [False, True, True]
    assert recent(engine).held_bytes > 0


def test_a_full_page_holds_while_others_append(engine: Harness) -> None:
    """And what it says of the head is what is true now."""
    reads(engine, 2)

    engine.append(1)
    was_there, page = read(engine)

    assert was_there
    assert [r["$seq"] for r in page["records"]] == [*range(1, 41)]
    assert (page["head_seq"], page["lag"], page["caught_up"]) == (101, 61, False)


def test_a_page_that_ended_at_the_head_goes_with_it(engine: Harness) -> None:
    """There is more to show."""
    body = b'{"from_seq":50}'
    assert reads(engine, 3, body) == [False, False, True]

    engine.append(1)
    was_there, page = read(engine, body)

    assert not was_there
    assert [r["$seq"] for r in page["records"]] == [*range(51, 102)]


def remove(engine: Harness, how: str) -> None:
    match how:
        case "delete":
            engine.delete(match="t.2")
        case "purge":
            engine.purge(keep=90)
        case "cap":
            engine.put(cap_records=90)
        case "expiry":
            engine.now_ms += 1001
        case "another instance":
            engine.drop()
            engine.append(*range(100))


@pytest.mark.parametrize("how", ["delete", "purge", "cap", "expiry", "another instance"])
def test_whatever_takes_a_record_takes_the_page(engine: Harness, how: str) -> None:
    """The next reader has what there is now. (§5)"""
    engine.put(ttl_ms=1000)
    reads(engine, 2)
    before = read(engine)[1]

    remove(engine, how)
    was_there, page = read(engine)

    assert not was_there
    assert page["records"] != before["records"] or page["epoch"] != before["epoch"]


def test_texts_of_removed_records_are_let_go(engine: Harness) -> None:
    """At once, and not when the next reader asks."""
    reads(engine, 2)
    assert recent(engine).held_bytes

    engine.delete(match="t.90")

    assert recent(engine).held_bytes == 0


@pytest.mark.parametrize(
    "body",
    [
        b'{"node":"n"}',
        b'{"match":"t.*"}',
        b'{"from_ts":0}',
        b'{"from_seq":999}',
        b'{"epoch":"other"}',
        b'{"from_seq":90}',
        b'{"limit":5}',
    ],
)
def test_what_is_the_readers_own_is_not_kept(engine: Harness, body: bytes) -> None:
    """Filters, times, losses, and pages of few records."""
    assert reads(engine, 4, body) == [False] * 4
    assert recent(engine).held_bytes == 0


def test_a_page_with_a_tombstone_is_not_kept() -> None:
    """A loss is told to each reader as it is. (§3.3)"""
    engine = Harness()
    engine.put(cap_records=50)
    engine.append(*range(60))

    assert reads(engine, 3) == [False] * 3


def test_what_is_kept_is_bounded(engine: Harness) -> None:
    """In bytes, the page that was not asked for longest goes first; and in pages that are remembered."""
    pages = [b'{"from_seq":%d,"limit":40}' % n for n in range(5)]
    reads(engine, 2, pages[4])
    size = recent(engine).held_bytes
    engine.engine.reads.recent = RecentPages(2 * size)

    for body in pages[:3]:
        reads(engine, 2, body)

    assert recent(engine).held_bytes <= 2 * size
    assert not read(engine, pages[0])[0]
    assert read(engine, pages[2])[0]
    for n in range(3 * ONCE_MAX):
        engine.ask(asked(b'{"from_seq":0,"max_batch_bytes":%d}' % (100_000 + n)))
    assert len(recent(engine)._once) + len(recent(engine)._once_before) <= 2 * ONCE_MAX


def test_a_text_beyond_the_bound_is_not_kept(engine: Harness) -> None:
    """Nor does it push out the others."""
    engine.engine.reads.recent = RecentPages(100)

    assert reads(engine, 3) == [False] * 3
    assert recent(engine).held_bytes == 0
