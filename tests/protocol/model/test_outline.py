"""Where a large JSON text may be cut (§2)."""

import random
from collections.abc import Iterator

import pytest

from topics.protocol.model import outline
from topics.protocol.model.outline import (
    Outline,
    TooDeep,
    Unbalanced,
    closed,
    is_too_deep,
    opened,
    place_too_deep,
)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "STEP_BYTES", 16)


def looked_over(text: bytes, begin: int = 0, stack: bytes = b"") -> Outline:
    made = Outline(text, begin, stack)
    while not made.is_done:
        made.step()
    return made


def commas_of(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Every comma outside of strings, and the brackets that are open there, byte by byte."""
    stack, in_string, escaped = b"", False, False
    for place, byte in enumerate(text):
        character = b"%c" % byte
        if escaped:
            escaped = False
        elif character == b"\\":
            escaped = True
        elif character == b'"':
            in_string = not in_string
        elif in_string:
            pass
        elif character in b"[{":
            stack += character
        elif character in b"]}":
            stack = stack[:-1]
        elif character == b",":
            yield place, stack


def texts() -> Iterator[bytes]:
    draw = random.Random(17)
    tokens = [b"[", b"{", b"]", b"}", b",", b'""', b'"\\\\"', b'"\\"["', b'",]"', b"1" * 20, b" "]
    for _ in range(300):
        depth, text = 0, b""
        for token in draw.choices(tokens, k=80):
            depth += (token in b"[{") - (token in b"]}")
            if depth < 0:
                depth = 0
                continue
            text += token
        yield text


def test_each_cut_is_a_comma_and_its_brackets_are_open() -> None:
    """Wherever strings, escapes and brackets are cut by the ends of steps."""
    for text in texts():
        commas = dict(commas_of(text))
        made = looked_over(text)

        assert {place: commas.get(place) for place in made.cuts} == dict(
            zip(made.cuts, made.stacks, strict=True)
        )
        for depth in (1, 2, 3):
            assert {len(commas.get(place, b"")) for place in made.commas[depth]} <= {depth}
            assert made.commas[depth] == sorted(set(made.commas[depth]))


def test_between_two_commas_lies_one_element_or_less_than_a_step() -> None:
    """Every comma that is not noted has noted ones of its depth on both sides, within its step."""
    for text in texts():
        made = looked_over(text)
        for place, stack in commas_of(text):
            if 1 <= len(stack) <= 3:
                step = [each for each in made.commas[len(stack)] if each // 16 == place // 16]
                assert min(step) <= place <= max(step)


def test_commas_of_what_is_open_are_counted() -> None:
    """Commas of an array or object that was closed are forgotten."""
    made = looked_over(b'{"a":[1,2,3,4,5,6,7,8,9,10,11,12],"b":[1,2,3,[4,4,4],')

    assert made.counts == [0, 1, 4, 0]
    assert made.is_open
    assert looked_over(b"[1,[2,3,4]]" + b" " * 16).counts == [0, 0, 0, 0]


def test_a_text_is_looked_over_from_within() -> None:
    """With the brackets that are open there; a string that does not end is open, too."""
    made = looked_over(b'??"x":1},{"x":2}]}', 2, b"{[{")

    assert (made.commas[2], made.is_open, made.looked_at) == ([8], False, 18)
    assert looked_over(b'"abc').is_open
    assert looked_over(b'"' + b"a" * 40).is_open


@pytest.mark.parametrize(
    ("text", "wrong"), [(b"[1]]", Unbalanced), (b"[" * 1004, TooDeep)], ids=["closed", "deep"]
)
def test_what_no_decoder_would_take_is_refused(text: bytes, wrong: type[Exception]) -> None:
    """More brackets are closed than opened, or too many are open."""
    with pytest.raises(wrong):
        looked_over(text)


def test_a_piece_is_whole_between_the_brackets_that_are_open() -> None:
    """It begins with its comma, behind a value that stands for what came before."""
    assert opened(b"") == closed(b"") == b""
    assert opened(b"[{[") + b",1" + closed(b"[{[") == b'[{"":[0,1]}]'
    assert opened(b"[{") + b',"a":1' + closed(b"[{") == b'[{"":0,"a":1}]'


def deep(levels: int) -> bytes:
    """A value with so many levels, and brackets in a text."""
    return b'["[[\\"[",' + b'{"a":' * (levels - 1) + b"1" + b"}" * (levels - 1) + b"]"


def test_a_value_has_at_most_a_thousand_levels() -> None:
    """One more is too deep; brackets in texts, and arrays side by side, are no levels. (§0.3)"""
    assert not is_too_deep(deep(1000))
    assert is_too_deep(deep(1001))
    assert not is_too_deep(b"[" + b"[1]," * 5000 + b"1]")
    assert not is_too_deep(b'"' + b"[" * 5000 + b'"')
    assert not is_too_deep(b"[" * 1001)  # too short to be a value


def test_the_place_of_the_first_bracket_too_many() -> None:
    assert place_too_deep(b"[" * 2000) == 1003
    assert place_too_deep(b"[ [" * 2000, 2) == 3
    assert place_too_deep(b"[1]") is None
    assert place_too_deep(b"]" + b"[" * 2000) is None
