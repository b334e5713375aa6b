"""What comes back for a request: an `Answer`, and the same while its body is still coming.

The protocols are what the rest of the client reads of an answer.  They are a part of httpx's
`Response`, so that one of httpx is an answer as it stands; `GatheredAnswer` is that of the two pools
of this package, and theirs for a stream are beside them.
"""

import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, Protocol

from topics.client.faults import Broken

BODY_BYTES_MAX: Final = 256 << 20
"""Of an answer that is not a stream; a server's largest page has 8 MiB and one record (§3)."""


class Headers(Protocol):
    """An answer's headers."""

    def get(self, key: str, default: Any = None, /) -> Any:
        """The value of a header whose name is in lower case."""


class Answer(Protocol):
    """An answer of any status.

    Attributes:
        content: The body, whole and unpacked.
    """

    @property
    def status_code(self) -> int: ...

    @property
    def is_success(self) -> bool: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def content(self) -> bytes: ...


class StreamedAnswer(Answer, Protocol):
    """An answer whose body is read as it comes, once; `content` is there after `read`.

    Attributes:
        extensions: "network_stream" has the socket, by `get_extra_info("socket")`, where there is
            one.
    """

    @property
    def extensions(self) -> Mapping[str, Any]: ...

    def iter_bytes(self) -> Iterator[bytes]: ...

    def read(self) -> bytes: ...


class AsyncStreamedAnswer(Answer, Protocol):
    """The same, awaited."""

    def aiter_bytes(self) -> AsyncIterator[bytes]: ...

    async def aread(self) -> bytes: ...


class AnswerHead:
    """The status and the headers of an answer.

    Args:
        headers: As they came, in order; one that is repeated is joined by commas (RFC 9110 §5.3).
    """

    def __init__(self, status_code: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status_code = status_code
        self.headers: dict[str, str] = {}
        for raw_name, raw_value in headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    def unpacker(self) -> "Unpacker | None":
        """What unpacks the body; None for one that is not packed.

        The client asks for gzip and for nothing else (§0.3).
        """
        is_gzip = self.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip")
        return Unpacker() if is_gzip else None


class GatheredAnswer(AnswerHead):
    """An answer that is there to its end.

    Raises:
        Broken: Its body does not unpack, or to more than `BODY_BYTES_MAX`.
    """

    def __init__(self, status_code: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(status_code, headers)
        unpacker = self.unpacker()
        self.content = body if unpacker is None else unpacker.unpack(body)


class Unpacker:
    """A gzip body, unpacked as it comes: of one member or of several (RFC 1952 §2.2), perhaps with zeros
    behind them."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def unpack(self, piece: bytes) -> bytes:
        """What a piece of the body unpacks to.

        Raises:
            Broken: It is not gzip, or unpacks to more than `BODY_BYTES_MAX`: a few kilobytes may.
        """
        found: list[bytes] = []
        left = BODY_BYTES_MAX
        while piece:
            if self._inflate.eof:
                piece = piece.lstrip(b"\0")
                if not piece:
                    break
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                found.append(self._inflate.decompress(piece, left + 1))
            except zlib.error as error:
                raise Broken(str(error)) from error
            left -= len(found[-1])
            if left < 0:
                raise Broken(f"a body that unpacks to more than {BODY_BYTES_MAX} bytes")
            piece = self._inflate.unused_data
        return b"".join(found)
