"""Where the records of one append went (§2.1)."""

import pytest

from topics.protocol.model.placed import PartitionSpan, Placed, decode_placed, encode_placed


@pytest.mark.parametrize("partitions", [1, 2, 256, 257, 1000])
def test_the_seqs_of_an_append_are_in_the_order_of_its_records(partitions: int) -> None:
    """However many partitions it went to, and after it was kept."""
    records = 3 * partitions
    rows = [[*range(nth, records, partitions)] for nth in range(partitions)]
    spans = [PartitionSpan(nth, 10 * nth + 1, 3) for nth in range(partitions)]
    placed = decode_placed(encode_placed(Placed.of(spans, rows)))

    assert placed.spans[-1].last_seq == 10 * partitions - 7
    expected = [10 * (n % partitions) + 1 + n // partitions for n in range(records)]
    assert placed.seqs() == expected
