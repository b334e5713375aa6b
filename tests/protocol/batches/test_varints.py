"""Numbers as varints, beside another way to write them."""

import pytest

from topics.protocol.batches.varints import sizes_of, varint_of, zigzag_of

from . import builder


@pytest.mark.parametrize(
    "number", [0, 1, 63, 64, 8191, 8192, 1 << 40, -1, -64, -65, -(1 << 63), (1 << 63) - 1]
)
def test_a_signed_number_is_a_varint(number: int) -> None:
    assert zigzag_of(number) == builder.zigzag(number)


@pytest.mark.parametrize("numbers", [[0, 1, 8191], [5, 8192, 1 << 31], []])
def test_sizes_are_signed_numbers(numbers: list[int]) -> None:
    """Many at once, small ones and large ones."""
    assert sizes_of(numbers) == [builder.zigzag(number) for number in numbers]


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        ((1 << 14) - 1, b"\xff\x7f"),
        (1 << 14, b"\x80\x80\x01"),
        ((1 << 32) - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_number_that_is_not_negative_is_a_varint(number: int, written: bytes) -> None:
    assert varint_of(number) == written
