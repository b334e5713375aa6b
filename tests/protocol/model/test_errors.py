"""Faults: what a refusal carries, and which fault of the disk is which (§0.5, §0.6)."""

import errno

import pytest

from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import (
    TRY_AGAIN,
    Corrupt,
    DamagedRun,
    ErrorCode,
    InUse,
    Rejection,
    StoreError,
    Unusable,
    WriteFailed,
    lacks_space,
)
from topics.protocol.model.limits import throttled


@pytest.mark.parametrize("code", ErrorCode)
def test_a_refusal_that_passes_by_itself_says_when_to_ask_again(code: ErrorCode) -> None:
    """Every 429 and 503 carries `Retry-After`, and nothing else does unasked. (§0.6)"""
    plain = Rejection(code, "no")
    assert plain.retry_after_s == (1 if STATUSES[code] in (429, 503) else None)
    assert (code in TRY_AGAIN) == (STATUSES[code] in (429, 503))
    assert Rejection(code, "no", retry_after_s=7).retry_after_s == 7


def test_a_reached_limit_is_named_with_its_bound() -> None:
    """429 with `detail.limit` and `detail.max`. (§11)"""
    refused = throttled("max_topics", 3)
    assert STATUSES[refused.code] == 429
    assert refused.detail == {"limit": "max_topics", "max": 3}
    assert "max_topics of 3" in refused.message


def test_a_damaged_run_tells_a_reader_how_to_go_around_it() -> None:
    """500 with the seqs between which the damage lies; the path is for the log alone. (§0.6)"""
    damage = DamagedRun(Corrupt("0000000001.seg", 4096, "checksum"), 10, 19)
    assert "0000000001.seg: corrupt at byte 4096: checksum" in str(damage)

    refused = damage.refusal()
    assert STATUSES[refused.code] == 500
    assert refused.detail == {"reason": "corrupt", "first_seq": 10, "last_seq": 19}
    assert "0000000001.seg" not in refused.message


def test_faults_of_the_disk_are_told_apart() -> None:
    """Damage is never taken for a directory that is in use, nor for a failed write: each ends the
    process, or does not, in its own way."""
    corrupt, in_use, failed = Corrupt("f", 0, "x"), InUse("d"), WriteFailed("f", "x")
    for fault in (corrupt, in_use, failed):
        assert isinstance(fault, StoreError)
        assert len(str(fault).splitlines()) == 1
    assert isinstance(in_use, Unusable)
    assert not isinstance(in_use, Corrupt)
    assert not isinstance(corrupt, Unusable)
    assert not isinstance(failed, Unusable | Corrupt)


def test_want_of_space_is_found_behind_what_was_made_of_it() -> None:
    """Whatever the store says of it, the system's error is the cause."""
    failure = WriteFailed("/data", "read-only")
    assert not lacks_space(failure)
    assert not lacks_space(None)

    failure.__cause__ = OSError(errno.EDQUOT, "quota")

    assert lacks_space(failure)
    failure.__cause__ = failure
    assert not lacks_space(failure), "an error that is raised from itself has no other cause"
