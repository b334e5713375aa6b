"""How much is received in one pass of the loop: who reads, and who waits (transport, `pass_bytes`)."""

from collections.abc import Callable

from topics.server.transport.receive_pace import ReceivePace

PASS = 1000


class Reader:
    """A connection of which the test is the socket."""

    def __init__(self) -> None:
        self.is_reading = True

    def read(self) -> None:
        self.is_reading = True

    def stop_reading(self) -> None:
        self.is_reading = False


class Passes:
    """`ReceivePace`, and what it wants done before each pass."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.receive_pace = ReceivePace(self.soon.append, PASS)

    def next(self) -> None:
        soon = self.soon[:]
        self.soon.clear()
        for call in soon:
            call()


def reading(readers: list[Reader]) -> list[bool]:
    return [each.is_reading for each in readers]


def test_whoever_sends_little_reads_on() -> None:
    """Up to `pass_bytes` in each pass stop nobody."""
    passes, readers = Passes(), [Reader(), Reader()]

    for _ in range(3):
        passes.receive_pace.received(499, readers[0])
        passes.receive_pace.received(500, readers[1])
        assert reading(readers) == [True, True]
        passes.next()


def test_beyond_that_one_reads_in_each_pass() -> None:
    """In the order of coming, and everybody reads again."""
    passes, readers = Passes(), [Reader() for _ in range(3)]
    for each in readers:
        passes.receive_pace.received(400, each)
    assert reading(readers) == [False, False, False]

    passes.next()
    assert reading(readers) == [True, False, False]
    passes.next()
    assert reading(readers) == [True, True, False]
    passes.next()
    assert reading(readers) == [True, True, True]
    assert passes.soon == []


def test_one_that_used_little_does_not_stop() -> None:
    """Its bytes count; others have to wait for them."""
    passes, heavy, light = Passes(), Reader(), Reader()
    passes.receive_pace.received(500, heavy)

    passes.receive_pace.received(500)

    assert (heavy.is_reading, light.is_reading) == (False, True)


def test_who_has_room_again_reads_at_once_or_in_its_turn() -> None:
    """At once where none waits; else behind those that do."""
    passes, first, second = Passes(), Reader(), Reader()
    second.is_reading = False
    passes.receive_pace.ask(second)
    assert second.is_reading

    second.stop_reading()
    passes.receive_pace.forget(second)
    passes.receive_pace.received(1000, first)
    passes.receive_pace.ask(second)
    assert reading([first, second]) == [False, False]
    passes.next()
    assert reading([first, second]) == [True, False]
    passes.next()
    assert reading([first, second]) == [True, True]


def test_a_closed_connection_takes_no_turn() -> None:
    """Neither one that waits nor one that reads is called again."""
    passes, readers = Passes(), [Reader() for _ in range(3)]
    for each in readers:
        passes.receive_pace.received(400, each)
    passes.receive_pace.forget(readers[0])

    passes.next()
    assert reading(readers) == [False, True, False]
    passes.receive_pace.forget(readers[1])
    readers[1].is_reading = True
    passes.receive_pace.received(1000)
    assert readers[1].is_reading
