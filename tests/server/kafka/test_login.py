"""SASL/PLAIN with API keys: who is let in, what a key may do, and its end (§7)."""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.schema import types
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.kafka.exchange import Refused

from .desk import KafkaDesk, some


def guarded(keys: str, **limits: int) -> KafkaDesk:
    source = source_of(keys, None)
    assert source is not None
    return KafkaDesk(Guard(source), **limits)


def login(desk: KafkaDesk, password: str, version: int = 2) -> Any:
    desk.ask("SaslHandshake", mechanism="PLAIN")
    token = b"\0anyone\0" + password.encode()
    return desk.ask("SaslAuthenticate", version, auth_bytes=token)


@pytest.mark.parametrize("version", range(3))
def test_the_password_is_an_api_key(version: int) -> None:
    desk = guarded("secret")
    assert "before a login" in desk.refused("Metadata", 12, topics=None)
    assert desk.ask("ApiVersions").error_code == 0
    assert login(desk, "secret", version).error_code == 0
    assert desk.ask("Metadata", 12, topics=None).error_code == 0


@pytest.mark.parametrize("token", [b"\0a\0wrong", b"", b"\0a\0", b"secret", b"\0\0\0secret"])
def test_a_wrong_key_is_refused_counted_and_not_repeated(token: bytes) -> None:
    desk = guarded("secret")
    desk.ask("SaslHandshake", mechanism="PLAIN")
    found = desk.ask("SaslAuthenticate", auth_bytes=token)
    assert found.error_code == errors.SASL_AUTHENTICATION_FAILED
    assert "API key" in found.error_message
    assert "wrong" not in found.error_message
    assert desk.http.failures is not None
    assert desk.http.failures.of("192.0.2.1") == 1
    assert "before a login" in desk.refused("Metadata", 12, topics=None)


def test_the_order_of_a_login() -> None:
    desk = guarded("secret")
    found = desk.ask("SaslAuthenticate", auth_bytes=b"\0a\0secret")
    assert found.error_code == errors.ILLEGAL_SASL_STATE
    other = desk.ask("SaslHandshake", mechanism="SCRAM-SHA-256")
    assert (other.error_code, other.mechanisms) == (errors.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])


def test_a_server_without_keys_lets_any_login_in() -> None:
    """A client that is set to log in needs no other setting there."""
    assert login(KafkaDesk(), "anything").error_code == 0


def codes(desk: KafkaDesk, name: str) -> dict[str, int]:
    """What each request about a topic is answered."""
    T = types("DeleteRecordsRequest")
    trim = T.DeleteRecordsTopic(name=name, partitions=[T.DeleteRecordsPartition(offset=0)])
    C = types("DescribeConfigsRequest")
    asked = C.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    trimmed = desk.ask("DeleteRecords", topics=[trim], timeout_ms=9).topics[0].partitions[0]
    return {
        "write": desk.produce(some(b"1"), name=name)[0].error_code,
        "read": desk.fetch(0, name=name).error_code,
        "list": desk.list_offset(-1, name=name).error_code,
        "configs": desk.ask("DescribeConfigs", resources=[asked]).results[0].error_code,
        "trim": trimmed.error_code,
        "create": desk.create(name).error_code,
        "delete": desk.ask("DeleteTopics", 5, topic_names=[name]).responses[0].error_code,
        "producer": desk.ask("InitProducerId", transactional_id=None).error_code,
    }


REFUSED = errors.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("scope", "may"),
    [
        ("read", {"read", "list", "configs"}),
        ("write", {"write", "producer"}),
        ("admin", {"create"}),
        ("delete", {"delete", "trim"}),
    ],
)
def test_a_scope_is_for_some_requests(scope: str, may: set[str]) -> None:
    """As for HTTP's. (§7)"""
    desk = guarded(f"all,key:{scope}")
    login(desk, "all")
    desk.create()
    login(desk, "key")

    found = codes(desk, "t")

    done = {what for what, code in found.items() if code in (0, errors.TOPIC_ALREADY_EXISTS)}
    assert done == may
    refused = {code for what, code in found.items() if what not in may}
    assert refused <= {REFUSED, errors.CLUSTER_AUTHORIZATION_FAILED}


def test_a_key_with_prefixes_sees_its_own() -> None:
    """A name outside is refused whether anything has that name or not."""
    desk = guarded("all,key:read+write+admin+delete:in.")
    login(desk, "all")
    for name in ("in.a", "out.b"):
        desk.create(name)
    login(desk, "key")

    assert set(codes(desk, "out.b").values()) == {REFUSED, 0}
    assert [each.name for each in desk.ask("Metadata", 12, topics=None).topics] == ["in.a"]
    T = types("MetadataRequest")
    asked = [T.MetadataRequestTopic(name=name) for name in ("in.a", "out.b", "out.c", "in.d")]
    found = {each.name: each.error_code for each in desk.ask("Metadata", 12, topics=asked).topics}
    assert found == {"in.a": 0, "out.b": REFUSED, "out.c": REFUSED, "in.d": 0}


def test_whoever_may_not_write_makes_no_topic_by_asking() -> None:
    desk = guarded("key:read")
    login(desk, "key")
    T = types("MetadataRequest")
    asked = [T.MetadataRequestTopic(name="t")]
    assert desk.ask("Metadata", 12, topics=asked).topics[0].error_code == REFUSED


def test_a_broker_shows_its_configs_to_admins() -> None:
    desk = guarded("all,key:read")
    C = types("DescribeConfigsRequest")
    asked = C.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    for key, code in (("key", errors.CLUSTER_AUTHORIZATION_FAILED), ("all", 0)):
        login(desk, key)
        assert desk.ask("DescribeConfigs", resources=[asked]).results[0].error_code == code


def test_groups_need_the_scope_to_read() -> None:
    desk = guarded("key:write")
    login(desk, "key")
    found = desk.ask("FindCoordinator", 3, key="g")
    assert found.error_code == errors.GROUP_AUTHORIZATION_FAILED


def test_a_key_that_is_removed_ends_its_connections() -> None:
    """What waits, and what has not begun. (§7)"""
    desk = guarded("secret,other")
    login(desk, "secret")
    assert desk.http.keys is not None
    caller = desk.client.caller
    desk.http.put_keys([])
    assert caller.is_revoked
    assert desk.ended == 1
    with pytest.raises(Refused, match="not valid any more"):
        desk.ask("Metadata", 12, topics=None)
