"""One server for all attacks, and what each of them has to leave as it was."""

import json
from collections.abc import Iterator

import pytest
from contract.hosts import OWN, READERS
from contract.server import Server, until

from .attacker import (
    GROWTH_MIB,
    asked,
    descriptors,
    forget_peak,
    memory_mib,
    metric,
    post,
)


@pytest.fixture(scope="package", params=[OWN, READERS], ids=["one process", "readers"])
def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with a topic whose page is large: one process, and with two that read."""
    bounds = {"max_body_memory": 96 << 20, "max_watch_bytes": 8 << 20}
    with Server(tmp_path_factory.mktemp("attacked"), request.param, **bounds) as server:
        record = {"data": "x" * 8_000}
        for _ in range(3):
            body = json.dumps({"records": [record] * 500}).encode()
            assert asked(server, post("/v0/topics/page", body))[0] in (200, 201)
        yield server


@pytest.fixture
def server(attacked: Server) -> Iterator[Server]:
    """The server, which is as it was when the attack is over: others are answered, its peak of memory
    has not grown by much, connections and descriptors are gone, and it has logged no error."""
    until("no other connection", lambda: metric(attacked, "topics_connections") == 1)
    files = descriptors(attacked)
    memory = memory_mib(attacked, "VmRSS")
    forget_peak(attacked)
    yield attacked
    assert asked(attacked)[0] == 200
    until("no other connection", lambda: metric(attacked, "topics_connections") == 1)
    until("descriptors", lambda: descriptors(attacked) <= files + 2)
    assert memory_mib(attacked, "VmHWM") - memory < GROWTH_MIB
    attacked.assert_log_is_quiet()
