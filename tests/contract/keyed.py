"""A server with keys, and how it is asked with any of them."""

from collections.abc import Mapping
from typing import Any

from .access import SUBSETS, Row
from .api import dumps
from .server import Server
from .streams import Client, news
from .wire import Answer, Wire, ask

FULL, OTHER, INNER = "full-7f3a", "other-19bc", "inner-55d0"


def key_with(scopes: frozenset[str]) -> str:
    return "k-" + "-".join(sorted(scopes))


ENTRIES = (
    FULL,
    OTHER,
    f"{INNER}::in.|also:",
    *(f"{key_with(scopes)}:{'+'.join(sorted(scopes))}" for scopes in SUBSETS),
)


class Desk:
    """A server with keys, asked with any of them."""

    def __init__(self, server: Server, wire: Wire) -> None:
        self.server, self.wire = server, wire

    def ask(
        self, key: str | None, method: str, target: str, body: Any = None, **headers: str
    ) -> Answer:
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return ask(self.wire, method, target, b"" if body is None else dumps(body), headers)

    def row(self, row: Row, key: str | None, **other: str) -> Answer:
        target, body = row.filled(**other)
        return self.ask(key, row.method, target, body)

    def seen(self) -> Any:
        """Every topic, router, group and schedule with what a refusal must not change, as a key that may see all of
        them does; not what routers still copy."""
        topics = self.ask(FULL, "GET", "/v0/topics").json["topics"]
        routers = self.ask(FULL, "GET", "/v0/routers").json["routers"]
        ends = {each["router"]: (each["source"], each["dest"]) for each in routers}
        copies = {dest for _, dest in ends.values()}
        groups = self.ask(FULL, "GET", "/v0/groups").json["groups"]
        listed = self.ask(FULL, "GET", "/v0/schedules").json["schedules"]
        return (
            ends,
            groups,
            {each["schedule"]: (each["topic"], each["fired_total"]) for each in listed},
            {
                each["topic"]: each["topic"] in copies or (each["head_seq"], each["count"])
                for each in topics
            },
        )


def prepared(server: Server, wire: Wire) -> Desk:
    desk = Desk(server, wire)
    for name in ("in.log", "in.second", "out.log"):
        desk.ask(FULL, "PUT", f"/v0/topics/{name}", {})
    desk.ask(FULL, "PUT", "/v0/topics/in.queue", {"type": "queue"})
    for name, source, dest in (
        ("in.router", "in.log", "in.dest"),
        ("out.router", "out.log", "out.dest"),
        ("in.leak", "out.log", "out.other"),
    ):
        desk.ask(FULL, "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})
    for name, topic in (
        *(("in.schedule", "in.log"), ("out.schedule", "out.log"), ("in.leak", "out.log")),
        ("also:schedule", "in.log"),
    ):
        yearly = {"topic": topic, "record": {"data": 1}, "cron": "0 0 1 1 *"}
        desk.ask(FULL, "PUT", f"/v0/schedules/{name}", yearly)
    offsets = [{"topic": "in.log", "seq": 0}, {"topic": "out.log", "seq": 0}]
    for name in ("in.group", "out.group"):
        desk.ask(FULL, "POST", f"/v0/groups/{name}/commit", {"offsets": offsets})
    return desk


def said(client: Client, message: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The reply to a command; frames of what was subscribed before are passed over."""
    client.say(**message, request_id=7)  # type: ignore[attr-defined]
    for each in news(client):
        if each.fields.get("request_id") == 7:
            return each.kind, each.fields
    raise AssertionError("unreachable")
