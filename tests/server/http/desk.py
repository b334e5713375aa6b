"""An exchange over memory, without a socket: what its tests ask and look at."""

import json
from typing import Any

from topics.protocol.faces.http.origins import OriginRule
from topics.protocol.model.limits import Limits
from topics.server.access.guard import Guard
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Answer, Head, Headers, Memo, Streaming
from topics.testing import START_MS, _Shell

JSON = (b"content-type", b"application/json")


class Desk:
    """An exchange over memory, asked in one call."""

    def __init__(
        self,
        limits: Limits | None = None,
        origins: OriginRule | None = None,
        guard: Guard | None = None,
        shell: _Shell | None = None,
    ) -> None:
        self.shell = shell or _Shell(limits or Limits(), START_MS)
        self.exchange = TopicsExchange(self.shell, origins, guard=guard)

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *headers: tuple[bytes, bytes],
        raw: bytes | None = None,
    ) -> Answer:
        path, _, query = target.encode().partition(b"?")
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        given = [*headers, JSON] if sent and not headers else list(headers)
        found = self.exchange.begin(self.head(method, path, query, given))
        if not isinstance(found, Answer):
            found = found.finish([sent] if sent else [])
        if isinstance(found, Answer):
            return found
        assert not isinstance(found, Streaming)
        told: list[Answer] = []
        found.then(told.append)
        return told[0]

    def head(self, method: str, path: bytes, query: bytes, given: Headers) -> Head:
        return Head(method, path, query, given)


class Twice(Desk):
    """Each head comes twice, as a driver that keeps heads gives them: with what was noted of it."""

    def __init__(
        self,
        limits: Limits | None = None,
        origins: OriginRule | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(limits, origins, guard)
        self.memos: dict[object, Memo] = {}

    def head(self, method: str, path: bytes, query: bytes, given: Headers) -> Head:
        memo = self.memos.setdefault((method, path, query, tuple(given)), Memo())
        return Head(method, path, query, given, memo=memo)


def document(answer: Answer) -> dict[str, Any]:
    parsed = json.loads(b"".join(answer.body))
    assert isinstance(parsed, dict)
    return parsed


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, document(answer)["error"]["code"]


def header(answer: Answer, name: bytes) -> bytes | None:
    return next((value for key, value in answer.headers if key == name), None)
