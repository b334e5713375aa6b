"""What connections share: who is open, who is busy, when a stop may go on (§0.10)."""

from topics.server.transport.limits import TransportLimits

from .http1_rig import GET, Rig, get
from .http2_rig import ok


def test_a_connection_is_open_from_its_first_byte_to_its_last() -> None:
    """And one that found no room never was."""
    first = Rig(limits=TransportLimits(connections=1))
    shared = first.shared
    assert shared.connections == {first.connection}
    second = Rig(shared=shared)
    assert second.transport.is_aborted
    assert shared.connections == {first.connection}
    first.lose()
    assert shared.connections == set()


def test_busy_are_those_with_a_request_in_flight() -> None:
    """Each once; the last of them is heard of."""
    one = Rig()
    two = Rig(shared=one.shared)
    quiet: list[int] = []
    one.shared.when_quiet = lambda: quiet.append(one.shared.busy)
    for rig in (one, two):
        rig.send(get(b"/wait"))
    assert (one.shared.busy, quiet) == (2, [])

    one.exchange.waits[0].deliver(ok(b"x"))  # type: ignore[misc]
    assert (one.shared.busy, quiet) == (1, [])
    two.lose()
    assert (one.shared.busy, quiet) == (0, [0])


def test_a_stop_drains_every_connection() -> None:
    """Idle ones end; one that is busy ends after its answer."""
    idle = Rig()
    busy = Rig(shared=idle.shared)
    idle.send(GET)
    busy.send(get(b"/wait"))
    idle.shared.drain()
    assert (idle.is_finished, busy.is_finished) == (True, False)

    busy.exchange.waits[0].deliver(ok(b"x"))  # type: ignore[misc]
    assert busy.answer()[1]["connection"] == "close"
    assert busy.is_finished


def test_a_head_is_known_to_all_connections() -> None:
    """One client's head spares the parsing of another's, and its client is its own."""
    one = Rig()
    two = Rig(shared=one.shared)
    for rig in (one, two):
        rig.send(GET)

    first, second = one.exchange.heads
    assert len(one.shared.heads) == 1
    assert first.memo is second.memo is not None
    assert [rig.answer()[0] for rig in (one, two)] == [200, 200]
