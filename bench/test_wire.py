"""A short version of `python -m bench.wire`: each job against a server process of its own."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench.conftest import Scale
from bench.serving import Serving
from bench.wire import JOBS, Job, Lines, Round, Topics, best, http_reply, run_round

KEYS = (f"round-{n}" for n in range(1_000_000))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Topics().start(tmp_path_factory.mktemp("wire") / "home", fsync=False) as serving:
        yield serving


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_wire(benchmark: Any, report: Any, server: Serving, scale: Scale, job: Job) -> None:
    found: list[Round] = []

    def one_round() -> None:
        length = 0.3 if scale.rounds > 1 else 0.005
        found.append(run_round(job, Topics(), server, next(KEYS), length))

    benchmark.pedantic(one_round, rounds=min(scale.rounds, 3))

    fastest = best(found)
    assert fastest.units >= job.records * job.clients
    value = f"{fastest.rate:,.0f}/s, {fastest.cpu_us:.3g} us of server CPU"
    report(f"wire: {job.name}", value, "")


def test_a_reply_is_whole_with_its_last_byte(benchmark: Any) -> None:
    """The judges of replies wait for the last byte and refuse a refusal."""
    reply = bytearray(b"HTTP/1.1 200 \r\nContent-Length: 2\r\nx: y\r\n\r\n{}")
    refused = bytearray(b"HTTP/1.1 404 \r\ncontent-length: 0\r\n\r\n")

    assert benchmark(http_reply, reply)
    assert not http_reply(reply[:-1])
    with pytest.raises(ValueError, match="404"):
        http_reply(refused)


def test_lines_are_counted_once(benchmark: Any) -> None:
    """A reply that comes in pieces is whole with as many lines as it was said to have."""
    is_whole = Lines(2)
    piece = bytearray(b"$3\r\n")

    assert not is_whole(piece)
    assert is_whole(piece + b"0-1\r\n")
    with pytest.raises(ValueError, match="ERR"):
        benchmark(Lines(1), bytearray(b"-ERR no\r\n"))
