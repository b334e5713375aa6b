"""A question is asked until it is answered; what asking again does not change is raised."""

import asyncio
from typing import Any

import pytest

from topics.server.cluster.kafka import asking
from topics.server.cluster.kafka.asking import Brokers
from topics.server.cluster.kafka.failures import BadKafkaConfig, Forbidden
from topics.server.cluster.kafka.library import FORBIDDEN, KafkaError, KafkaException
from topics.server.cluster.kafka.settings import KafkaSettings

from .fakes import FakeAdmin, kafka_error


def ask(admin: FakeAdmin) -> tuple[Any, Brokers]:
    async def run() -> tuple[Any, Brokers]:
        brokers = Brokers(KafkaSettings("nowhere:1"), make=lambda config: admin)  # type: ignore[arg-type, return-value]
        return await brokers.ask(lambda asked: asked.question()), brokers

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_PAUSE_SECONDS", 0)


@pytest.mark.parametrize("code", sorted(asking.PASSING - asking.STALE))
def test_what_passes_is_asked_again(code: int) -> None:
    """A broker that starts, ends, or elects a leader."""
    admin = FakeAdmin(kafka_error(code), kafka_error(code), "found")

    found, brokers = ask(admin)

    assert (found, admin.asked, brokers.trouble) == ("found", 3, "")


@pytest.mark.parametrize("code", sorted(FORBIDDEN))
def test_what_the_broker_forbids_is_told(code: int) -> None:
    with pytest.raises(Forbidden, match=f"error {code}"):
        ask(FakeAdmin(kafka_error(code)))


@pytest.mark.parametrize("code", sorted(asking.STALE | asking.SILENT))
def test_a_client_that_asks_a_broker_which_cannot_answer_is_replaced(code: int) -> None:
    """librdkafka's admin client goes on asking as it did before the election, or a broker that hangs."""
    clients = [FakeAdmin(kafka_error(code)), FakeAdmin("found")]

    async def run() -> Any:
        coming = iter(clients)
        brokers = Brokers(KafkaSettings("nowhere:1"), make=lambda config: next(coming))  # type: ignore[arg-type, return-value]
        return await brokers.ask(lambda asked: asked.question())

    assert asyncio.run(run()) == "found"
    assert [client.asked for client in clients] == [1, 1]


@pytest.mark.parametrize("code", sorted(asking.ABSENT))
def test_a_topic_that_one_broker_does_not_know_yet_is_asked_for_again(code: int) -> None:
    """It was made a moment ago, by another broker."""
    found, _ = ask(FakeAdmin(kafka_error(code), "found"))

    assert found == "found"


@pytest.mark.parametrize("code", sorted(asking.ABSENT))
def test_whether_there_is_a_topic_may_be_the_question(code: int) -> None:
    admin = FakeAdmin(kafka_error(code))

    async def run() -> None:
        brokers = Brokers(KafkaSettings("nowhere:1"), make=lambda config: admin)  # type: ignore[arg-type, return-value]
        await brokers.ask(lambda asked: asked.question(), may_be_absent=True)

    with pytest.raises(KafkaException):
        asyncio.run(run())


def test_any_other_error_is_the_callers() -> None:
    """`TOPIC_ALREADY_EXISTS` may be what it wants to hear."""
    with pytest.raises(KafkaException):
        ask(FakeAdmin(kafka_error(KafkaError.TOPIC_ALREADY_EXISTS)))


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("no.such.setting", "secret", 'No such configuration property: "no.such.setting"'),
        ("security.protocol", "sometimes", "security.protocol"),
    ],
)
def test_a_setting_that_librdkafka_does_not_take_is_told(key: str, value: str, told: str) -> None:
    """§6: a file of `key=value`."""
    with pytest.raises(BadKafkaConfig) as raised:
        Brokers(KafkaSettings("127.0.0.1:1", config={key: value}))

    assert told in str(raised.value)
    assert "secret" not in str(raised.value)
