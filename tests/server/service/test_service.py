"""The one door of a process that has the engine: nothing comes later."""

import asyncio

import pytest

from server.http.feeds import slot_of
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import Begin, Claim, GetTopic, View
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits
from topics.server.service.service import LocalService, Service
from topics.testing import START_MS, _Shell


def test_it_decides_and_opens_at_once() -> None:
    """Commands, sessions, sockets, push streams; what is refused is refused at once."""

    async def story() -> None:
        shell = _Shell(Limits(), START_MS)
        service: Service = LocalService(shell)
        local, slot = LocalService(shell), slot_of(shell)
        assert service.has_engine
        shell.submit(parse_put("t", b"{}"), lambda _: None)
        shell.submit(parse_put("q", b'{"type":"queue"}'), lambda _: None)
        body = b'{"topics":{"t":{}}}'
        watch = parse_watch(body, shell.limits, wid="w", lenient=False)
        shell.submit(watch, lambda _: None)

        found = local.submit(GetTopic("t"), lambda _: None, slot)
        assert found == local.submit(GetTopic("t", touch=False), lambda _: None, slot)
        local.require_session("w", slot)
        session = local.session("w", None, slot)
        assert session.heartbeat_ms == watch.heartbeat_ms
        socket = local.socket(slot)
        at = socket.subscribe({"t": Begin()}, View(1, 1), shell.now_ms, lambda _: None)
        assert at["t"].head_seq == 0  # type: ignore[index]
        assert socket.unsubscribe("t", lambda _: None) is True
        local.require_queue("q", slot)
        jobs = local.jobs(Claim("q", "w", 1, None, 0), slot)
        for refused in (
            lambda: local.session("none", None, slot),
            lambda: local.require_session("none", slot),
            lambda: local.jobs(Claim("t", "w", 1, None, 0), slot),
            lambda: local.require_queue("t", slot),
        ):
            with pytest.raises(Rejection):
                refused()
        session.close(shell.now_ms)
        socket.close()
        jobs.close()

    asyncio.run(story())
