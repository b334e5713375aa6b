"""The one door to `confluent_kafka`, and what its errors mean to the rest of this package.

Raises `NoLibrary` when it is imported where the extra `cluster` is not installed.
"""

from typing import Final

from topics.distribution import install
from topics.server.cluster.kafka.failures import NoLibrary
from topics.server.cluster.kafka.settings import LOGGER

try:
    from confluent_kafka import (
        Consumer,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import (
        AdminClient,
        ConfigResource,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )
except ModuleNotFoundError as error:
    raise NoLibrary(
        f"TOPICS_CLUSTER_KAFKA is set and confluent-kafka is not installed: {install('cluster')}"
    ) from error

__all__ = [
    "LOGGER",
    "AdminClient",
    "ConfigResource",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewTopic",
    "OffsetSpec",
    "Producer",
    "ResourceType",
    "TopicCollection",
    "TopicPartition",
]

FORBIDDEN: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.POLICY_VIOLATION,
    }
)
"""The broker's own refusals: no repetition changes them."""

LOST: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
"""A reader's place is not in the log any more: trimmed, or lost."""


def error_of(failure: BaseException) -> KafkaError | None:
    """The error in a `KafkaException`."""
    if isinstance(failure, KafkaException) and failure.args:
        error = failure.args[0]
        return error if isinstance(error, KafkaError) else None
    return None


def told(failure: object) -> str:
    """An error as one line for people."""
    error = error_of(failure) if isinstance(failure, BaseException) else failure
    text = error.str() if isinstance(error, KafkaError) else str(failure)
    return " ".join(text.split()) or type(failure).__name__
