"""The store of a server that runs elsewhere: the store's interface to files, read only, over HTTP.

Owns the names of the two requests, and how a failure of one is told.  A file is asked for piece by piece,
and nothing of it is held at the other end between two pieces: a name whose file was retired, or is another
one by now, is `FileNotFoundError`, as a name is that was never there.

Invariant: all pieces of an open file are of one file.
"""

import errno
import http.client
import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from topics.backup.layout import CHUNK_BYTES
from topics.protocol.model.records import Buffer
from topics.store.files import File
from topics.visible import without_password

PATH: Final = "/v0/store"
SIZE: Final = "x-topics-size"
FILE: Final = "x-topics-file"
"""Headers of a piece: the size of its file, and which file it is."""
WHOLE: Final = "x-topics-whole"
"""Of the last request: its sender has all that it wanted."""
TIMEOUT_S: Final = 30.0
"""A disk of the other server may take as long for one piece."""
AHEAD_BYTES: Final = 64 << 10
"""Asked for at least: headers and tables are read in many small pieces."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""A list of a million files has less."""


class Unanswered(OSError):
    """The other server did not give what it was asked for: one line."""


def _refuse(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EROFS, "the files of another server are read-only")


class RemoteFiles:
    """Implements `files.Files`, read only.  *Blocking*; used by one thread at a time, but for `abort`.

    Args:
        url: Of the server.
        headers: By which it knows who asks.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None  # the message would quote a part of the password
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise Unanswered(
                errno.EINVAL,
                "expected http://HOST:PORT or https://HOST:PORT",
                without_password(url),
            )
        made = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self.path = without_password(url)
        self.total_bytes = 0
        """Of all files, when they were listed last."""
        self._base = parts.path.rstrip("/") + PATH
        self._headers = dict(headers)
        self._connection = made(parts.hostname, port, timeout=timeout_s)
        self._is_aborted = False
        self._now_s = 0

    # ------------------------------------------------------------------ requests

    def ask(
        self, tail: str, more: Mapping[str, str] = {}
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Raises Unanswered; FileNotFoundError where there is no such file."""
        for attempt in range(2):
            if self._is_aborted:
                raise Unanswered(errno.ECANCELED, "given up", self.path)
            was_kept = self._connection.sock is not None
            try:
                self._connection.request(
                    "GET", self._base + tail, headers={**self._headers, **more}
                )
                answer = self._connection.getresponse()
                body = answer.read(ANSWER_BYTES_MAX)
                break
            except (http.client.HTTPException, OSError) as error:
                self._connection.close()
                # A connection that was kept may have been closed while nothing was asked.
                if attempt == 0 and was_kept and not isinstance(error, TimeoutError):
                    continue
                what = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise Unanswered(errno.EIO, what, self.path) from error
        if answer.status == 200:
            return answer, body
        raise _refusal(answer.status, body, self.path)

    def finish(self) -> None:
        """Say that nothing more is wanted, for the other server's log and figures."""
        self.ask("", {WHOLE: "1"})

    def abort(self) -> None:
        """Have what waits for the other server fail; from any thread."""
        self._is_aborted = True
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(2)
            except OSError:
                return

    # ------------------------------------------------------------------ Files

    def prepare(self, *, create: bool) -> None:
        self.names()

    def names(self) -> list[str]:
        _, body = self.ask("")
        try:
            listed: Any = json.loads(body)
            sizes = {str(name): int(size) for name, size in listed["files"]}
            self._now_s = int(listed["now_s"])
        except (ValueError, KeyError, TypeError) as error:
            raise Unanswered(
                errno.EPROTO, "it is no server of topics, or one that gives no files", self.path
            ) from error
        self.total_bytes = sum(sizes.values())
        return sorted(sizes)

    def open(self, name: str, *, write: bool = False) -> File:
        return RemoteFile(self, name)

    lock = create = rename = unlink = sync_dir = _refuse

    def free_bytes(self) -> int:
        return 0

    modified_s = boot_id = entropy = monotonic_us = _refuse

    def now_s(self) -> int:
        return self._now_s

    def give_way(self) -> None:
        return

    def close(self) -> None:
        self._connection.close()


class RemoteFile:
    """Implements `files.File`, read only.  Holds one piece of at most `CHUNK_BYTES`."""

    def __init__(self, files: RemoteFiles, name: str) -> None:
        """Raises FileNotFoundError, Unanswered."""
        self.name = name
        self._files = files
        self._at, self._piece = 0, b""
        self._size = 0
        self._file: str | None = None
        self._fetch(0, AHEAD_BYTES)

    def _fetch(self, offset: int, size: int) -> None:
        size = min(max(size, AHEAD_BYTES), CHUNK_BYTES)
        answer, piece = self._files.ask(f"/{self.name}?offset={offset}&size={size}")
        file, total = answer.headers.get(FILE), answer.headers.get(SIZE, "")
        if file is None or not total.isdigit() or len(piece) > size:
            raise Unanswered(errno.EPROTO, "a piece of a file was expected", self._files.path)
        if self._file is not None and file != self._file:
            raise FileNotFoundError(errno.ENOENT, "the file is another one by now", self.name)
        self._file, self._size = file, int(total)
        self._at, self._piece = offset, piece

    def size(self) -> int:
        return self._size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        end = self._at + len(self._piece)
        if not self._at <= offset < end:
            if offset >= self._size:
                return 0
            # What follows the last piece is likely to be read to the end.
            self._fetch(offset, CHUNK_BYTES if offset == end else len(buffer))
        found = memoryview(self._piece)[offset - self._at :][: len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def read_nowait(self, buffer: memoryview, offset: int) -> bool:
        return False

    write = write_vector = _refuse
    sync_data = sync = truncate = allocate = map_readonly = _refuse

    def forget_cache(self) -> None:
        return

    def close(self) -> None:
        self._piece = b""


def _refusal(status: int, body: Buffer, path: str) -> OSError:
    try:
        error: Any = json.loads(bytes(body))["error"]
        what, is_file = f": {error['message']}", "file" in (error.get("detail") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        what, is_file = "", False
    if status == 404 and is_file:
        return FileNotFoundError(errno.ENOENT, "missing", path)
    if status == 404:
        return Unanswered(
            errno.EPROTO, "it is no server of topics, or one that gives no files", path
        )
    return Unanswered(errno.EIO, f"it answered {status}{what}", path)
