"""Routers, drawn: whenever somebody looks, they have forwarded what a naive world would have (§6).

In the naive world a record is in every topic it is to reach as soon as it is written: along each
router whose filter lets it through, unless it has been in that topic already.  In the real one it
is on its way, in slices that a rule may or may not let happen; who reads must not find that out.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocol.harness import Harness, refusal, tagged

NAMES = ("a", "b", "c", "d", "e")
TOPICS = st.sampled_from(NAMES)
TAGS = st.sampled_from((None, "x", "x.1", "y"))
FILTERS = st.sampled_from((None, None, "x", "x*", "y"))
ROUTERS = st.sampled_from(("r1", "r2", "r3", "r4", "r5", "r6"))
CLASSES = st.sampled_from(("disk", "fsync", "ephemeral", "memory"))
GUARANTEES = st.sampled_from(("at_least_once", "exactly_once"))


@dataclass
class Naive:
    """Topics as lists of (number, tag), routers as (source, dest, filter)."""

    topics: dict[str, list[int]] = field(default_factory=dict)
    routers: dict[str, tuple[str, str, str | None]] = field(default_factory=dict)
    forwarded: dict[str, int] = field(default_factory=dict)

    def write(self, name: str, number: int, tag: str | None, path: tuple[str, ...] = ()) -> None:
        self.topics[name].append(number)
        path = (*path, name)
        for router, (source, dest, only) in self.routers.items():
            if source == name and dest not in path and lets_through(only, tag):
                self.forwarded[router] += 1
                self.write(dest, number, tag, path)

    def drop(self, name: str) -> None:
        self.topics[name] = []
        for router, (source, dest, _) in list(self.routers.items()):
            if name in (source, dest):
                del self.routers[router], self.forwarded[router]


def lets_through(only: str | None, tag: str | None) -> bool:
    if only is None or tag is None:
        return only is None
    return tag.startswith(only[:-1]) if only.endswith("*") else tag == only


class Stories(RuleBasedStateMachine):
    """Five topics, up to six routers, rings welcome."""

    @initialize(classes=st.tuples(*[CLASSES] * len(NAMES)))
    def begin(self, classes: tuple[str, ...]) -> None:
        self.engine = Harness()
        self.naive = Naive()
        self.number = 0
        for name, durability in zip(NAMES, classes, strict=True):
            self.engine.put(name, durability=durability)
            self.naive.topics[name] = []

    @rule(name=TOPICS, tags=st.lists(TAGS, min_size=1, max_size=5))
    def write(self, name: str, tags: list[str | None]) -> None:
        first = self.number + 1
        self.number += len(tags)
        records = [tagged(tag, first + i) for i, tag in enumerate(tags)]
        self.engine.append(*records, name=name)
        for i, tag in enumerate(tags):
            self.naive.write(name, first + i, tag)

    @rule(name=TOPICS, count=st.sampled_from((300, 1100)))
    def write_many(self, name: str, count: int) -> None:
        first = self.number + 1
        self.number += count
        self.engine.append(*range(first, first + count), name=name)
        for number in range(first, first + count):
            self.naive.write(name, number, None)

    @rule(router=ROUTERS, source=TOPICS, dest=TOPICS, only=FILTERS, guarantee=GUARANTEES)
    def route(self, router: str, source: str, dest: str, only: str | None, guarantee: str) -> None:
        if source == dest:
            return
        config = {"filter": only, "guarantee": guarantee, "allow_cycle": True}
        others = [route for name, route in self.naive.routers.items() if name != router]
        if any(d == dest and s != source for s, d, _ in others):
            refused = refusal(self.engine.route, router, source, dest, **config)
            assert refused.detail is not None
            assert refused.detail["reason"] == "router_dest_fan_in"
            return
        self.engine.route(router, source, dest, **config)
        self.naive.routers[router] = (source, dest, only)
        self.naive.forwarded.setdefault(router, 0)

    @rule(router=ROUTERS)
    def unroute(self, router: str) -> None:
        told = self.engine.unroute(router)
        assert told["deleted"] is (router in self.naive.routers)
        self.naive.routers.pop(router, None)
        self.naive.forwarded.pop(router, None)

    @rule(name=TOPICS, durability=CLASSES)
    def recreate(self, name: str, durability: str) -> None:
        self.engine.drop(name)
        self.naive.drop(name)
        self.engine.put(name, durability=durability)

    @rule()
    def work(self) -> None:
        """One slice of what is owed."""
        self.engine.engine.work_off(self.engine.moment)
        self.engine.sync()

    @rule()
    def seal(self) -> None:
        self.engine.seal_all()

    @rule(name=TOPICS)
    def read(self, name: str) -> None:
        """Everything written anywhere upstream is there, as often as there are ways to it."""
        found: list[Any] = self.engine.datas(name, limit=1000)
        assert sorted(found) == sorted(self.naive.topics[name])
        state = self.engine.state(name)
        assert state["head_seq"] == state["count"] == len(found)

    @rule(router=ROUTERS)
    def look(self, router: str) -> None:
        if router in self.naive.routers:
            told = self.engine.router(router)
            assert told["forwarded_total"] == self.naive.forwarded[router]
            assert (told["lag"], told["lost_total"], told["blocked"]) == (0, 0, None)

    @invariant()
    def rests_at_last(self) -> None:
        """What is owed comes to an end."""
        if not hasattr(self, "engine") or self.number % 3:
            return
        self.engine.work_off()
        for name in NAMES:
            self.read(name)
            assert not self.engine.engine.has_work()


TestStories = Stories.TestCase
TestStories.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
