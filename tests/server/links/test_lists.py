"""Lists on their way to another process: exact, whatever the topics are. (§1.3, §6.3)"""

from typing import Any

import msgspec
import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sim.files import SimFiles

from server.readers.writing import LIMITS, Writer, appended, deleted, put
from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.answers import text_of
from topics.protocol.faces.http.queues import parse_claim, parse_nack
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import GetTopic, ListRouters, ListTopics
from topics.protocol.model.outcomes import TopicFigures, TopicSummary
from topics.protocol.model.permission import permitted
from topics.server.links.codec import (
    decode_command,
    decode_outcome,
    encode_command,
    encode_outcome,
)

KINDS: dict[str, dict[str, object]] = {
    "a:log": {},
    "a:queue": {
        "type": "queue",
        "lease_ms": 1000,
        "max_deliveries": 1,
        "dead_letter": "b:dead",
    },
    "a:spoilt": {"type": "queue", "lease_ms": 500},
    "b:brief": {"ttl_ms": 700},
    "b:brief-queue": {"type": "queue", "ttl_ms": 700, "lease_ms": 300},
    "b:capped": {"cap_records": 3},
    "b:dead": {},
    "b:quick": {"durability": "ephemeral"},
    "b:sure": {"durability": "fsync"},
    "b:sworn": {"durability": "fsync", "type": "queue", "leases_durable": True},
    "c:copy": {},
    "c:hot": {"priority": 700},
}
NAMES = sorted(KINDS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(NAMES), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.integers(1, 9)),
        st.tuples(st.just("claim"), st.sampled_from(NAMES), st.integers(1, 3)),
        st.tuples(st.just("nack"), st.sampled_from(NAMES), st.integers(0, 900)),
        st.tuples(st.just("spoil"), st.sampled_from(NAMES), st.integers(100, 900)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 800)),
        st.tuples(st.just("read"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("change"), st.sampled_from(NAMES), st.integers(1, 3)),
        st.tuples(st.just("slow"), st.just(""), st.integers(0, 1)),
    ),
    max_size=25,
)


def do(writer: Writer, kind: str, name: str, number: int, claims: dict[str, list[Reply]]) -> None:
    config = KINDS.get(name, {})
    is_queue = config.get("type") == "queue"
    match kind:
        case "append":
            writer.do(appended(name, *range(number)))
        case "delete":
            writer.do(deleted(name, before_seq=number))
        case "claim" if is_queue:
            asks = {"node": "w", "max": number, "wait_ms": 0}
            # That of a lease that is durable comes with its sync.
            claims[name] = writer.do(parse_claim(name, orjson.dumps(asks), LIMITS))
        case "nack" if seqs := granted(claims.pop(name, [])):
            asks = {"node": "w", "seqs": seqs, "delay_ms": number}
            writer.do(parse_nack(name, orjson.dumps(asks), LIMITS))
        case "spoil" if is_queue:
            state = writer.driver.engine.state
            queue = state.queues[state.topics[name].topic_id]
            queue.settle(writer.now_ms)
            for job in list(queue.jobs.values()):
                if job.place.name == "AGAIN":
                    queue.spoil(job, writer.now_ms + number)
        case "pass":
            writer.advance(number)
            writer.settle()
        case "read":
            diff = parse_diff(name, b'{"from_seq":0}', LIMITS)
            writer.do(diff)
        case "change":
            writer.do(put(name, **config, cap_bytes=100 * number))
        case "slow":
            writer.is_slow = bool(number)
            if not number:
                writer.sync_now()


def granted(replies: list[Reply]) -> list[int]:
    """The jobs that a claim got, if it has its answer."""
    found = [getattr(reply.result, "jobs", None) for reply in replies]
    return [seq for jobs in found if jobs is not None for seq in jobs.grant.seqs]


def page(writer: Writer, command: ListTopics | ListRouters) -> Any:
    """What the engine shows, without being touched by the question."""
    if isinstance(command, ListTopics):
        command = msgspec.structs.replace(command, touch=False)
    reply: Any = writer.driver.submit(command, lambda _: None)
    return reply.result


def summary(writer: Writer, name: str) -> TopicSummary:
    """What a list has to say of a topic, from what the topic itself shows."""
    engine = writer.driver.engine
    asked = GetTopic(name, touch=False)
    shown: Any = engine.submit(asked, token=None, moment=writer.driver.moment)
    view, config = shown.view, shown.view.config
    figures = TopicFigures(
        name,
        config.type,
        config.durable,
        config.durability,
        view.head_seq,
        view.earliest_seq,
        view.count,
        view.size_bytes,
        view.disk_bytes,
    )
    return TopicSummary(figures, view.priority, view.jobs)


ASKS: list[ListTopics | ListRouters] = [
    ListTopics("", 1000, ""),
    ListTopics("", 3, "a:log"),
    ListTopics("b:", 5, "", caller=Caller("k", prefixes=("a:", "b:s"))),
    ListTopics("", 5, "", caller=Caller("k", prefixes=("c:",))),
    ListTopics("none", 5, ""),
    ListTopics("b:b", 2, "", touch=True),
    ListRouters("", 10, "", None, None),
    ListRouters("", 10, "", "a:log", None, caller=Caller("k", prefixes=("b:",))),
]


@settings(max_examples=60, deadline=None)
@given(STEPS)
@example(
    [
        ("append", "b:sworn", 2),
        ("slow", "", 1),
        ("claim", "b:sworn", 1),
        ("slow", "", 0),
        ("nack", "b:sworn", 9),
    ]
)
def test_a_page_is_the_engines_whatever_the_topics_are(steps: list[tuple[str, str, int]]) -> None:
    """Queues with jobs that are leased, delayed, damaged, dead-lettered; records that expire; what is
    in memory only, waits for a sync, or was copied: another process's page is that of the moment in
    which the engine decides it, byte for byte; and that page says what each of its topics shows.
    (§0.2, §0.10, §1.3, §10.7)"""
    writer, claims = Writer(SimFiles()), dict[str, list[Reply]]()
    for name in NAMES:
        writer.do(put(name, **KINDS[name]))
    route = {"source": "a:log", "dest": "c:copy"}
    writer.do(parse_put_router("flow", orjson.dumps(route), LIMITS))
    for step in steps:
        do(writer, *step, claims)
        for command in ASKS:
            there = page(writer, command)
            for each in getattr(there, "topics", ()):
                assert each == summary(writer, each.figures.name)
            kind, head, _ = encode_command(command)
            asked: Any = permitted(decode_command(kind, head), command.caller)  # type: ignore[type-var]
            assert asked == command
            found = decode_outcome(*encode_outcome(page(writer, asked)))
            assert text_of(found) == text_of(there)
