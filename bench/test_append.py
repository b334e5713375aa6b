"""Appending, from the bytes of a body to the columns in memory, and through the exchange."""

from typing import Any

import pytest

from bench.desk import NOTHING_SEALED, Desk
from bench.loads import append, append_body, put
from topics.server.http.interface import Answer, Head

ONE = append_body(1, 64)
MANY = append_body(1000, 64)
KIB = append_body(1000, 1024)
TAGGED = append_body(1000, 64, tags=[f"kind{n}.item" for n in range(100)])


@pytest.fixture
def desk() -> Desk:
    """Nothing is written or sealed: what is timed is the engine."""
    desk = Desk.in_memory(NOTHING_SEALED)
    desk.run(put("t"))
    return desk


def appended(desk: Desk, body: bytes) -> None:
    desk.run(append("t", body))


@pytest.mark.parametrize(
    ("body", "what", "goal_text", "iterations"),
    [
        (ONE, "append, 1 x 64 B: decode, decide, render, columns", "<= 15 us", 200),
        (MANY, "append, 1000 x 64 B: decode, decide, render, columns", "<= 1 ms", 5),
        (TAGGED, "append, 1000 x 64 B with tags", "", 5),
        (KIB, "append, 1000 x 1 KiB", "", 2),
    ],
    ids=["one", "thousand", "thousand-tagged", "thousand-kib"],
)
def test_append(
    benchmark: Any, goal: Any, desk: Desk, body: bytes, what: str, goal_text: str, iterations: int
) -> None:
    goal(what, goal_text)
    rounds = 40 if iterations > 2 else 20
    before = desk.engine.state.records_total

    benchmark.pedantic(appended, (desk, body), rounds=rounds, iterations=iterations)

    assert desk.engine.state.records_total > before


@pytest.mark.parametrize(
    ("body", "what"),
    [(ONE, "decode of 1 x 64 B"), (MANY, "decode of 1000 x 64 B")],
    ids=["one", "thousand"],
)
def test_decode(benchmark: Any, goal: Any, body: bytes, what: str) -> None:
    goal(what, "")

    command = benchmark(append, "t", body)

    assert len(command.datas) in (1, 1000)


def answered(desk: Desk, head: Head, body: bytes) -> Answer:
    admitted = desk.exchange.begin(head)
    assert not isinstance(admitted, Answer)
    answer = admitted.finish([body])
    assert isinstance(answer, Answer)
    return answer


def head_of(path: bytes, body: bytes) -> Head:
    headers = [
        (b"host", b"127.0.0.1:4000"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    return Head("POST", path, b"", headers)


@pytest.mark.parametrize(
    ("body", "what", "iterations"),
    [
        (ONE, "append, 1 x 64 B, through the exchange", 200),
        (MANY, "append, 1000 x 64 B, through the exchange", 5),
    ],
    ids=["one", "thousand"],
)
def test_exchange(
    benchmark: Any, goal: Any, desk: Desk, body: bytes, what: str, iterations: int
) -> None:
    goal(what, "")

    answer = benchmark.pedantic(
        answered, (desk, head_of(b"/v0/topics/t", body), body), rounds=40, iterations=iterations
    )

    assert answer.status == 200
