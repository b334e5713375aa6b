"""h2spec, the conformance suite of HTTP/2, against a connection of ours on a real socket.

`h2spec` is looked for on the path and where `go install` puts it; `.ci/run` installs it where Go is
(`go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible`).
"""

import asyncio
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from topics.server.transport.connection import Connection
from topics.server.transport.http1 import Http1
from topics.server.transport.http2 import Http2
from topics.server.transport.shared import Shared

from .http2_rig import Exchange

TESTS = 145


def h2spec() -> str | None:
    """Where it is."""
    places = [os.environ.get("GOBIN"), os.environ.get("GOPATH", str(Path.home() / "go")) + "/bin"]
    path = os.pathsep.join([*filter(None, places), os.environ.get("PATH", "")])
    return shutil.which("h2spec", path=path)


@pytest.fixture
def port() -> Iterator[int]:
    """A server on a thread of its own; `/big` answers more than h2spec's windows take."""
    loop = uvloop.new_event_loop()
    ports: list[int] = []
    ready = threading.Event()

    async def serve() -> asyncio.AbstractServer:
        shared = Shared(Exchange(big=[b"x" * 100]))
        make = lambda: Connection(shared, Http1, Http2)  # noqa: E731
        server = await loop.create_server(make, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        return server

    def run() -> None:
        server = loop.run_until_complete(serve())
        loop.call_soon(ready.set)
        loop.run_forever()
        server.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    yield ports[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def test_every_case_passes(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """RFC 9113 and RFC 7541, case by case; and none ends in a traceback."""
    command = h2spec()
    if command is None:
        pytest.skip("h2spec is not installed; .ci/run installs it where Go is")
    ran = subprocess.run(
        [command, "-h", "127.0.0.1", "-p", str(port), "-o", "10", "--path", "/big"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = re.search(r"(\d+) tests, (\d+) passed, \d+ skipped, (\d+) failed", ran.stdout)

    assert found is not None, ran.stdout + ran.stderr
    assert [int(each) for each in found.groups()] == [TESTS, TESTS, 0], ran.stdout.partition(
        "Failures:"
    )[2]
    assert caplog.records == []
