"""librdkafka's own settings come from a file, but for those that the log's promises rest on."""

from pathlib import Path

import pytest
from docs.pages import find

from topics.server.cluster.kafka.failures import BadKafkaConfig
from topics.server.cluster.kafka.settings import OWNED, KafkaSettings, read_config


def test_a_file_has_keys_values_and_comments(tmp_path: Path) -> None:
    """A value may hold `=` and blanks; what is around it does not belong to it. (§6)"""
    path = tmp_path / "kafka"
    path.write_text(
        "# of the test cluster\n\n security.protocol = SASL_SSL \nsasl.password=a=b c#d\n"
    )

    assert read_config(path) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b c#d"}


def test_the_file_of_the_page_is_one(tmp_path: Path) -> None:
    """docs/cluster.md shows SASL over TLS; librdkafka knows each of its names."""
    path, authority = tmp_path / "kafka", tmp_path / "ca.pem"
    path.write_text(find("cluster.md", "security.protocol=").code)
    authority.write_text("")

    config = read_config(path)

    known = {"security.protocol", "sasl.mechanism", "sasl.username", "sasl.password"}
    assert set(config) == known | {"ssl.ca.location"}
    library = pytest.importorskip("confluent_kafka")
    with pytest.raises(library.KafkaException, match=r"ssl\.ca\.location"):
        # The one thing that is wrong is the file, which holds no certificate.
        library.Producer(config | {"ssl.ca.location": str(authority)})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("secret", "line 1 of {path} is not key=value"),
        ("=secret", "line 1 of {path} is not key=value"),
        ("\na=1\na=secret", "line 3 of {path} sets a for a second time: keep one line"),
        ("acks=1", "line 1 of {path} sets acks, which topics sets itself: remove the line"),
        ("oauth_cb=secret", "line 1 of {path} sets oauth_cb, which topics sets itself"),
    ],
)
def test_a_line_that_is_wrong_is_told_without_its_value(
    text: str, told: str, tmp_path: Path
) -> None:
    """It may be a password."""
    path = tmp_path / "kafka"
    path.write_text(text)

    with pytest.raises(BadKafkaConfig) as raised:
        read_config(path)

    assert str(raised.value).startswith("TOPICS_CLUSTER_KAFKA_CONFIG: ")
    assert told.format(path=path) in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadKafkaConfig, match="cannot be read"):
        read_config(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe=1")
    with pytest.raises(BadKafkaConfig, match="cannot be read"):
        read_config(tmp_path / "binary")


@pytest.mark.parametrize("key", sorted(OWNED))
def test_what_the_promises_rest_on_is_not_for_the_file(key: str, tmp_path: Path) -> None:
    path = tmp_path / "kafka"
    path.write_text(f"{key}=1")

    with pytest.raises(BadKafkaConfig, match="remove the line"):
        read_config(path)


def test_passwords_are_not_shown() -> None:
    settings = KafkaSettings("a:1", config={"sasl.password": "secret"})

    assert "secret" not in repr(settings)
    assert settings.client()["sasl.password"] == "secret"


def test_topics_are_named_after_the_cluster() -> None:
    settings = KafkaSettings("a:1", name="shop")

    assert [settings.log_topic, settings.control_topic, settings.nodes_topic] == [
        *("shop.log", "shop.control", "shop.nodes")
    ]


def test_a_broker_that_hangs_is_not_waited_for_long() -> None:
    """librdkafka's minute would be how long no node leads; an operator may know better. (§8.2)"""
    assert KafkaSettings("k:1").client()["socket.timeout.ms"] == 6000
    own = KafkaSettings("k:1", config={"socket.timeout.ms": "20000"})
    assert own.client()["socket.timeout.ms"] == "20000"


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """It may name a library that librdkafka loads."""
    path = tmp_path / "kafka.properties"
    path.write_text("security.protocol=ssl\n")
    path.chmod(0o666)

    with pytest.raises(BadKafkaConfig, match="others may write it; chmod go-w"):
        read_config(path)
