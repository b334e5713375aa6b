"""The contract's calls in short, for tests whose subject is not the wire.

Each returns the checked answer's object after asserting that it succeeded; `ask` is for the rest.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from .wire import Answer, Headers, Wire, ask

ABSENT: Final = object()


def dumps(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def text_of(body: object) -> bytes | Iterable[bytes]:
    """A body as bytes: bytes and iterators as they are, anything else as JSON."""
    if isinstance(body, bytes):
        return body
    if body is ABSENT:
        return b""
    return dumps(body) if isinstance(body, dict | list | str | int | None) else body  # type: ignore[return-value]


class Api:
    """A server, asked over one wire."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def ask(
        self, method: str, target: str, body: object = ABSENT, headers: Headers | None = None
    ) -> Answer:
        return ask(self.wire, method, target, text_of(body), headers)

    def write(self, method: str, target: str, body: object = ABSENT) -> Answer:
        """An answer that lasts: a write that is only paced (429 without a limit's name: the log or the
        disk is behind for some milliseconds, §0.6) is tried again."""
        while True:
            answer = self.ask(method, target, body)
            if answer.status != 429 or "limit" in answer.error["detail"]:
                return answer

    def ok(self, method: str, target: str, body: object = ABSENT) -> Any:
        answer = self.ask(method, target, body)
        assert answer.status in (200, 201), answer
        return answer.json

    def refused(self, method: str, target: str, body: object = ABSENT) -> tuple[int, str]:
        """(status, code) of a request that must fail."""
        answer = self.ask(method, target, body)
        return answer.status, answer.code

    def put(self, name: str, **config: object) -> Any:
        return self.ok("PUT", f"/v0/topics/{name}", config)

    def state(self, name: str, query: str = "?touch=false") -> Any:
        return self.ok("GET", f"/v0/topics/{name}{query}")

    def append(self, name: str, *datas: object, **fields: object) -> Any:
        """Records with these `data`; a dict that has a `data` key is a whole record."""
        records = [d if isinstance(d, dict) and "data" in d else {"data": d} for d in datas]
        return self.ok("POST", f"/v0/topics/{name}", {"records": records, **fields})

    def diff(self, name: str, from_seq: int = 0, **fields: object) -> Any:
        return self.ok("POST", f"/v0/topics/{name}/diff", {"from_seq": from_seq, **fields})

    def seqs(self, name: str, from_seq: int = 0, **fields: object) -> list[int]:
        return [r["$seq"] for r in self.diff(name, from_seq, **fields)["records"]]

    def delete(self, name: str, **fields: object) -> Any:
        return self.ok("POST", f"/v0/topics/{name}/delete", fields)

    def purge(self, name: str, **fields: object) -> Any:
        return self.ok("POST", f"/v0/topics/{name}/purge", fields)

    def drop(self, name: str) -> Any:
        return self.ok("DELETE", f"/v0/topics/{name}")

    def walk(self, name: str, from_seq: int = 0, **fields: object) -> list[Any]:
        """Every record, and every tombstone in its place, until caught up."""
        found: list[Any] = []
        while True:
            page = self.diff(name, from_seq, **fields)
            if page["tombstone"] is not None:
                found.append(page["tombstone"])
            found += page["records"]
            assert page["next_from_seq"] >= from_seq or page["tombstone"]["reason"] == "recreated"
            from_seq = page["next_from_seq"]
            if page["caught_up"]:
                assert from_seq == page["head_seq"]
                return found


def tagged(tag: str, data: object = None) -> dict[str, object]:
    return {"data": data, "tag": tag}


def by(node: str, data: object = None) -> dict[str, object]:
    return {"data": data, "node": node}
