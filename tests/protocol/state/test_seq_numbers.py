"""Numbers by seq, held against a dict."""

import random

import numpy as np
import pytest

from topics.protocol.state import seq_numbers
from topics.protocol.state.seq_numbers import SeqNumbers


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seq_numbers, "BITS", 7)
    monkeypatch.setattr(seq_numbers, "_MASK", 127)


def test_every_operation_does_what_a_dict_does() -> None:
    """One by one, many at once, and spans that end anywhere."""
    dice, numbers, wanted = random.Random(7), SeqNumbers(), dict[int, int]()
    end = 1
    for _ in range(400):
        count = dice.choice((1, 3, 200))
        seqs = np.array(sorted(dice.sample(range(end, end + 2 * count), count)))
        end = int(seqs[-1]) + 1
        given = np.array([dice.randint(1, 99) for _ in range(count)], np.uint32)
        numbers.put(seqs, given)
        wanted |= dict(zip(seqs.tolist(), given.tolist(), strict=True))
        for seq in dice.sample(range(1, end + 300), 5):
            assert numbers.get(seq) == wanted.get(seq, 0)
            assert numbers.pop(seq) == wanted.pop(seq, 0)
        known = dice.choice([*wanted, end])
        numbers.set(known, 5)
        wanted[known] = 5
        numbers.change(known, 6)
        wanted[known] = 6
        end = max(end, known + 1)
        cuts = sorted(dice.sample(range(1, end + 300), 4))
        spans = np.array([[cuts[0], cuts[1] - 1], [cuts[2], cuts[3]]])
        gone = [s for lo, hi in spans.tolist() for s in range(lo, hi + 1) if s in wanted]
        popped = [each for part in numbers.pop_spans(spans) for each in part.tolist()]
        assert sorted(popped) == sorted(wanted.pop(seq) for seq in gone)
    assert all(numbers.get(seq) == number for seq, number in wanted.items())


def test_a_chunk_goes_with_its_last_seq() -> None:
    """But for the newest, which the next seqs need: that goes once there is a newer one."""
    numbers = SeqNumbers()
    numbers.put(np.arange(1, 300), np.ones(299, np.uint32))
    assert sorted(numbers._chunks) == [0, 1, 2]
    for seq in range(1, 128):
        assert numbers.pop(seq) == 1
    assert sorted(numbers._chunks) == [1, 2]
    assert [len(part) for part in numbers.pop_spans(np.array([[1, 1000]]))] == [128, 44]
    assert sorted(numbers._chunks) == [2]
    numbers.set(400, 9)
    assert sorted(numbers._chunks) == [3]
    assert (numbers.get(299), numbers.get(400), numbers.pop(5000)) == (0, 9, 0)
