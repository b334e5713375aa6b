"""The files of this server's store, as `topics backup --url` and other nodes of a cluster read them.

Owns who may read them, and the answers.  Nothing is decided here about what a snapshot is: the reader makes
a consistent one of files that go on changing (`topics.backup`).  Nothing is held between two requests, so a
reader that stays away costs nothing, and an erased file is gone.

    GET /v0/store                          {"files": [[name, bytes], ...], "now_s": ...}
    GET /v0/store/NAME?offset=..&size=..   the bytes there, at most `PIECE_BYTES_MAX`

Readers are nodes of the same cluster, by its token, and keys with the scopes `admin` and `read` for all names:
the files hold every topic's records.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from topics.protocol.driver.reply import Ticket
from topics.protocol.faces.http.query import parse_query
from topics.protocol.model.access import Scope
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.http.interface import Answer
from topics.server.http.responder import JSON, Responder
from topics.server.service.later import later

PATH: Final = b"/v0/store"
SIZE: Final = b"x-topics-size"
FILE: Final = b"x-topics-file"
WHOLE: Final = b"x-topics-whole"
"""As `topics.backup.remote` has them."""
PIECE_BYTES_MAX: Final = 1 << 20
SCOPES: Final[frozenset[Scope]] = frozenset({"admin", "read"})
GIVING_S: Final = 60.0
"""A reader that asks for nothing for so long is gone: it verifies a copy before it asks for the next."""
_NAME: Final = re.compile(rb"topics\.id|\d{10}\.(?:wal|seg|ckpt)")
_BYTES: Final = (b"content-type", b"application/octet-stream")

log = logging.getLogger("topics.http")


class StoreFiles:
    """Of one server.

    Args:
        path: The store's directory, which may be replaced by another one.

    Attributes:
        taken: Copies that were taken from here to their end, since the start.
        sent_bytes: Of files.
    """

    def __init__(self, path: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self.taken = self.sent_bytes = 0
        self._path = path
        self._now_s = now_s
        self._asked_s: float | None = None

    @property
    def is_giving(self) -> bool:
        """Whether somebody copies the store, as far as that is known: a file was asked for just now,
        and nobody has said since that it has all."""
        return self._asked_s is not None and self._now_s() - self._asked_s < GIVING_S

    @staticmethod
    def is_asked(method: str, path: bytes) -> bool:
        return path.startswith(PATH) and method == "GET" and path[len(PATH) :][:1] in (b"", b"/")

    def begin(self, call: Responder) -> "FileRequest":
        return FileRequest(self, call)

    async def answer(self, call: Responder) -> Answer:
        """Raises Rejection."""
        name = call.head.path[len(PATH) + 1 :]
        if not name:
            if call.header(WHOLE) is not None:
                self.taken += 1
                self._asked_s = None
                log.info("a copy of the store was taken, by %s", call.head.client or "a client")
            listed = await call.runtime.page_in_thread(self._listed)
            return _made(call, (JSON,), listed)
        if _NAME.fullmatch(name) is None:
            raise _no_file(name)
        query = parse_query(call.head.query)
        offset, size = _number(query.get("offset")), _number(query.get("size"))
        size = min(size, PIECE_BYTES_MAX)
        self._asked_s = self._now_s()
        found = await call.runtime.page_in_thread(lambda: self._piece(name, offset, size))
        file, total, piece = found
        self.sent_bytes += len(piece)
        headers = (_BYTES, (SIZE, b"%d" % total), (FILE, file))
        return _made(call, headers, piece)

    def _listed(self) -> bytes:
        """*Blocking.*"""
        files: list[tuple[str, int]] = []
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    if _NAME.fullmatch(os.fsencode(entry.name)):
                        try:
                            files.append((entry.name, entry.stat(follow_symlinks=False).st_size))
                        except FileNotFoundError:
                            continue  # retired meanwhile
        except OSError as error:
            raise _unreadable(error) from error
        files.sort()
        return json.dumps({"files": files, "now_s": int(time.time())}).encode() + b"\n"

    def _piece(self, name: bytes, offset: int, size: int) -> tuple[bytes, int, bytes]:
        """*Blocking.*  Which file it is, its size, the bytes."""
        path = self._path / os.fsdecode(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise _no_file(name) from None
        except OSError as error:
            raise _unreadable(error) from error
        try:
            about = os.fstat(descriptor)
            piece = os.pread(descriptor, size, offset)
        except OSError as error:
            raise _unreadable(error) from error
        finally:
            os.close(descriptor)
        return b"%d-%d" % (about.st_dev, about.st_ino), about.st_size, piece


class FileRequest:
    """Implements `interface.Admission`, and `interface.Pending` once it has all."""

    max_body_bytes = 0
    is_apart = waits_for_news = False

    def __init__(self, files: StoreFiles, call: Responder) -> None:
        self._files, self._call = files, call
        self._coming: Ticket | None = None

    def finish(self, pieces: list[bytes]) -> "FileRequest":
        return self

    def then(self, deliver: Callable[[Answer], None]) -> None:
        def found(answer: Answer | Rejection) -> None:
            deliver(self._call.refuse(answer) if isinstance(answer, Rejection) else answer)

        self._coming = later(self._files.answer(self._call), found)

    def cancel(self) -> None:
        if self._coming is not None:
            self._coming.cancel()

    def connect(self) -> Answer:
        return self._call.refuse(Rejection(ErrorCode.NOT_FOUND, "no WebSocket here"))

    def too_large(self) -> Answer:
        return self._call.refuse(
            Rejection(ErrorCode.PAYLOAD_TOO_LARGE, "a body is not expected"), close=True
        )

    def too_slow(self) -> Answer:
        return self.too_large()

    def close(self) -> None:
        return


def _made(call: Responder, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> Answer:
    call.observe(200)
    length = (b"content-length", b"%d" % len(body))
    return Answer(200, (*headers, length, (b"cache-control", b"no-store"), *call.also), [body])


def _number(given: str | None) -> int:
    if given is None or not given.isdecimal() or len(given) > 18:
        raise Rejection(ErrorCode.INVALID_REQUEST, "offset and size are numbers, and are needed")
    return int(given)


def _no_file(name: bytes) -> Rejection:
    shown = name[:40].decode("ascii", "replace")
    return Rejection(ErrorCode.NOT_FOUND, "the store has no such file", {"file": shown})


def _unreadable(error: OSError) -> Rejection:
    return Rejection(
        ErrorCode.NOT_READY, f"the store cannot be read now: {error.strerror or error}"
    )
