"""Topics: config, state, deletion (§0.8, §0.10, §1)."""

from typing import Any

import pytest

from .api import Api
from .wire import Http2, check

DEFAULTS = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old",
    "durable": False, "durability": "disk", "priority": None, "auto_priority": True,
    "auto_create": True, "idempotency_window_ms": 120_000, "dedupe_node": True, "lease_ms": 30_000,
    "claim_jitter_ms": 0, "max_deliveries": 0, "dead_letter": None, "leases_durable": False,
}  # fmt: skip
OTHER = {
    "type": "log", "ttl_ms": 1, "cap_records": 2, "cap_bytes": 3, "discard": "reject",
    "durable": True, "durability": "fsync", "priority": -7, "auto_priority": False,
    "auto_create": False, "idempotency_window_ms": 4, "dedupe_node": False, "lease_ms": 500,
    "claim_jitter_ms": 6, "max_deliveries": 7, "dead_letter": "elsewhere", "leases_durable": True,
    "max_message_bytes": 8, "message_timestamp_type": "LogAppendTime",
    "kafka_configs": {"segment.ms": "9"},
    "partitions": 1, "compact": False,
}  # fmt: skip


def test_a_put_of_nothing_takes_every_default(api: Api, name: str) -> None:
    """201, `created`, and the full config in the response. (§0.10, §1.1)"""
    answer = api.ask("PUT", f"/v0/topics/{name}", {})

    assert answer.status == 201
    told = answer.json
    del told["performance"]
    assert told == {"topic": name, "created": True, "config": DEFAULTS}


def test_an_identical_put_changes_nothing(api: Api, name: str) -> None:
    """200 and `created: false`. (§0.8)"""
    for config in (DEFAULTS, OTHER):
        api.put(name, **config)
        answer = api.ask("PUT", f"/v0/topics/{name}", config)
        assert answer.status == 200
        assert (answer.json["created"], answer.json["config"]) == (False, config)


def test_a_put_replaces_the_whole_config(api: Api, name: str) -> None:
    """A field that is left out returns to its default; null is the same as left out. (§1.1)"""
    assert api.put(name, **OTHER)["config"] == OTHER
    assert api.state(name)["config"] == OTHER

    answer = api.ask("PUT", f"/v0/topics/{name}", {"ttl_ms": 5, "cap_records": None})

    assert answer.status == 200
    assert answer.json["config"] == DEFAULTS | {"ttl_ms": 5}
    assert api.state(name)["config"] == DEFAULTS | {"ttl_ms": 5}


@pytest.mark.parametrize(
    ("given", "durable", "durability"),
    [
        ({}, False, "disk"),
        ({"durable": True}, True, "fsync"),
        ({"durable": False}, False, "disk"),
        ({"durability": "ephemeral"}, False, "ephemeral"),
        ({"durability": "memory"}, False, "memory"),
        ({"durability": "disk", "durable": True}, False, "disk"),
        ({"durability": "fsync", "durable": False}, True, "fsync"),
        ({"durability": "ephemeral", "durable": True}, False, "ephemeral"),
        ({"durability": None, "durable": True}, True, "fsync"),
    ],
)
def test_durability_goes_before_durable(
    api: Api, name: str, given: dict[str, Any], durable: bool, durability: str
) -> None:
    """`durability` overrides `durable`, and `durable` always says whether the class is `fsync`.
    (§0.10)"""
    config = api.put(name, **given)["config"]

    assert (config["durable"], config["durability"]) == (durable, durability)
    (listed,) = api.ok("GET", f"/v0/topics?prefix={name}")["topics"]
    assert listed["durable"] is durable


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("priority", 1000, 1000), ("priority", 1001, 1000), ("priority", -1001, -1000),
        ("priority", 2**40, 1000), ("lease_ms", 0, 100), ("lease_ms", 99, 100),
        ("lease_ms", 86_400_001, 86_400_000), ("claim_jitter_ms", 5000, 5000),
        ("claim_jitter_ms", 5001, 5000), ("lease_ms", 2**64, 86_400_000),
        ("claim_jitter_ms", 2**64, 5000), ("ttl_ms", 2**64 - 1, 2**64 - 1), ("ttl_ms", 2**63, 2**63),
    ],
)  # fmt: skip
def test_clamped_fields_are_echoed_clamped(
    api: Api, name: str, field: str, given: int, kept: int
) -> None:
    """A value that is too large is clamped, not refused, and returned so. (§0.10)"""
    assert api.put(name, **{field: given})["config"][field] == kept
    assert api.state(name)["config"][field] == kept


def test_a_ttl_beyond_the_end_of_time_means_never(api: Api, name: str) -> None:
    """A TTL may be up to 2^64 - 1, and then nothing expires. (§0.10)"""
    api.put(name, ttl_ms=2**64 - 1)
    api.append(name, 1)

    assert api.seqs(name) == [1]


def test_the_type_is_the_one_immutable_field(api: Api, name: str) -> None:
    """409 either way, with nothing changed; it stays if it is left out. (§1.1)"""
    path = f"/v0/topics/{name}"
    incompatible = (409, "topic_exists_incompatible")
    api.put(name, ttl_ms=7_000_000)
    assert api.refused("PUT", path, {"type": "queue"}) == incompatible
    assert api.state(name)["config"]["ttl_ms"] == 7_000_000

    queue = f"{name}q"
    api.put(queue, type="queue")
    assert api.refused("PUT", f"/v0/topics/{queue}", {"type": "log"}) == incompatible
    assert api.put(queue, ttl_ms=1)["config"]["type"] == "queue"
    assert api.state(queue)["type"] == "queue"


def test_configs_of_kafka_are_those_that_no_field_says(api: Api, name: str) -> None:
    """Kept as Kafka's clients are shown them; what a field says otherwise is 400. (§0.10)"""
    texts = {"segment.ms": " 7 ", "retention.ms": "-1"}
    kept = api.put(name, kafka_configs=texts)["config"]["kafka_configs"]
    assert kept == {"segment.ms": "7", "retention.ms": "-1"}
    path = f"/v0/topics/{name}"
    for wrong in ({"no.such": "5"}, {"segment.ms": "x"}, {"retention.ms": "5"}):
        for body in ({"kafka_configs": wrong}, {"kafka_configs": wrong, "ttl_ms": 6}):
            assert api.refused("PUT", path, body) == (400, "invalid_request")
    assert api.state(name)["config"]["kafka_configs"] == kept


def test_a_dead_letter_topic_is_another_topic(api: Api, name: str) -> None:
    """A queue that names itself as its dead-letter topic is 400. (§1.1)"""
    body = {"type": "queue", "dead_letter": name}
    assert api.refused("PUT", f"/v0/topics/{name}", body) == (400, "invalid_request")


def test_the_state_of_a_fresh_topic(api: Api, name: str) -> None:
    """head 0, earliest 1, next 1, never written or read. (§1.2)"""
    api.put(name)
    state = api.state(name)
    epoch = state.pop("epoch")
    del state["performance"]

    assert isinstance(epoch, str)
    assert 0 < len(epoch) <= 32
    assert state == {
        "topic": name, "type": "log", "head_seq": 0, "earliest_seq": 1, "next_seq": 1, "count": 0,
        "bytes": 0, "disk_bytes": 0, "segments": 0, "lost_24h": [], "config": DEFAULTS, "effective_priority": 0, "last_write_ts": None,
        "last_read_ts": None,
    }  # fmt: skip


def test_the_state_follows_the_records(api: Api, name: str) -> None:
    """`next_seq - 1` is the tail; count and bytes are of live records. (§1.2)"""
    api.append(name, "a", "b", "c")
    full = api.state(name)
    api.delete(name, before_seq=2)
    state = api.state(name)

    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (3, 2, 4)
    assert (full["count"], state["count"]) == (3, 2)
    assert state["bytes"] * 3 == full["bytes"] * 2
    assert api.seqs(name, state["next_seq"] - 1) == []
    api.delete(name, before_seq=9)
    gone = api.state(name)
    assert (gone["head_seq"], gone["earliest_seq"], gone["count"], gone["bytes"]) == (3, 4, 0, 0)
    assert api.append(name, "d")["seqs"] == [4]


def test_reading_state_touches_unless_told_otherwise(api: Api, name: str) -> None:
    """`touch` feeds the automatic priority; a manual one overrides it. (§0.10, §1.2)"""
    api.put(name)
    assert api.state(name, "?touch=false")["last_read_ts"] is None
    assert api.state(name, "?touch=false")["last_read_ts"] is None
    assert api.state(name, "")["last_read_ts"] is None  # as it was before this one
    touched = api.state(name, "?touch=false")
    assert touched["last_read_ts"] is not None
    assert touched["effective_priority"] > 0
    api.put(name, priority=-3)
    assert api.state(name)["effective_priority"] == -3
    api.put(name, auto_priority=False)
    assert api.state(name)["effective_priority"] == 0


def test_a_read_touches(api: Api, name: str) -> None:
    """A diff sets `last_read_ts`. (§3)"""
    api.append(name, 1)
    assert api.state(name)["last_read_ts"] is None
    api.diff(name)
    assert api.state(name)["last_read_ts"] is not None


def test_reads_and_deletes_never_create(api: Api, name: str) -> None:
    """404 `topic_not_found`, and the topic still does not exist. (§1.2, §3, §5)"""
    missing = (404, "topic_not_found")
    path = f"/v0/topics/{name}"
    assert api.refused("GET", path) == missing
    assert api.refused("POST", f"{path}/diff", {}) == missing
    assert api.refused("POST", f"{path}/delete", {"before_seq": 1}) == missing
    assert api.refused("POST", f"{path}/purge", {}) == missing
    answer = api.ask("GET", path)
    assert answer.error["detail"] == {"topic": name}
    assert api.ok("GET", f"/v0/topics?prefix={name}")["topics"] == []


def test_deleting_a_topic(api: Api, name: str) -> None:
    """Idempotent; the response says whether the topic existed. (§1.4)"""
    api.append(name, 1)
    told = [api.drop(name) for _ in range(2)]
    for one in told:
        del one["performance"]

    assert told == [
        {"topic": name, "deleted": True, "routers_removed": []},
        {"topic": name, "deleted": False, "routers_removed": []},
    ]
    assert api.refused("GET", f"/v0/topics/{name}") == (404, "topic_not_found")


def test_deleting_only_what_is_empty(api: Api, name: str) -> None:
    """`if_empty`: 409 while the topic has a live record; deleted ones do not count. (§1.4)"""
    path = f"/v0/topics/{name}?if_empty=true"
    api.append(name, 1)
    assert api.refused("DELETE", path) == (409, "topic_not_empty")
    assert api.seqs(name) == [1]
    api.delete(name, before_seq=2)
    assert api.ok("DELETE", path)["deleted"] is True
    assert api.ok("DELETE", path)["deleted"] is False


def test_a_new_instance_begins_anew(api: Api, name: str) -> None:
    """Seqs restart at 1, with another epoch and the default config. (§1.4)"""
    api.put(name, ttl_ms=9_000_000)
    api.append(name, 1, 2)
    before = api.state(name)
    api.drop(name)
    assert api.append(name, "new")["seqs"] == [1]
    after = api.state(name)

    assert before["epoch"] != after["epoch"]
    assert after["config"] == DEFAULTS
    assert [r["data"] for r in api.diff(name)["records"]] == ["new"]


def test_a_queue_shows_its_counters(api: Api, name: str) -> None:
    """The `queue` object is in the state of a queue, and of no log. (§1.2, §10.7)"""
    api.put(name, type="queue")
    api.append(name, 1, 2)

    state = api.state(name)
    assert state["queue"] == {"ready": 2, "in_flight": 0, "dead_lettered": 0}
    assert api.seqs(name) == [1, 2]


# Lists (§0.7, §1.3).


def listed(api: Api, query: str) -> list[list[str]]:
    """Pages of names, to the last."""
    pages, cursor = [], ""
    while True:
        page = api.ok("GET", f"/v0/topics?{query}{cursor}")
        pages.append([item["topic"] for item in page["topics"]])
        if "next_cursor" not in page:
            return pages
        cursor = f"&cursor={page['next_cursor']}"


def all_at_once(api: Api, method: str, names: list[str], status: int) -> None:
    """The same call for many topics, fifty streams of one connection at a time."""
    wire = Http2(api.wire.port)
    for at in range(0, len(names), 50):
        some = names[at : at + 50]
        for topic in some:
            wire.send(method, f"/v0/topics/{topic}")
        assert [check(wire.receive()).status for _ in some] == [status] * len(some)
    wire.reset()


def test_a_list_tells_summaries(api: Api, name: str) -> None:
    """Each entry has head, earliest, count, bytes, durable, priority. (§1.3)"""
    api.append(name, 1, 2)
    state = api.state(name)
    (item,) = api.ok("GET", f"/v0/topics?prefix={name}")["topics"]

    shared = ("topic", "head_seq", "earliest_seq", "count", "bytes", "effective_priority")
    assert {key: item[key] for key in shared} == {key: state[key] for key in shared}
    assert item["durable"] is False
    assert api.state(name)["last_read_ts"] is None


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 1000])
def test_pages_are_full_and_the_last_has_no_cursor(api: Api, name: str, size: int) -> None:
    """In the order of the names; a page without `next_cursor` is the last. (§0.7)"""
    names = sorted(f"{name}:{i}" for i in range(5))
    for topic in reversed(names):
        api.put(topic)

    pages = listed(api, f"prefix={name}:&page_size={size}")

    assert pages == [names[at : at + size] for at in range(0, 5, size)]
    for topic in names:
        api.drop(topic)


def test_prefixes(api: Api, name: str) -> None:
    """Bytes from the start of the name; the empty prefix matches all; no match is no error.
    (§1.3)"""
    for topic in (f"{name}", f"{name}:a", f"{name}:b", f"{name}:B"):
        api.put(topic)

    assert listed(api, f"prefix={name}:") == [[f"{name}:B", f"{name}:a", f"{name}:b"]]
    assert listed(api, f"prefix={name}%3aa") == [[f"{name}:a"]]
    assert listed(api, f"prefix={name}:c") == [[]]
    assert listed(api, "prefix=%C3%A9") == [[]]
    assert listed(api, "prefix=zzzz/") == [[]]
    assert name in {n for page in listed(api, "prefix=") for n in page}


def test_a_page_has_a_hundred_unless_told(api: Api, name: str) -> None:
    """`page_size` is 100 by default and at most 1000; 0 is the default. (§0.7)"""
    names = [f"{name}:{i:04}" for i in range(1001)]
    all_at_once(api, "PUT", names, 201)
    sizes = {
        query: len(listed(api, f"prefix={name}:{query}")[0])
        for query in (
            "",
            "&page_size=0",
            "&page_size=1000",
            "&page_size=1001",
            f"&page_size={2**63}",
        )
    }

    assert list(sizes.values()) == [100, 100, 1000, 1000, 1000]
    all_at_once(api, "DELETE", names, 200)


def test_a_walk_is_stable_under_churn(api: Api, name: str) -> None:
    """A topic that exists throughout is listed once, whatever is created and deleted meanwhile, the
    cursor's own topic included. (§0.7)"""
    stays = [f"{name}:{i:02}:stays" for i in range(10)]
    for topic in stays:
        api.put(topic)
    seen: list[str] = []
    cursor = ""
    while True:
        page = api.ok("GET", f"/v0/topics?prefix={name}:&page_size=3{cursor}")
        seen += [item["topic"] for item in page["topics"]]
        if "next_cursor" not in page:
            break
        cursor = f"&cursor={page['next_cursor']}"
        last = seen[-1]
        api.put(f"{name}:00:before{len(seen)}")
        api.put(f"{last}x")
        if not last.endswith("stays"):
            api.drop(last)

    assert [topic for topic in seen if topic.endswith("stays")] == stays
    assert len(seen) == len(set(seen))
    assert not any("before" in topic for topic in seen[1:])


@pytest.mark.parametrize(
    "cursor",
    [
        "x", "", "%00", "eyJ", "bnVsbA==", "W10=", "e30=", "eyJhZnRlciI6MX0=",
        "eyJhZnRlciI6ImpvYnMifQ=x", "eyJhZnRlciI6ImpvYnMifQ", "%C3%A9", "/" * 100, "W" * 5000,
        "!!eyJhZnRlciI6ImpvYnMifQ==", "eyJhZnRlciI6ImpvYnMifQ==eyJhZnRlciI6ImpvYnMifQ==",
    ],
)  # fmt: skip
def test_a_corrupt_cursor_is_refused(api: Api, cursor: str) -> None:
    """400 `invalid_request`. (§1.3)"""
    assert api.refused("GET", f"/v0/topics?cursor={cursor}") == (400, "invalid_request")


@pytest.mark.parametrize("size", ["-1", "1.5", "x", "", "%2B1", "0x10", "1e3", "%D9%A1"])
def test_a_page_size_is_a_natural_number(api: Api, size: str) -> None:
    """400 otherwise. (§0.7)"""
    assert api.refused("GET", f"/v0/topics?page_size={size}") == (400, "invalid_request")


def test_a_list_may_touch(api: Api, name: str) -> None:
    """`last_read_ts` is set with `touch=true`, and not by default. (§1.3)"""
    api.put(name)
    api.ok("GET", f"/v0/topics?prefix={name}")
    assert api.state(name)["last_read_ts"] is None
    api.ok("GET", f"/v0/topics?prefix={name}&touch=true")
    assert api.state(name)["last_read_ts"] is not None
