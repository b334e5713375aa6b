"""Kafka's messages as classes: fields, versions and defaults, as Kafka's descriptions say."""

import pytest

from topics.protocol.faces.kafka.schema import message, names, types


def test_a_message_is_known_by_its_name() -> None:
    fetch = message("FetchRequest")

    assert (fetch.key, fetch.versions, fetch.flexible) == (1, (4, 18), 12)
    assert "FetchResponse" in names()
    with pytest.raises(KeyError):
        message("Fetch")


def test_a_message_that_never_became_flexible_is_not() -> None:
    assert message("SaslHandshakeRequest").flexible > 1000


def test_fields_have_the_names_of_attributes_and_kafkas_defaults() -> None:
    T = types("FetchRequest")

    request = T.FetchRequest()

    assert (request.cluster_id, request.replica_id, request.max_bytes) == (None, -1, 0x7FFFFFFF)
    assert request.topics == []
    assert request.replica_state == T.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert T.FetchPartition().high_watermark == (1 << 63) - 1
    assert T.FetchTopic().topic_id == bytes(16)
    assert types("MetadataRequest").MetadataRequest().allow_auto_topic_creation is True
    assert types("CreateTopicsRequest").CreateTopicsRequest().validate_only is False
    assert types("DescribeTopicPartitionsRequest").DescribeTopicPartitionsRequest().cursor is None


def test_a_version_has_some_fields_and_others_may_be_null_or_tagged() -> None:
    fields = {field.name: field for field in message("FetchRequest").shape.fields}

    assert fields["cluster_id"].is_in(12)
    assert not fields["cluster_id"].is_in(11)
    assert fields["cluster_id"].is_tagged(12)
    assert fields["cluster_id"].is_nullable(12)
    assert not fields["rack_id"].is_nullable(12)
    assert not fields["replica_id"].is_in(15)
