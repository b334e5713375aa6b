"""Named readers: positions that are published and found again."""

from topics.arrow.readers import READERS, Position, positions, publish
from topics.arrow.remote import RemoteSource
from topics.testing import MemoryTopics


def test_the_last_position_counts() -> None:
    """Of each reader and topic; what came before is deleted, and other records are passed over."""
    with MemoryTopics() as memory, RemoteSource(memory.client, ahead=1) as source:
        assert positions(source) == {}

        publish(memory.client, "billing", {"orders": Position(3, "e-1")})
        publish(memory.client, "search", {"orders": Position(1, "e-1")})
        memory.client.append(READERS, {"reader": 7}, tag="no reader")
        publish(
            memory.client,
            "billing",
            {"orders": Position(5, "e-1"), "audit": Position(2)},
        )

        assert positions(source) == {
            "search": {"orders": Position(1, "e-1")},
            "billing": {"orders": Position(5, "e-1"), "audit": Position(2)},
        }
        assert memory.client.topic(READERS).count == 3


def test_two_streams_of_one_reader() -> None:
    """Each publishes topics of its own, and takes back nothing that the other said."""
    with MemoryTopics() as memory, RemoteSource(memory.client, ahead=1) as source:
        publish(memory.client, "billing", {"orders": Position(3, "e-1")})
        publish(memory.client, "billing", {"audit": Position(7, "e-2")})
        publish(memory.client, "billing", {"orders": Position(4, "e-1")})

        assert positions(source) == {
            "billing": {"orders": Position(4, "e-1"), "audit": Position(7, "e-2")}
        }
        assert memory.client.topic(READERS).count == 1
