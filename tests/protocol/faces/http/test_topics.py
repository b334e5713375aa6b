"""Bodies about a topic: its config, and what to delete of it (§1.1, §5)."""

import json

import pytest

from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits

LIMITS = Limits()


def test_an_empty_config_is_the_default() -> None:
    """`type_given` tells a PUT that keeps the type from one that sets it. (§1.1)"""
    command = parse_put("t", b"{}")
    assert (command.config, command.type_given) == (TopicConfig(), False)
    assert parse_put("t", b'{"type":"log"}').type_given is True


@pytest.mark.parametrize("given", [2**64, 10**30])
def test_what_is_clamped_has_no_bound_of_its_own(given: int) -> None:
    """A lease and a window that no integer of ours holds are the longest there are. (§0.10)"""
    body = json.dumps({"lease_ms": given, "claim_jitter_ms": given}).encode()
    config = parse_put("t", body).config
    assert (config.lease_ms, config.claim_jitter_ms) == (86_400_000, 5000)


def test_a_queue_is_not_its_own_dead_letter_topic() -> None:
    """Its jobs would come back as new ones. (§10.6)"""
    with pytest.raises(Rejection, match="the topic itself"):
        parse_put("q", b'{"type":"queue","dead_letter":"q"}')


def test_configs_of_kafka_are_kept_as_kafka_shows_them() -> None:
    """And say nothing that a field says otherwise. (§0.10)"""
    command = parse_put("t", b'{"kafka_configs":{"segment.ms":" 7 ","retention.ms":"-1"}}')
    assert command.config.kafka_configs == {"segment.ms": "7", "retention.ms": "-1"}
    assert parse_put("t", b'{"kafka_configs":{}}').config == TopicConfig()
    with pytest.raises(Rejection, match=r'retention\.ms is "5".* at `\$\.kafka_configs`'):
        parse_put("t", b'{"ttl_ms":5,"kafka_configs":{"retention.ms":"-1"}}')


@pytest.mark.parametrize("count", [0, 1001, 2**64])
def test_a_topic_has_one_to_a_thousand_partitions(count: int) -> None:
    """400 for any other number. (§2.1)"""
    with pytest.raises(Rejection, match="1 to 1000 partitions"):
        parse_put("t", json.dumps({"partitions": count}).encode())


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"order": "group", "group_max_in_flight": 2}, "group_max_in_flight"),
        ({"result_ttl_ms": 0}, "result_ttl_ms"),
        ({"rate": {"max": 0, "per_ms": 1}}, "rate.max"),
        ({"backoff": {"base_ms": 1, "factor": 0.5}}, "backoff.factor"),
    ],
)
def test_what_a_queue_cannot_promise_is_refused(config: dict[str, object], place: str) -> None:
    """(133)"""
    with pytest.raises(Rejection) as refused:
        parse_put("q", json.dumps({"type": "queue", **config}).encode())
    assert place in str(refused.value)
