"""The listening socket: its options, its bounds, and how many it lets in at once."""

import asyncio
import resource
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop

from topics.server.transport import listener

DEADLINE_S = 100.0


def test_a_name_that_is_no_address_is_refused() -> None:
    """The resolver's complaint, in the same line."""
    with pytest.raises(listener.Unbindable, match=r"cannot listen on no\.such\.invalid:1"):
        listener.listen("no.such.invalid", 1)


def test_accepted_sockets_notice_dead_peers() -> None:
    """They inherit what was set on the listener, the abort of a peer that takes nothing included."""
    with (
        listener.listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        listening.settimeout(DEADLINE_S)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 35_000
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_the_bound_on_connections_follows_the_one_on_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that the hard bound allows, less what the store needs."""
    bounds = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: bounds[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: bounds.append(both))

    assert listener.max_connections() == 4096 - 600
    assert bounds[-1] == (4096, 4096)


def test_a_sandbox_that_forbids_options_and_bounds_is_lived_with(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each option is worth having, and the bound of files is what most have."""

    class Bare(socket.socket):
        def setsockopt(self, *_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

    def refuses(_: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Bare)
        with listener.listen("127.0.0.1", 0) as listening:
            assert listening.getsockname()[1] > 0
    monkeypatch.setattr(resource, "getrlimit", refuses)

    assert listener.max_connections() == listener.FILES_ASSUMED - 600
    assert "SO_KEEPALIVE is refused" in caplog.text
    assert "getrlimit is refused" in caplog.text


class Guest(asyncio.Protocol):
    """A connection that only comes."""

    def __init__(self, guests: list["Guest"]) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.gone = asyncio.Event()
        guests.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


async def see_out(guests: list[Guest]) -> None:
    """End the connections, which a loop that is closed would not survive."""
    for guest in guests:
        while guest.transport is None:
            await asyncio.sleep(0)
        guest.transport.close()
        await guest.gone.wait()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_crowd_is_let_in_a_few_at_a_time(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """However many connections wait, one turn of the loop accepts a few of them: asyncio would take
    the whole backlog, and whoever is in already would wait for it."""
    crowd = 8 * listener.ACCEPTS
    guests: list[Guest] = []

    async def accepted_by_turn(listening: socket.socket) -> list[int]:
        server = await listener.accept(listening, lambda: Guest(guests))
        seen = [0]
        while seen[-1] < crowd:
            await asyncio.sleep(0)
            seen.append(len(guests))
        server.close()
        await see_out(guests)
        return [now - before for before, now in pairwise(seen)]

    with listener.listen("127.0.0.1", 0) as listening, ExitStack() as stack:
        for _ in range(crowd):
            stack.enter_context(socket.create_connection(listening.getsockname(), DEADLINE_S))
        with asyncio.Runner(loop_factory=new_loop) as runner:
            turns = runner.run(accepted_by_turn(listening))

    assert max(turns) <= listener.ACCEPTS
    assert sum(turns) == crowd


def kept(listening: socket.socket) -> int:
    """How many connections the kernel keeps for a listening socket (Linux: `tcpi_sacked` says that)."""
    return int(
        struct.unpack_from("=I", listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32), 28)[
            0
        ]
    )


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_kernel_keeps_as_many_as_it_allows(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A connection that finds no room is tried again after a second; so there is all the room that the
    kernel gives, before the loop accepts and while it does."""
    crowd = min(10_000, int(Path("/proc/sys/net/core/somaxconn").read_text()))

    async def accepting(listening: socket.socket) -> int:
        server = await listener.accept(listening, asyncio.Protocol)
        try:
            return kept(listening)
        finally:
            server.close()

    with listener.listen("127.0.0.1", 0) as listening:
        assert kept(listening) >= crowd
        with asyncio.Runner(loop_factory=new_loop) as runner:
            assert runner.run(accepting(listening)) >= crowd


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_more_connections_wait_in_the_kernel_than_are_accepted_at_once(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The backlog stays what it was: a crowd is not turned away because it is let in slowly."""
    crowd = 8 * listener.ACCEPTS
    guests: list[Guest] = []

    async def run(listening: socket.socket, stack: ExitStack) -> None:
        server = await listener.accept(listening, lambda: Guest(guests))
        # The loop has no turn meanwhile, so that all of them wait in the kernel.
        for _ in range(crowd):
            stack.enter_context(socket.create_connection(listening.getsockname(), DEADLINE_S))
        assert guests == []
        while len(guests) < crowd:
            await asyncio.sleep(0)
        server.close()
        await see_out(guests)

    with (
        listener.listen("127.0.0.1", 0) as listening,
        ExitStack() as stack,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(run(listening, stack))
