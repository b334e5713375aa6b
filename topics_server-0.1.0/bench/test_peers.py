"""A short version of `python -m bench.peers`: each job, against this server and what is installed."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from bench.conftest import Scale
from bench.peers.__main__ import OTHERS, cells, run_job
from bench.peers.jobs import JOBS, Appends, Job, Round, offers
from bench.peers.topics import Topics, http_reply
from bench.peers.wording import Lines
from bench.serving import Serving

KEYS = (f"round-{n}" for n in count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Topics().start(tmp_path_factory.mktemp("wire") / "home", fsync=False) as serving:
        yield serving


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_this_server(benchmark: Any, report: Any, server: Serving, scale: Scale, job: Job) -> None:
    found: list[Round] = []

    def one_round() -> None:
        length = 0.3 if scale.rounds > 1 else 0.005
        found.append(job.run(Topics(), server, next(KEYS), length))

    benchmark.pedantic(one_round, rounds=min(scale.rounds, 3))

    fastest = max(found, key=lambda each: each.rate)
    assert fastest.units >= 1
    value = f"{fastest.rate:,.0f}/s, {fastest.cpu_us:.3g} us of server CPU"
    report(f"wire: {job.name}", value, "")


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.name)
def test_another_server(benchmark: Any, tmp_path: Any, kind: Any) -> None:
    """Each job that it offers comes to its end, with as many units as were asked for."""
    if not kind.is_installed():
        pytest.skip(f"{kind.name} is not installed")
    peer = kind()
    jobs = [job for job in JOBS if offers(peer, job) and not job.fsync]

    def all_jobs() -> list[dict[str, list[Round]]]:
        return [
            run_job(job, [peer], tmp_path / f"{n}", rounds=1, scale=0.005)
            for n, job in enumerate(jobs)
        ]

    for job, done in zip(jobs, benchmark.pedantic(all_jobs, rounds=1), strict=True):
        [found] = done[peer.name]
        assert found.units >= 1, job.name


def test_a_row_has_a_cell_for_each_server_and_a_ratio_to_each_other(benchmark: Any) -> None:
    """A server that does not offer the job has a dash."""
    job = Appends("appends", 10)
    peers = [Topics("a"), Topics("b"), Topics("c")]
    done = {"a": [Round(100, 1.0, 0.001)], "b": [Round(50, 1.0, 0.0)]}

    row = benchmark(lambda: list(cells(job, peers, done)))

    assert row == ["appends", "100/s · 10 µs", "50/s", "–", "2.00", "–"]


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
    is_whole = Lines(2, b"-")
    piece = bytearray(b"$3\r\n")

    assert not is_whole(piece)
    assert is_whole(piece + b"0-1\r\n")
    with pytest.raises(ValueError, match="ERR"):
        benchmark(Lines(1, b"-"), bytearray(b"-ERR no\r\n"))
