"""What has to change on a server so that it has what files declare, as a list of changes.

Owns the comparison and the order of the changes; sends nothing but reads.

Invariant: where every change of a plan was made, the next plan has none.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from topics.cli.apply_fields import DEFAULTS, KINDS, ONE, Declarations, Declared, is_same, normal
from topics.cli.exits import counted

if TYPE_CHECKING:
    from topics.client import Client

Action = Literal["create", "change", "unchanged", "delete", "refused"]

TIGHTENED: Final = ("ttl_ms", "cap_records", "cap_bytes")
"""Fields of a topic whose smaller value removes records at once; 0 is no bound."""


@dataclass(frozen=True, slots=True)
class Change:
    """One topic, router or schedule, and what happens to it.

    Attributes:
        fields: Old and new value of each field that differs; of a new one, what is no default.
        note: A consequence, or why it is refused; empty where there is none.
        removes: What the change destroys, for the question before it; empty where nothing is lost.
        declared: None where it is deleted.
        is_empty: Of a topic that is deleted: it has no records.
    """

    kind: str
    name: str
    action: Action
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    note: str = ""
    removes: str = ""
    declared: Declared | None = None
    is_empty: bool = False

    @property
    def title(self) -> str:
        return f"{ONE[self.kind]} {self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, in the order in which they are made; unchanged ones are among them."""

    changes: list[Change]

    def of(self, *actions: Action) -> list[Change]:
        return [change for change in self.changes if change.action in actions]

    @property
    def pending(self) -> list[Change]:
        """Changes that would be made."""
        return self.of("create", "change", "delete")


def make_plan(client: "Client", declarations: Declarations, *, prune: bool) -> Plan:
    """Compare what is declared with what the server has.

    Args:
        prune: Delete names that a scope holds, that are not declared, and that no declared item uses.
    """
    by_kind: dict[str, list[Declared]] = {kind: [] for kind in KINDS}
    for item in declarations.items:
        by_kind[item.kind].append(item)
    topics = [_topic(client, item) for item in by_kind["topics"]]
    routers = [_router(client, item) for item in by_kind["routers"]]
    schedules = [_schedule(client, item) for item in by_kind["schedules"]]
    gone = list(_pruned(client, declarations)) if prune else []
    first = [change for change in gone if change.kind != "topics"]
    last = [change for change in gone if change.kind == "topics"]
    # A router that goes makes room for another into its destination, and a topic takes those from
    # and to it along.
    return Plan([*first, *_leaves_first(topics), *routers, *schedules, *last])


# ---------------------------------------------------------------------- what the server has


def topic_config(client: "Client", name: str) -> dict[str, Any]:
    """A topic's config as the server shows it.

    Raises:
        TopicNotFound: There is none.
    """
    from topics.cli.topic import plain

    return plain(client.topic(name, touch=False).config)


def shown(client: "Client", kind: str, name: str) -> dict[str, Any]:
    """A router or a schedule as the server shows it, its numbers as they are there.

    Raises:
        TopicsError: There is none (`RouterNotFound`, `ScheduleNotFound`), or it cannot be had.
    """
    import json

    from topics.client.call import Call
    from topics.client.endpoints import router_path, schedule_path

    path = router_path(name) if kind == "routers" else schedule_path(name)
    found = client.session.do(Call("GET", path, json.loads))
    assert isinstance(found, dict)
    return found


# ---------------------------------------------------------------------- what differs


def _topic(client: "Client", item: Declared) -> Change:
    from topics.cli.topic import plain
    from topics.client import TopicNotFound

    try:
        state = client.topic(item.name, touch=False)
    except TopicNotFound:
        return _new(item)
    config = plain(state.config)
    old, new = normal("topics", config), item.normal
    if "partitions" not in item.body:
        new["partitions"] = old["partitions"]  # others let it grow, and it never shrinks
    fields = _differing(old, new)
    if refused := _why_refused(fields):
        return Change("topics", item.name, "refused", fields, refused, declared=item)
    tight = _tightened(fields) if state.count else ""
    removes = f"records of {item.name} by {tight}" if tight else ""
    note = f"{tight} takes records away at once" if tight else ""
    return _compared(item, fields, note, removes)


def _why_refused(fields: dict[str, tuple[Any, Any]]) -> str:
    if "type" in fields:
        return "the type of a topic is fixed: it has to be deleted and made again"
    before, after = fields.get("partitions", (0, 0))
    if after < before:
        return "the number of partitions only grows: the topic has to be deleted and made again"
    return ""


def _tightened(fields: dict[str, tuple[Any, Any]]) -> str:
    found: list[str] = [
        name
        for name in TIGHTENED
        if name in fields and fields[name][1] and not 0 < fields[name][0] <= fields[name][1]
    ]
    if fields.get("compact", (True, False))[1]:
        found.append("compact")
    return ", ".join(found)


def _router(client: "Client", item: Declared) -> Change:
    from topics.client import RouterNotFound

    try:
        found = shown(client, "routers", item.name)
    except RouterNotFound:
        return _new(item)
    fields = _differing(normal("routers", found), item.normal)
    moved = "source" in fields or "dest" in fields
    return _compared(item, fields, "it begins at the head of its source" if moved else "")


def _schedule(client: "Client", item: Declared) -> Change:
    from topics.client import ScheduleNotFound

    try:
        found = shown(client, "schedules", item.name)
    except ScheduleNotFound:
        at_ms = item.body.get("at")
        if at_ms is not None and at_ms <= time.time() * 1000:
            # The server deletes a schedule whose one tick has happened.
            return Change("schedules", item.name, "unchanged", note="it is over", declared=item)
        return _new(item)
    return _compared(item, _differing(normal("schedules", found), item.normal))


def _new(item: Declared) -> Change:
    defaults = DEFAULTS[item.kind]
    fields = {
        name: (None, value)
        for name, value in item.normal.items()
        if not is_same(value, defaults[name])
    }
    return Change(item.kind, item.name, "create", fields, declared=item)


def _compared(
    item: Declared, fields: dict[str, tuple[Any, Any]], note: str = "", removes: str = ""
) -> Change:
    action: Action = "change" if fields else "unchanged"
    return Change(item.kind, item.name, action, fields, note, removes, item)


def _differing(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (old[name], new[name]) for name in new if not is_same(old[name], new[name])}


# ---------------------------------------------------------------------- what is deleted


def _pruned(client: "Client", declarations: Declarations) -> Iterator[Change]:
    declared = {(item.kind, item.name) for item in declarations.items}
    used = set(_used(declarations.items))
    for kind in ("routers", "schedules", "topics"):
        prefixes = [scope.prefix for scope in declarations.scopes if scope.kind == kind]
        # Of two prefixes one of which begins with the other, the shorter is enough.
        for prefix in sorted(set(prefixes)):
            if any(prefix != other and prefix.startswith(other) for other in prefixes):
                continue
            for name in _names(client, kind, prefix):
                if (kind, name) not in declared and not (kind == "topics" and name in used):
                    yield from _deletion(client, kind, name)


def _used(items: Iterable[Declared]) -> Iterator[str]:
    """Topics that declared items name: the server makes them when they are needed."""
    for item in items:
        fields = ("dead_letter",) if item.kind == "topics" else ("source", "dest", "topic")
        yield from (name for field in fields if isinstance(name := item.body.get(field), str))


def _names(client: "Client", kind: str, prefix: str) -> list[str]:
    if kind == "topics":
        return [each.topic for each in client.topics(prefix=prefix)]
    if kind == "routers":
        return [each.router for each in client.routers(prefix=prefix)]
    return [each.schedule for each in client.schedules(prefix=prefix)]


def _deletion(client: "Client", kind: str, name: str) -> Iterator[Change]:
    """The change; none where another client deleted the topic meanwhile."""
    from topics.client import TopicNotFound

    if kind != "topics":
        yield Change(kind, name, "delete", removes=f"{ONE[kind]} {name}")
        return
    try:
        count = client.topic(name, touch=False).count
    except TopicNotFound:
        return
    routers = {each.router for each in client.routers(source=name)}
    routers |= {each.router for each in client.routers(dest=name)}
    what = counted(count, "record")
    if routers:
        what += f" and {counted(len(routers), 'router')} ({', '.join(sorted(routers))})"
    note, removes = f"with its {what}", f"{name} with its {what}"
    yield Change(kind, name, "delete", note=note, removes=removes, is_empty=count == 0)


# ---------------------------------------------------------------------- the order


def _leaves_first(topics: list[Change]) -> list[Change]:
    """Topics, each behind the topic that its dead letters go to.

    So no `PUT` closes a ring of dead letters that a later one would open: whatever lies behind a
    topic is as it is declared by then, and the files declare no ring.
    """
    by_name = {change.name: change for change in topics}
    ordered: dict[str, Change] = {}
    for change in topics:
        chain = []
        name = change.name
        while name in by_name and name not in ordered and name not in chain:
            chain.append(name)
            declared = by_name[name].declared
            name = (declared.body.get("dead_letter") if declared is not None else None) or ""
        ordered.update((each, by_name[each]) for each in reversed(chain))
    return list(ordered.values())
