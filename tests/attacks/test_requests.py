"""Well-formed requests that mean harm (§11, §0.6)."""

import gzip
import json
import resource
from contextlib import ExitStack
from pathlib import Path

from contract.server import Server, until

from .attacker import GET, answer, asked, connected, connections, memory_mib, post

MIB = 1 << 20


def test_a_bomb_stops_at_the_limit(server: Server) -> None:
    """80 KiB that unpack to more than 64 MiB are 413, from six connections at once."""
    bomb = gzip.compress(b'{"records":[{"data":"' + bytes(80 * MIB), 9)
    assert len(bomb) < MIB
    with ExitStack() as stack:
        held = [stack.enter_context(connected(server)) for _ in range(6)]
        for each in held:
            each.sendall(post("/v0/topics/t", bomb, "Content-Encoding: gzip"))
        assert asked(server)[0] == 200
        # Together they have one budget: those that find no room are 429.
        assert {answer(each)[0] for each in held} <= {413, 429}


def test_deep_json_is_refused(server: Server) -> None:
    """A hundred thousand levels, as a value, as `meta`, and as a whole body."""
    deep = b"[" * 100_000 + b"]" * 100_000
    record = b'{"records":[{"%b":' + deep + b"}]}"
    for body in (record % b"data", record % b"meta", deep, b'{"a":' * 50_000):
        assert asked(server, post("/v0/topics/t", body))[0] == 400


def test_sessions_of_one_client_are_bounded(server: Server) -> None:
    """Ten thousand sessions with large filters meet the memory for them, at the latest: 429 with what
    is used up, and others are answered."""
    nodes = [f"{n}-{'x' * 100}" for n in range(64)]
    body = json.dumps({"topics": {"page": {}}, "node": nodes}).encode()
    request = post("/v0/watch", body)
    with connected(server) as connection:
        for _ in range(10_000):
            connection.sendall(request)
            status, found = answer(connection)
            if status != 200:
                break
    assert status == 429
    assert json.loads(found)["error"]["detail"]["limit"] in (
        "max_watch_bytes",
        "max_watch_sessions",
    )
    assert asked(server)[0] == 200


def test_long_polls_leave_with_their_clients(server: Server) -> None:
    """A thousand polls from as many connections that are reset hold nothing afterwards."""
    body = json.dumps({"from_seq": 10**9, "wait_ms": 30_000}).encode()
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(connected(server)).sendall(post("/v0/topics/page/diff", body))
        until("all wait", lambda: connections(server) >= 1000)
        assert asked(server)[0] == 200


def test_more_connections_than_files(tmp_path: Path) -> None:
    """Where descriptors run out, the store keeps its own: writes go on over a connection that is there,
    those beyond the bound are let go at once, and the crowd gone, the next client is served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with Server(tmp_path, max_connections=100) as server, ExitStack() as stack:
        first = stack.enter_context(connected(server))
        first.sendall(GET)
        assert answer(first)[0] == 200
        with ExitStack() as crowd:
            for _ in range(400):
                crowd.enter_context(connected(server))
            for n in range(20):
                first.sendall(post("/v0/topics/t", json.dumps({"records": [{"data": n}]}).encode()))
                assert answer(first)[0] in (200, 201)
        until("the crowd is gone", lambda: served(server))
        assert memory_mib(server, "VmHWM") < 400
        server.assert_log_is_quiet()


def served(server: Server) -> bool:
    try:
        return asked(server)[0] == 200
    except (AssertionError, OSError):
        return False
