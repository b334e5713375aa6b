"""Configs of Kafka's clients that are kept as text: which values each may have (§8)."""

import pytest

from topics.protocol.model.kafka_configs import INT_MAX, KEPT, LONG_MAX, items


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("segment.bytes", " 16384 ", "16384"),
        ("segment.bytes", "+007", "7"),
        ("flush.ms", str(LONG_MAX), str(LONG_MAX)),
        ("local.retention.ms", "-2", "-2"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", " 0.01", "0.01"),
        ("preallocate", "TRUE", "true"),
        ("compression.type", " zstd", "zstd"),
        ("leader.replication.throttled.replicas", "0:1, 1:1,,0:1", "0:1,1:1"),
        ("follower.replication.throttled.replicas", " * ", "*"),
        ("compression.gzip.level", "9", "9"),
        ("compression.lz4.level", "17", "17"),
        ("compression.zstd.level", "-131072", "-131072"),
    ],
)
def test_a_value_is_kept_as_kafka_shows_it(name: str, text: str, kept: str) -> None:
    assert KEPT[name].parsed(text) == kept


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "many"),
        ("segment.bytes", "1.5"),
        ("segment.bytes", "9" * 5000),
        ("segment.bytes", "0"),
        ("segment.bytes", str(INT_MAX + 1)),
        ("flush.ms", str(LONG_MAX + 1)),
        ("delete.retention.ms", "-1"),
        ("min.cleanable.dirty.ratio", "half"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "perhaps"),
        ("remote.storage.enable", "true"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("leader.replication.throttled.replicas", "*,0:1"),
        ("leader.replication.throttled.replicas", "0:a"),
    ],
)
def test_what_is_no_value_is_refused_in_one_line(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z]") as refused:
        KEPT[name].parsed(text)
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize("name", KEPT)
def test_a_default_is_a_value(name: str) -> None:
    kept = KEPT[name]
    assert kept.parsed(kept.default) == kept.default


def test_a_list_has_each_item_once() -> None:
    assert items(" delete,compact , delete,") == ["delete", "compact"]
    assert items("") == []
