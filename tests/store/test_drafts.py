"""The parts of a run that is to be written; what they hold is tried out by test_segment and test_packed_runs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from topics.protocol.model.records import COLUMN_DTYPES, PACKED, TEXT
from topics.store.drafts import Shape
from topics.store.layout import BLOCK, OLD_COLUMNS

SIZES = st.integers(0, 70_000)


@settings(deadline=None)
@given(
    st.builds(
        Shape,
        *[SIZES] * 7,
        form=st.sampled_from((TEXT, PACKED)),
        columns=st.sampled_from((OLD_COLUMNS, len(COLUMN_DTYPES))),
        batches=SIZES,
    )
)
def test_parts_of_a_section_lie_apart_and_aligned(shape: Shape) -> None:
    """The parts of a section are in order, aligned to 8 bytes, and do not overlap."""
    parts = shape.parts()
    end = 0
    for name, (at, dtype, items) in parts.items():
        assert at % 8 == 0, name
        assert end <= at < end + 8, name
        end = at + items * dtype.itemsize

    assert shape.section_bytes == parts["end"][0]
    assert 0 <= shape.blocks * BLOCK - shape.text_bytes < BLOCK
