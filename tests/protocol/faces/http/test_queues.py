"""Bodies of the calls of workers (§10.3 to §10.6)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from protocol.harness import refusal
from topics.protocol.faces.http.decoding import FIELD_BYTES_MAX
from topics.protocol.faces.http.queues import (
    claim_limit,
    parse_ack,
    parse_claim,
    parse_extend,
    parse_nack,
    parse_work,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits

LIMITS = Limits()


def text(**fields: object) -> bytes:
    return json.dumps({"node": "w", **fields}).encode()


@pytest.mark.parametrize(("asked", "given"), [(None, 1), (0, 1), (1, 1), (7, 7), (8, 7)])
def test_a_claim_is_clamped_to_what_the_server_grants(asked: int | None, given: int) -> None:
    """At least one job, at most the greatest claim. (§10.3)"""
    assert claim_limit(asked, Limits(max_claim=7)) == given


def test_a_server_without_a_greatest_claim_grants_what_is_asked() -> None:
    """0 is no bound. (§0.5)"""
    assert claim_limit(10**6, Limits(max_claim=0)) == 10**6


def test_a_lease_is_clamped_only_where_it_is_asked_for() -> None:
    """Else it is the queue's, which the body does not know. (§10.3)"""
    assert parse_claim("q", text(), LIMITS).lease_ms is None
    assert parse_claim("q", text(lease_ms=0), LIMITS).lease_ms == 100
    assert parse_claim("q", text(wait_ms=10**6), LIMITS).wait_ms == 30_000


def test_a_job_is_postponed_by_a_day_at_most() -> None:
    """A delay has an upper bound, and none below; without one the queue decides. (§10.5)"""
    assert parse_nack("q", text(seqs=[1]), LIMITS).delay_ms is None
    assert parse_nack("q", text(seqs=[1], delay_ms=0), LIMITS).delay_ms == 0
    assert parse_nack("q", text(seqs=[1], delay_ms=10**12), LIMITS).delay_ms == 86_400_000
    assert parse_extend("q", text(seqs=[1], lease_ms=0), LIMITS).lease_ms == 100


@pytest.mark.parametrize(
    ("token", "number"),
    [
        ("lease_1", 1),
        ("lease_10000000000", 1 << 40),
        ("lease_" + "f" * 24, (1 << 96) - 1),
        ("lease_" + "f" * 25, 0),
        ("lease_01", 0),
        ("lease_F", 0),
        ("lease_", 0),
        ("LEASE_1", 0),
        ("lease_1 ", 0),
        ("1", 0),
        ("", 0),
    ],
)
def test_a_token_is_a_number_or_no_lease(token: str, number: int) -> None:
    """A token that the server never gave belongs to no lease, and is no error. (§10.4)"""
    assert parse_ack("q", text(seqs=[4], lease_ids=[token]), LIMITS).leases == [number]


def test_tokens_are_one_for_each_seq() -> None:
    """Else nobody could say which is whose; none at all is allowed. (§10.4)"""
    assert parse_ack("q", text(seqs=[4, 5]), LIMITS).leases is None
    for tokens in ([], ["lease_1"], ["lease_1"] * 3):
        refused = refusal(parse_ack, "q", text(seqs=[4, 5], lease_ids=tokens), LIMITS)
        assert "$.lease_ids" in refused.message


Parse = Callable[[str, bytes, Limits], Any]


@pytest.mark.parametrize(
    ("parse", "fields"),
    [(parse_ack, {}), (parse_nack, {"delay_ms": 1}), (parse_extend, {"lease_ms": 1000})],
)
@pytest.mark.parametrize("count", [3, 500_000])
def test_more_seqs_than_a_claim_are_refused(
    parse: Parse, fields: dict[str, object], count: int
) -> None:
    """By their number where it fits, by their text where that alone is too long: the same code. (§10.4)"""
    limits = Limits(max_claim=2)

    assert parse("q", text(seqs=[1, 2], **fields), limits).seqs == [1, 2]
    with pytest.raises(Rejection) as refused:
        parse("q", text(seqs=[1] * count, **fields), limits)

    assert refused.value.code is ErrorCode.BATCH_TOO_LARGE
    assert refused.value.detail == {"limit": 2}


@pytest.mark.parametrize("parse", [parse_claim, parse_ack, parse_nack, parse_extend])
def test_a_worker_has_a_name(parse: Parse) -> None:
    """Not an empty one, and one that is no longer than a node. (§10.3)"""
    limits = Limits(max_node_bytes=4)
    fields = {"seqs": [1], "lease_ms": 1000}

    assert parse("q", text(**fields, node="four"), limits).node == "four"
    for node in ("", "fives"):
        assert "$.node" in refusal(parse, "q", text(**fields, node=node), limits).message


def test_a_seq_is_a_u64() -> None:
    """The greatest of them decides. (§0.3)"""
    assert parse_ack("q", text(seqs=[1, 2**64 - 1]), LIMITS).seqs[-1] == 2**64 - 1
    assert "$.seqs" in refusal(parse_ack, "q", text(seqs=[2**64, 1]), LIMITS).message


def test_another_field_that_is_too_long_is_named() -> None:
    """Only a list of seqs has a limit of its own; a node is as long as any field may be. (§10.4)"""
    body = text(node="w" * (FIELD_BYTES_MAX + 1), seqs=[1])
    refused = refusal(parse_ack, "q", body, LIMITS)
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert "node" in str(refused)


def test_a_push_stream_asks_for_work() -> None:
    """Who claims, how many at once, for how long. (§10.8)"""
    claim = parse_work("q", {"node": "w", "max": "3", "lease_ms": "5000"}, LIMITS)

    assert (claim.topic, claim.node, claim.limit, claim.lease_ms) == ("q", "w", 3, 5000)
    assert parse_work("q", {"node": "w"}, LIMITS).lease_ms is None
    assert refusal(parse_work, "-", {"node": "w"}, LIMITS).code is ErrorCode.TOPIC_NOT_FOUND
    assert refusal(parse_work, "q", {}, LIMITS).code is ErrorCode.INVALID_REQUEST


def test_a_result_has_at_most_a_thousand_levels() -> None:
    """As a record's data. (§0.3)"""
    body = b'{"node":"w","seqs":[4],"result":%b}'
    deepest, deeper = (b"[" * levels + b"]" * levels for levels in (1000, 1001))

    assert parse_ack("q", body % deepest, LIMITS).result == deepest
    refused = refusal(parse_ack, "q", body % deeper, LIMITS)
    assert refused.message == "nested more than 1000 levels deep - at `$.result`"
