"""A server without the extra starts as ever; one that is set to a cluster says what is missing."""

import subprocess
import sys

import pytest

from topics.distribution import install
from topics.server.cluster.kafka.library import KafkaError, KafkaException, error_of, told

from .fakes import kafka_error

WITHOUT = """
import sys
sys.modules["confluent_kafka"] = None
from topics.server.cluster.kafka.failures import NoLibrary
try:
    import topics.server.cluster.kafka.log
except NoLibrary as error:
    print(error)
"""

ONE_NODE = """
import sys
import topics.server.assembly
faces = "confluent_kafka", "topics.server.cluster", "topics.server.kafka", "topics.protocol.faces.kafka"
print([name for name in sys.modules if name.startswith(faces)])
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_a_package_that_is_missing_is_one_line() -> None:
    """§7"""
    assert run(WITHOUT) == (
        f"TOPICS_CLUSTER_KAFKA is set and confluent-kafka is not installed: {install('cluster')}"
    )


def test_one_node_imports_nothing_of_it() -> None:
    """§5: one node without Kafka pays nothing."""
    assert run(ONE_NODE) == "[]"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (KafkaException(kafka_error(KafkaError._STATE)), f"error {KafkaError._STATE}"),
        (kafka_error(KafkaError._STATE), f"error {KafkaError._STATE}"),
        (KafkaException("in two\nlines"), "in two lines"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_an_error_is_told_in_one_line(failure: object, text: str) -> None:
    assert told(failure) == text


def test_an_exception_without_an_error_has_none() -> None:
    assert error_of(KafkaException("text")) is None
    assert error_of(ZeroDivisionError()) is None
