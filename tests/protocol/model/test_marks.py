"""What a record of Kafka's says that no record of HTTP does (121)."""

from topics.protocol.model.marks import Mark
from topics.protocol.model.records import HAS_KEY


def test_a_record_has_a_key_that_is_no_tag_or_none() -> None:
    """The bytes that its head says in base64."""
    assert Mark(b',"$key":"/w=="', HAS_KEY).key == b"\xff"
    assert Mark(b',"$time":5', 0).key is None
