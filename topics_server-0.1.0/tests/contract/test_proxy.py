"""The server behind nginx and behind Caddy, set up with the very blocks of docs/proxies.md.

The tests of a proxy that is not on the machine are skipped.
"""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from grp import getgrgid
from pathlib import Path
from pwd import getpwuid
from typing import Final, TypeVar

import pytest

from .api import Api
from .server import DEADLINE_S, Server, until
from .streams import Client, Sse1, Ws
from .streams import until as news_until
from .wire import Http1

NGINX: Final = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
CADDY: Final = shutil.which("caddy")
PAGE: Final = Path(__file__).parents[2] / "docs" / "proxies.md"

Proxy = Callable[[Path, int], AbstractContextManager[int]]

AROUND: Final = """
daemon off;
user {user} {group};
pid {home}/pid;
error_log {home}/error.log notice;
events {{}}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
{block}
}}
"""


def documented(kind: str, listen: str, at: str, upstream: int) -> str:
    """The block, with `at` in place of what it listens on, and the upstream of this test."""
    [block] = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert (block.count(listen), block.count("127.0.0.1:4000")) == (1, 1)
    return str(block.replace(listen, at).replace("127.0.0.1:4000", f"127.0.0.1:{upstream}"))


@contextmanager
def nginx(home: Path, upstream: int) -> Iterator[int]:
    """A proxy in front of a port; yields its own."""
    assert NGINX is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # It takes over a socket that is open already, as from a predecessor: so its port is free.
        port = listener.getsockname()[1]
        descriptor = listener.fileno()
        configuration = home / "nginx.conf"
        block = documented("nginx", "listen 80;", f"listen 127.0.0.1:{port};", upstream)
        user, group = getpwuid(os.getuid()).pw_name, getgrgid(os.getgid()).gr_name
        configuration.write_text(AROUND.format(home=home, user=user, group=group, block=block))
        process = subprocess.Popen(
            [NGINX, "-p", str(home), "-e", str(home / "early.log"), "-c", str(configuration)],
            env={**os.environ, "NGINX": f"{descriptor};"},
            pass_fds=(descriptor,),
            stderr=subprocess.DEVNULL,
        )
    try:
        until("nginx runs", lambda: (home / "pid").exists() or process.poll() is not None)
        assert process.poll() is None, (home / "early.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


@contextmanager
def caddy(home: Path, upstream: int) -> Iterator[int]:
    """The other proxy in front of a port; yields its own."""
    assert CADDY is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        descriptor = listener.fileno()
        block = documented("caddy", ":80 {\n", f":80 {{\n\tbind fd/{descriptor}\n", upstream)
        (home / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https off\n}\n" + block)
        with (home / "caddy.log").open("wb") as log:
            process = subprocess.Popen(
                [CADDY, "run", "--config", str(home / "Caddyfile"), "--adapter", "caddyfile"],
                env={**os.environ, "HOME": str(home), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""},
                pass_fds=(descriptor,),
                stderr=log,
            )
    # From here on only the proxy has the socket: where it has ended, connections are refused.
    try:
        until("caddy runs", lambda: b"serving initial" in (home / "caddy.log").read_bytes()
              or process.poll() is not None)  # fmt: skip
        assert process.poll() is None, (home / "caddy.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


PROXIES: Final = {"nginx": (NGINX, nginx), "caddy": (CADDY, caddy)}


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> Proxy:
    """Starts a proxy: home, upstream → its port."""
    program, start = PROXIES[request.param]
    if program is None:
        pytest.skip(f"{request.param} is not installed")
    return start


C = TypeVar("C", bound=Client)


@contextmanager
def closing(client: C) -> Iterator[C]:
    with client.socket:
        yield client


@pytest.fixture
def proxied(proxy: Proxy, server: Server, tmp_path: Path) -> Iterator[int]:
    with proxy(tmp_path, server.port) as port:
        yield port


@pytest.fixture
def connected(proxied: int) -> Iterator[Callable[[], Http1]]:
    """Opens connections to the proxy; they end with the test."""
    with ExitStack() as stack:

        def connect() -> Http1:
            wire = Http1(proxied)
            stack.callback(wire.reset)
            return wire

        yield connect


def test_writes_and_reads_pass(connected: Callable[[], Http1], name: str) -> None:
    """An append of a body that a proxy may keep in a file, and its diff, byte for byte. (§2, §3)"""
    api = Api(connected())

    api.append(name, "x" * 50_000, "y" * 50_000)

    read = api.diff(name)
    assert [each["data"] for each in read["records"]] == ["x" * 50_000, "y" * 50_000]


def test_a_long_poll_waits(connected: Callable[[], Http1], name: str) -> None:
    """A waiting read is answered when a record is appended. (§3)"""
    api, waiting = Api(connected()), connected()
    api.append(name, 1)
    body = b'{"from_seq": 1, "wait_ms": 30000}'
    waiting.send("POST", f"/v0/topics/{name}/diff", body, {"content-type": "application/json"})

    api.append(name, 2)

    assert [each["$seq"] for each in waiting.receive().json["records"]] == [2]


def test_a_stream_passes_as_it_comes(
    connected: Callable[[], Http1], proxied: int, name: str
) -> None:
    """A record reaches a watcher when it is appended, without a later one to push it through.
    (§7)"""
    api = Api(connected())
    api.append(name, 1)
    opened = api.ok("POST", "/v0/watch", {"topics": {name: {"from_seq": 0}}})
    with closing(Sse1(proxied, opened["wid"])) as watcher:
        news_until(watcher, "caught-up", topic=name)

        api.append(name, 2)

        record = news_until(watcher, "record", from_seq=1)
        assert [each["data"] for each in record.fields["records"]] == [2]


def test_a_websocket_opens_and_goes_both_ways(proxied: int, name: str) -> None:
    """The handshake passes, which nginx by itself does not let through. (§7.7)"""
    with closing(Ws(proxied)) as ws:
        ws.say(op="publish", topic=name, records=[{"data": 1}])
        ws.say(op="subscribe", topics={name: {"from_seq": 0}})
        first = news_until(ws, "record", topic=name)
        ws.say(op="publish", topic=name, records=[{"data": 2}])
        second = news_until(ws, "record", topic=name, from_seq=1)

    assert [each["data"] for each in first.fields["records"]] == [1]
    assert [each["data"] for each in second.fields["records"]] == [2]


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk", set()),
        ("Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade", {"upgrade", "connection"}),
        ("Connection: keep-alive", set()),
    ],
    ids=["h2c", "websocket", "plain"],
)
def test_no_other_upgrade_is_passed_on(
    proxy: Proxy, tmp_path: Path, sent: str, passed: set[str]
) -> None:
    """The server gets no other `Upgrade` that a client asks for."""
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.settimeout(DEADLINE_S)
        with proxy(tmp_path, upstream.getsockname()[1]) as port:
            client = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
            client.sendall(f"GET /v0/health HTTP/1.1\r\nHost: a\r\n{sent}\r\n\r\n".encode())
            taken, _ = upstream.accept()
            taken.settimeout(DEADLINE_S)
            head = b""
            while b"\r\n\r\n" not in head:
                head += taken.recv(1 << 16)
            taken.close()
            client.close()

    lines = head.decode().lower().split("\r\n")
    hop = {"upgrade", "connection", "http2-settings"}
    assert {line.partition(":")[0] for line in lines} & hop == passed
    assert lines[0] == "get /v0/health http/1.1"
    if passed:
        assert {"upgrade: websocket", "connection: upgrade"} <= set(lines)
