"""The limits of §2 and §11, on servers on which they are small."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from .api import Api, by, tagged
from .conftest import PROTOCOLS
from .server import Server


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with small limits that seals all the time."""
    settings = {
        "max_batch_records": 5, "max_record_bytes": 100, "max_meta_bytes": 50, "max_tag_bytes": 10,
        "max_node_bytes": 8, "max_limit": 7, "max_body_bytes": 2000, "segment_max_records": 3,
        "segment_max_bytes": 4096,
    }  # fmt: skip
    with Server(tmp_path_factory.mktemp("small"), **settings) as server:
        yield server
        assert server.stop() == 0
        server.assert_log_is_quiet()


@pytest.fixture(params=PROTOCOLS)
def api(request: pytest.FixtureRequest, small: Server) -> Api:
    return Api(small.connect(PROTOCOLS[request.param]))


def test_every_limit_of_a_write_is_the_one_that_is_set(api: Api, name: str) -> None:
    """A write at the limit passes, and one past it is refused. (§2)"""
    path = f"/v0/topics/{name}"

    def told(*records: Mapping[str, object], **fields: object) -> tuple[int, str]:
        answer = api.ask("POST", path, {"records": list(records), **fields})
        return answer.status, answer.code if answer.status >= 400 else ""

    small, invalid = {"data": 1}, (400, "invalid_request")
    assert told(*[small] * 6) == (400, "batch_too_large")
    assert told({"data": "x" * 99}) == (400, "record_too_large")
    assert told({"data": 1, "meta": {"k": "x" * 43}}) == invalid
    assert told(tagged("x" * 11)) == invalid
    assert told(by("x" * 9)) == invalid
    assert told(small, node="x" * 9) == invalid
    assert api.refused("GET", path) == (404, "topic_not_found")
    assert told({"data": "x" * 1990}) == (413, "payload_too_large")
    api.wire.reset()
    assert told(*[small] * 5) == (201, "")
    fits = {"data": "x" * 48, "meta": {"k": "x" * 41}, "tag": "x" * 10, "node": "x" * 8}
    assert told(fits, {"data": "x" * 98}) == (200, "")
    page = api.diff(name, include_tags=True)
    assert [r["$seq"] for r in page["records"]] == [1, 2, 3, 4, 5, 6, 7]
    assert page["records"][5]["$tag"] == "x" * 10


def test_a_read_has_the_limit_that_is_set(api: Api, name: str) -> None:
    """A larger `limit` is clamped to it, and so is the default. (§3)"""
    for _ in range(4):
        api.append(name, *range(5))

    for fields in ({}, {"limit": 0}, {"limit": 7}, {"limit": 8}, {"limit": 2**40}):
        assert api.seqs(name, **fields) == [1, 2, 3, 4, 5, 6, 7]
    assert api.seqs(name, 6, limit=6) == [7, 8, 9, 10, 11, 12]


def test_reads_go_over_segments_as_over_memory(api: Api, name: str) -> None:
    """Pages, filters and deletes, with three records to a segment. (§3, §5)"""
    for i in range(20):
        api.append(name, tagged(f"t{i % 2}"), by("me"), tagged("k"))
    assert [r["$seq"] for r in api.walk(name, limit=4)] == list(range(1, 61))
    assert len(api.walk(name, match="t*")) == 20
    assert len(api.walk(name, node="me")) == 40
    assert api.delete(name, match="t1")["deleted"] == 10
    assert api.purge(name, filter="k", keep=3)["purged"] == 17
    assert api.delete(name, before_seq=31)["deleted"] == 15
    expected = [i for i in range(31, 61) if i % 6 in (1, 2, 5) or (i % 3 == 0 and i > 51)]

    assert [r["$seq"] for r in api.walk(name)] == expected
    assert api.state(name)["count"] == len(expected)


def refused_by(api: Api, name: str, **fields: object) -> dict[str, object]:
    """`detail` of a write that a limit throttled."""
    answer = api.ask("POST", f"/v0/topics/{name}", {"records": [{"data": 1}], **fields})
    assert (answer.status, answer.code) == (429, "throttled"), answer
    return dict(answer.error["detail"])


def test_topics_are_bounded(private: Callable[..., Server]) -> None:
    """429 with the limit's name for PUT and write alike; only new topics count, and a delete makes
    space. (§11)"""
    api = Api(private(max_topics=2).connect(PROTOCOLS["http1"]))
    api.put("a")
    api.append("b", 1)

    cap = {"limit": "max_topics", "max": 2}
    answer = api.ask("PUT", "/v0/topics/c", {})
    assert (answer.status, answer.error["detail"]) == (429, cap)
    assert refused_by(api, "c") == cap
    assert refused_by(api, "c", disable_backpressure=True) == cap
    api.put("a", ttl_ms=5_000_000)
    api.append("b", 2)
    api.drop("a")
    assert api.append("c", 1)["created"] is True


def test_bytes_are_bounded(private: Callable[..., Server]) -> None:
    """A write beyond the quota is 429; one that evicts as much as it adds is not. (§11)"""
    api = Api(private(max_total_bytes=1000).connect(PROTOCOLS["http2"]))
    api.append("a", "x" * 700)

    answer = api.ask("POST", "/v0/topics/b", {"records": [{"data": "x" * 300}]})
    assert (answer.status, answer.error["detail"]) == (
        429,
        {"limit": "max_total_bytes", "max": 1000},
    )
    assert api.refused("GET", "/v0/topics/b") == (404, "topic_not_found")
    api.append("b", "x" * 50)
    api.put("a", cap_records=1)
    api.append("a", "x" * 700)
    api.delete("a", before_seq=9)
    api.append("b", "x" * 700)


def test_keys_are_bounded(private: Callable[..., Server]) -> None:
    """A write with a key beyond the limit is 429; writes without one and repetitions continue.
    (§0.8, §11)"""
    api = Api(private(max_idempotency_keys=2).connect(PROTOCOLS["http1"]))
    api.append("a", 1, idempotency_key="k1")
    api.append("b", 1, idempotency_key="k2")

    cap = {"limit": "max_idempotency_keys", "max": 2}
    assert refused_by(api, "a", idempotency_key="k3") == cap
    assert api.append("a", 1, idempotency_key="k1")["deduped"] is True
    api.append("a", 2)
    api.put("c", idempotency_window_ms=0)
    api.append("c", 1, idempotency_key="k4")
    api.drop("b")
    assert api.append("a", 1, idempotency_key="k3")["deduped"] is False


def test_memory_is_bounded(private: Callable[..., Server]) -> None:
    """`ephemeral` records with `discard: old` are evicted; those that must be kept cause 429.
    (§0.10, §11)"""
    api = Api(private(hot_max_bytes=1 << 20).connect(PROTOCOLS["http1"]))
    api.put("old", durability="ephemeral")
    for _ in range(30):
        api.append("old", "x" * 100_000)
    state = api.state("old")
    assert 0 < state["count"] < 11
    assert api.diff("old")["tombstone"]["reason"] == "cap"
    api.drop("old")

    api.put("kept", durability="ephemeral", discard="reject")
    statuses = [
        api.ask("POST", "/v0/topics/kept", {"records": [{"data": "x" * 100_000}]}).status
        for _ in range(15)
    ]
    assert set(statuses[:10]) == {200}
    assert statuses[-1] == 429
    assert refused_by(api, "kept", records=[{"data": "x" * 100_000}])["limit"] == "max_hot_bytes"
    assert api.state("kept")["count"] == statuses.count(200)


def test_logged_records_are_sealed_before_they_push_back(private: Callable[..., Server]) -> None:
    """Many times the memory is written; a writer that is throttled and retries is admitted, and
    nothing is lost. (§0.6, §11)"""
    api = Api(private(hot_max_bytes=1 << 20, segment_max_bytes=1 << 18).connect(PROTOCOLS["http1"]))
    for i in range(100):
        body = {"records": [{"data": f"{i}" + "x" * 99_000}]}
        while (answer := api.write("POST", "/v0/topics/t", body)).status == 429:
            assert answer.error["detail"]["limit"] == "max_hot_bytes"
    assert [r["$seq"] for r in api.walk("t", limit=50)] == list(range(1, 101))


def test_zero_is_unlimited(private: Callable[..., Server], tmp_path: Path) -> None:
    """0 is no limit, for the limits of which §11 says so."""
    api = Api(private(max_topics=0, max_total_bytes=0).connect(PROTOCOLS["http1"]))
    for i in range(50):
        api.append(f"t{i}", "x" * 1000)

    assert api.ok("GET", "/v0/limits")["max_topics"] == 0
