"""Options of jobs as columns (117, 130-133)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.model.job_options import (
    JobOptions,
    JobRequest,
    Unique,
    decoded_options,
    encoded_options,
    resolved_options,
)

NOW = 1_750_000_000_000
requests = st.builds(
    JobRequest,
    delay_ms=st.sampled_from([0, 5]),
    priority=st.integers(-128, 127),
    expires_ms=st.sampled_from([0, 7]),
    group=st.sampled_from([None, "a", "bé"]),
    unique=st.sampled_from([None, Unique(b"k" * 16), Unique(b"l" * 16, True, 9)]),
)


@given(st.lists(st.none() | requests, min_size=1, max_size=9), st.integers(1, 2**40))
def test_a_column_says_what_was_asked(asked: list[JobRequest | None], first_seq: int) -> None:
    """Resolved at one moment, and the same after the log, or a segment, had it."""
    found = resolved_options(asked, NOW)
    with_some = [at for at, each in enumerate(asked) if each not in (None, JobRequest())]
    if found is None:
        assert not with_some
        return
    decoded = decoded_options(
        msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=JobOptions), first_seq
    )
    assert len(found) == len(with_some)
    for nth, at in enumerate(with_some):
        request, row = asked[at], decoded.rows[nth]
        assert request is not None
        ready_ms = NOW + request.delay_ms
        assert (row["seq"], row["priority"]) == (first_seq + at, request.priority)
        assert row["ready_ms"] == (ready_ms if request.delay_ms else 0)
        assert row["expires_ms"] == (ready_ms + request.expires_ms if request.expires_ms else 0)
        group = decoded.groups[row["group"] - 1] if row["group"] else None
        assert group == request.group
        has_key = decoded.digests is not None and decoded.digests[nth].any()
        assert has_key == (request.unique is not None)
        if request.unique is not None and decoded.digests is not None:
            assert decoded.digests[nth].tobytes() == request.unique.digest
            assert row["hold_ms"] == (NOW + request.unique.for_ms if request.unique.for_ms else 0)
    again = encoded_options(decoded.rows, first_seq, decoded.groups, decoded.digests)
    assert again == found


def test_a_time_that_is_past_is_no_delay() -> None:
    """The job may be claimed at once, and is in time from now on. (132)"""
    found = resolved_options([JobRequest(not_before=NOW - 1, expires_ms=5)], NOW)
    assert found is not None
    [row] = decoded_options(found, 1).rows
    assert (row["ready_ms"], row["expires_ms"]) == (0, NOW + 5)
