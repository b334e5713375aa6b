"""Directories with damage in them, and jobs that stand in it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from server.runtime.test_runtime import LIMITS, put, told
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Command
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Answer, Head, Streaming
from topics.server.runtime.runtime import Runtime
from topics.store.layout import RUN_DTYPE, SEGMENT_HEADER
from topics.store.segment import TABLE_OFFSET


def rot(data_dir: Path, text: bytes) -> None:
    """Flip a bit of the first stored copy of a text in a segment."""
    for path in data_dir.glob("*.seg"):
        raw = bytearray(path.read_bytes())
        if (at := raw.find(text)) >= 0:
            raw[at] ^= 1
            path.write_bytes(raw)
            return
    raise AssertionError("no segment holds it")


LARGE = 20_000
"""Bytes of a record of which ten are not sealed together with small ones behind them."""


def rot_columns(data_dir: Path, topic_id: int) -> None:
    """Flip a bit among the columns of the first run of a topic in a segment."""
    for path in sorted(data_dir.glob("*.seg")):
        raw = bytearray(path.read_bytes())
        runs = SEGMENT_HEADER.unpack(raw[: SEGMENT_HEADER.size])[3]
        table = np.frombuffer(raw, RUN_DTYPE, runs, TABLE_OFFSET)
        for row in table[table["topic_id"] == topic_id][:1]:
            raw[int(row["section_offset"]) + 20] ^= 4
            del table, row
            path.write_bytes(raw)
            return
    raise AssertionError("no segment holds it")


def configured(topic: str, **config: object) -> Command:
    return parse_put(topic, orjson.dumps(config))


async def asked(runtime: Runtime, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Status and document of a POST, whenever it is answered."""
    headers = [(b"content-type", b"application/json")]
    admitted = TopicsExchange(runtime).begin(Head("POST", path.encode(), b"", headers))
    assert not isinstance(admitted, Answer)
    answer = admitted.finish([json.dumps(body).encode()])
    if not isinstance(answer, Answer):
        assert not isinstance(answer, Streaming)
        later: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.then(later.set_result)
        answer = await later
    return answer.status, json.loads(b"".join(answer.body))


JOBS = "/v0/topics/jobs"


BLOCK = 16 << 10
"""What lies this far from either end of a text shares its block with no other."""


async def queue(runtime: Runtime, n: int, **config: object) -> None:
    """Jobs 1 to n, with their number nine times in the middle of their texts."""
    await told(runtime, put("jobs", type="queue", lease_ms=60_000, **config))
    records = [{"data": "x" * BLOCK + f"{i}" * 9 + "x" * BLOCK} for i in range(1, n + 1)]
    body = json.dumps({"records": records}).encode()
    await told(runtime, parse_append("jobs", body, LIMITS, return_seqs=False, header_key=None))


def counters(runtime: Runtime) -> tuple[int, int, int]:
    """Ready, in flight, delayed."""
    topic = runtime.engine.state.topics["jobs"]
    queue = runtime.engine.state.queues[topic.topic_id]
    away = queue.in_flight + queue.delayed
    return topic.shown()[0] - away, queue.in_flight, queue.delayed


def shown_damaged(runtime: Runtime) -> int:
    """`damaged` in the topic's state; 0 if it is left out."""
    topic = runtime.engine.state.topics["jobs"]
    return runtime.engine.state.queues[topic.topic_id].damaged


def given(answer: dict[str, Any]) -> list[tuple[int, int]]:
    """(seq, deliveries) of the jobs of a response."""
    assert answer["count"] == len(answer["claimed"])
    return [(job["$seq"], job["deliveries"]) for job in answer["claimed"]]
