"""Messages in a flow of bytes that is cut anywhere."""

from hypothesis import given
from hypothesis import strategies as st

from topics.server.links.framing import Framing, Intake, Message, Messages

MESSAGES = st.builds(Message, st.integers(0, 255), st.binary(max_size=50), st.binary(max_size=300))


@given(st.lists(MESSAGES), st.integers(1, 64))
def test_messages_come_as_they_went(messages: list[Message], cut: int) -> None:
    """Each with its kind, in order and whole, however the bytes are cut."""
    framing, came = Framing(), Messages()
    for message in messages:
        framing.add(message.kind, message.head, [message.text[:1], message.text[1:]])
    found = []
    while framing.size_bytes:
        came.put(bytes(framing.take(cut)))
        while came:
            first = came.next
            found.append(came.take())
            assert first == found[-1]
    assert found == messages
    assert came.size_bytes == 0
    assert came.next is None
    assert framing.take(cut) == b""


def test_what_is_given_up_is_gone() -> None:
    """Both ways."""
    framing, came = Framing(), Messages()
    framing.add(1, b"one")
    came.put(bytes(framing.take(100)))
    framing.add(1, b"two")
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
