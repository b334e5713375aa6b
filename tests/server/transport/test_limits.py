"""Which bounds and time-outs of the transport depend on which others."""

import msgspec
import pytest

from topics.server.transport.limits import HEAD_BYTES_MAX, Timeouts, TransportLimits

LIMITS, TIMEOUTS = TransportLimits(), Timeouts()


def test_a_body_comes_at_a_kilobyte_a_second_on_average() -> None:
    """In each window, of which the longest body has several; its first byte comes sooner."""
    assert LIMITS.window_bytes / TIMEOUTS.window_s == 1 << 10
    assert TIMEOUTS.first_s <= TIMEOUTS.window_s < TIMEOUTS.body_s


def test_a_stream_has_its_last_word_before_its_connection_is_cut() -> None:
    """A client that takes nothing is told why, if it takes that (§7.6)."""
    assert TIMEOUTS.take_s < TIMEOUTS.write_s


def test_one_client_cannot_use_up_what_all_share() -> None:
    """Of answers, and of the time of the loop."""
    assert LIMITS.answer_free_bytes < LIMITS.connection_answers_bytes < LIMITS.answers_bytes
    assert LIMITS.direct_turn_s < LIMITS.turn_s < LIMITS.slice_s
    assert LIMITS.message_bytes < LIMITS.bodies_bytes


def test_a_piece_for_the_parser_is_smaller_than_what_is_read_ahead() -> None:
    """So that a head, and much more a body, gives others their turn before it is all parsed."""
    assert LIMITS.feed_bytes < HEAD_BYTES_MAX < LIMITS.inbox_bytes


@pytest.mark.parametrize("made", [LIMITS, TIMEOUTS], ids=["limits", "timeouts"])
def test_every_bound_is_one_and_stays_one(made: TransportLimits | Timeouts) -> None:
    """None is zero, which would be no service, and none is changed while clients are served."""
    for each in msgspec.structs.fields(made):
        assert getattr(made, each.name) > 0, each.name
        with pytest.raises(AttributeError):
            setattr(made, each.name, 1)
