"""Messages in a flow of bytes that is cut anywhere."""

from hypothesis import given
from hypothesis import strategies as st

from topics.server.readers.message_frames import Framing, Intake, Kind, Messages

KINDS = st.sampled_from(list(Kind))


@given(st.lists(st.tuples(KINDS, st.binary(max_size=300))), st.integers(1, 64))
def test_messages_come_as_they_went(messages: list[tuple[Kind, bytes]], cut: int) -> None:
    """Each with its kind, in order and whole, however the bytes are cut."""
    framing, came = Framing(), Messages()
    for kind, message in messages:
        framing.add(kind, message)
    found = []
    while framing.size_bytes:
        came.put(bytes(framing.take(cut)))
        while came:
            found.append(came.take())
    assert found == messages
    assert came.size_bytes == 0
    assert framing.take(cut) == b""


def test_what_is_given_up_is_gone() -> None:
    """Both ways."""
    framing, came = Framing(), Messages()
    framing.add(Kind.TEXT, b"one")
    came.put(bytes(framing.take(100)))
    framing.add(Kind.TEXT, b"two")
    framing.clear()
    came.clear()
    assert (framing.size_bytes, came.size_bytes, bool(came)) == (0, 0, False)


def test_there_is_room_for_a_message_that_is_not_whole() -> None:
    """And none while too much of what is whole waits."""
    intake = Intake(100)
    intake.came(60)
    assert intake.room(0) == 0  # not worth a message
    intake.came(60)
    assert intake.room(101) == 0
    assert intake.room(100) == 120
    assert intake.room(0) == 0
