"""Numbers of any size are stored and served byte for byte, on every way out (§0.3, §0.4)."""

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from .server import DEADLINE_S, Server
from .streams import TEXT, Ws

NUMBERS = [b"1e400", b"-1E+400", b"9" * 5000, b"-0.0", b"1." + b"0" * 5000, b"1e" + b"9" * 30]
DATAS = [b'{"n": %b}' % number for number in NUMBERS]
"""The space tells that the text is the client's own."""


@contextmanager
def opened(
    server: Server, method: str, path: str, body: bytes = b""
) -> Iterator[http.client.HTTPResponse]:
    """An answer of success, on a connection of its own, still to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    with closing(connection):
        connection.request(method, path, body, {"content-type": "application/json"})
        with connection.getresponse() as answer:
            assert answer.status in (200, 201), answer.read()
            yield answer


def ask(server: Server, method: str, path: str, body: bytes) -> bytes:
    with opened(server, method, path, body) as answer:
        return answer.read()


def records(datas: list[bytes]) -> bytes:
    return b'{"records":[%b]}' % b",".join(
        b'{"data":%b,"meta":{"m":%b}}' % (data, data) for data in datas
    )


@pytest.fixture
def filled(server: Server, name: str) -> str:
    """A topic with a record for each number, in `data` and in `meta`."""
    ask(server, "POST", f"/v0/topics/{name}", records(DATAS))
    return name


def served(text: bytes) -> list[bytes]:
    """The `data` of the records of an answer or a stream, in order."""
    return [part.partition(b',"meta":')[0] for part in text.split(b'"data":')[1:]]


def test_a_page(server: Server, filled: str) -> None:
    """By `diff`. (§3)"""
    page = ask(server, "POST", f"/v0/topics/{filled}/diff", b"{}")

    assert served(page) == DATAS
    assert [page.count(b'"meta":{"m":%b}' % data) for data in DATAS] == [1] * len(DATAS)


def test_a_stream(server: Server, filled: str) -> None:
    """By a watch session. (§7.5)"""
    asked = b'{"topics":{"%b":{"from_seq":0}}}' % filled.encode()
    session = ask(server, "POST", "/v0/watch", asked)
    url = session.partition(b'"stream_url":"')[2].partition(b'"')[0].decode()

    with opened(server, "GET", url) as stream:
        text = until(iter(stream.readline, b""), b"event: caught-up")

    assert served(text) == DATAS


def until(lines: Iterator[bytes], last: bytes) -> bytes:
    text = b""
    for line in lines:
        text += line
        if line.startswith(last):
            return text
    raise AssertionError(f"the stream ended before {last!r}")


def test_a_socket(server: Server, name: str) -> None:
    """Published over a WebSocket, and delivered to a subscription of it. (§7.7)"""
    ask(server, "PUT", f"/v0/topics/{name}", b"{}")
    ws = Ws(server.port)
    try:
        ws.say(op="subscribe", id=1, topics={name: {"from_seq": 0}})
        published = b'{"op":"publish","id":2,"topic":"%b",' % name.encode()
        ws.send(TEXT, published + records(DATAS)[1:])
        found: list[bytes] = []
        while len(found) < len(DATAS):
            found += [each for text in messages(ws) for each in served(text)]
    finally:
        ws.socket.close()

    assert found == DATAS


def messages(ws: Ws) -> Iterator[bytes]:
    """The texts that the next bytes complete; they are not decoded, as `Ws.take` would."""
    ws._wire += ws.socket.recv(1 << 16)
    while (frame := ws._frame()) is not None:
        yield frame[1]


def test_a_claim_and_a_push(server: Server, name: str) -> None:
    """As jobs, claimed and over a worker's stream. (§10.2, §10.8)"""
    ask(server, "PUT", f"/v0/topics/{name}", b'{"type":"queue"}')
    ask(server, "POST", f"/v0/topics/{name}", records(DATAS))
    claimed = ask(server, "POST", f"/v0/topics/{name}/claim", b'{"node":"w","max":3}')

    pushed = b""
    with opened(server, "GET", f"/v0/topics/{name}/work?node=v&max=3") as stream:
        while len(served(pushed)) < 3 or not pushed.endswith(b"\n\n"):
            pushed += stream.readline()

    assert served(claimed) + served(pushed) == DATAS


def test_a_copy(server: Server, filled: str) -> None:
    """By a router, which cuts stored text. (§6.1)"""
    copy = f"{filled}-copy"
    asked = b'{"source":"%b","dest":"%b"}' % (filled.encode(), copy.encode())
    ask(server, "PUT", f"/v0/routers/{filled}", asked)
    ask(server, "POST", f"/v0/topics/{filled}", records(DATAS))

    page = ask(server, "POST", f"/v0/topics/{copy}/diff", b'{"wait_ms":30000}')

    assert served(page) == DATAS
