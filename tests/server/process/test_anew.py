"""Data that cannot be opened anew: what is tried again, and how soon."""

import errno

import pytest

from topics.protocol.model.errors import Corrupt, Unusable
from topics.server.access.keys import BadKeys
from topics.server.process.anew import PAUSES_S, Pauses, passes


def test_the_first_attempt_is_made_at_once_and_later_ones_less_often() -> None:
    pauses = Pauses()

    found = [pauses.next_s() for _ in range(6)]

    assert found == [*PAUSES_S, PAUSES_S[-1], PAUSES_S[-1]]
    assert found[0] == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_without_space_is_waited_for(number: int) -> None:
    """Whatever was made of the system's error; a disk that broke is the end of the process."""
    failure = Unusable("/data", "no space")
    failure.__cause__ = OSError(number, "")

    assert passes(failure) is (number != errno.EIO)


def test_keys_that_are_being_written_are_waited_for_and_damage_is_not() -> None:
    assert passes(BadKeys("no scope"))
    assert not passes(Corrupt("/data/1.wal", 0, "the digest"))
