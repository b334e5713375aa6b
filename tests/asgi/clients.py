"""Clients below any HTTP library: they send what a test gives them and no more."""

import socket
import struct
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import h2.settings

from .fakes import DEADLINE_S


class Client:
    """A raw socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until_end(self) -> bytes:
        """All that arrives until the server ends the connection."""
        got = b""
        try:
            while more := self.socket.recv(65_536):
                got += more
        except ConnectionError:
            pass
        return got

    def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """One HTTP/1.1 answer: status, headers, body by its length."""
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._more()
        head, _, body = got.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        while len(body) < int(headers[b"content-length"]):
            body += self._more()
        return int(first.split()[1]), headers, body

    def _more(self) -> bytes:
        more = self.socket.recv(65_536)
        assert more, "the server ended the connection"
        return more

    def reset(self) -> None:
        """Disconnect with a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Client2(Client):
    """An HTTP/2 connection by prior knowledge."""

    def __init__(self, port: int, *, window: int | None = None) -> None:
        super().__init__(port)
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        if window is not None:
            size = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values=size)
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.flush()

    def flush(self) -> None:
        self.send(self.h2.data_to_send())

    def ask(self, path: bytes = b"/echo", *, method: bytes = b"POST", end: bool = True) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        headers = [
            (b":method", method),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", path),
        ]
        self.h2.send_headers(stream_id, headers, end_stream=end)
        self.flush()
        return stream_id

    def until(self, kind: type[Any], stream_id: int | None = None) -> Any:
        """The next event of a kind, of a stream or of the connection."""
        while True:
            for i, event in enumerate(self.events):
                if isinstance(event, kind) and (
                    stream_id is None or getattr(event, "stream_id", None) == stream_id
                ):
                    return self.events.pop(i)
            more = self.socket.recv(65_536)
            if not more:
                raise EOFError
            self.events += self.h2.receive_data(more)
            self.flush()

    def body(self, stream_id: int) -> tuple[int, bytes]:
        status = int(dict(self.until(h2.events.ResponseReceived, stream_id).headers)[b":status"])
        self.until(h2.events.StreamEnded, stream_id)
        data = [
            e.data
            for e in self.events
            if isinstance(e, h2.events.DataReceived) and e.stream_id == stream_id
        ]
        return status, b"".join(data)


def flood(client: Client2, kind: str, count: int) -> None:
    """`count` frames of a kind; the server may close the connection meanwhile."""
    try:
        stream = client.ask(end=False) if kind == "empty" else 0
        for i in range(count):
            match kind:
                case "reset":
                    client.h2.reset_stream(client.ask(b"/wait"))
                case "ping":
                    client.h2.ping(struct.pack(">Q", i))
                case "settings":
                    client.h2.update_settings({h2.settings.SettingCodes.MAX_FRAME_SIZE: 16384 + i})
                case "priority":
                    client.h2.prioritize(2 * i + 101)
                case "empty":
                    client.h2.send_data(stream, b"")
            client.flush()
    except ConnectionError:
        pass
