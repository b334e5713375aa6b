"""How deep JSON is followed, however little the callers have left of the stack."""

import sys
import threading
from typing import Any

import msgspec
import pytest

from topics.nesting import DEPTH_MAX, deep, depth_of

decode = deep(msgspec.json.Decoder().decode)


def text(levels: int) -> bytes:
    return b'[{"a":' * (levels // 2) + b"1" + b"}]" * (levels // 2)


def depth(value: Any) -> int:
    levels = 0
    while value != 1:
        value = value[0] if isinstance(value, list) else value["a"]
        levels += 1
    return levels


def beneath(frames: int, body: bytes) -> Any:
    """Decode a text in so many calls."""
    return beneath(frames - 1, body) if frames else decode(body)


@pytest.mark.parametrize("frames", [0, 400, 800])
def test_a_thousand_levels_are_followed(frames: int) -> None:
    """With what an answer has around them; and the interpreter's limit is what it was."""
    before = sys.getrecursionlimit()

    assert depth(beneath(frames, text(DEPTH_MAX + 4))) == DEPTH_MAX + 4
    assert sys.getrecursionlimit() == before


def test_what_has_no_end_is_refused() -> None:
    before = sys.getrecursionlimit()
    with pytest.raises(RecursionError):
        decode(text(200_000))
    assert sys.getrecursionlimit() == before


def test_threads_do_not_take_the_room_of_each_other() -> None:
    """Each has the levels, and the limit is what it was when the last is done."""
    before = sys.getrecursionlimit()
    depths: list[int] = []

    def work() -> None:
        depths.extend(depth(beneath(500, text(DEPTH_MAX))) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert depths == [DEPTH_MAX] * 80
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    ("body", "levels"),
    [
        (b"1", 0),
        (b'"[[["', 0),
        (b"[]", 1),
        (b'[{"a":[]},[[1]]]', 3),
        (rb'["\"[[",["\\"]]', 2),
        (rb'{"\\\"{":{"[":"\\"}}', 2),
        (text(600), 600),
    ],
)
def test_levels_are_counted_outside_of_texts(body: bytes, levels: int) -> None:
    assert depth_of(body) == levels
    assert max(depth_of(body, 5), 5) == max(levels, 5)
