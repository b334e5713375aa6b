"""Ids of producers, and who coordinates (§6, 125)."""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.server.kafka import producers

from .desk import KafkaDesk


def test_no_two_producers_have_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids come out of blocks; a restart, or another block, gives none again."""
    monkeypatch.setattr(producers, "BLOCK", 3)
    desk = KafkaDesk()
    found = [
        desk.ask("InitProducerId", version, transactional_id=None)
        for version in (0, 1, 2, 3, 4, 5, 5)
    ]
    assert {each.error_code for each in found} == {0}
    assert {each.producer_epoch for each in found} == {0}
    ids = [each.producer_id for each in found]
    assert len(set(ids)) == 7
    again = KafkaDesk(shell=desk.shell)
    assert again.ask("InitProducerId", transactional_id=None).producer_id not in ids


def test_a_producer_with_transactions_is_refused_at_once() -> None:
    """So that every client fails in the moment, and none hangs. (§6)"""
    found = KafkaDesk().ask("InitProducerId", transactional_id="x")
    assert found.error_code == errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert found.producer_id == -1


def test_a_log_that_takes_nothing_gives_no_id() -> None:
    desk = KafkaDesk()
    desk.shell.engine.on_failed()
    assert (
        desk.ask("InitProducerId", transactional_id=None).error_code == errors.KAFKA_STORAGE_ERROR
    )


def coordinator(key_type: int, version: int) -> Any:
    desk = KafkaDesk()
    if version < 4:
        return desk.ask("FindCoordinator", version, key="g", key_type=key_type)
    found = desk.ask("FindCoordinator", version, coordinator_keys=["g", "h"], key_type=key_type)
    assert [each.key for each in found.coordinators] == ["g", "h"]
    return found.coordinators[0]


@pytest.mark.parametrize("version", range(7))
def test_this_server_coordinates_groups(version: int) -> None:
    found = coordinator(0, version)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "127.0.0.1", 4000)


@pytest.mark.parametrize("version", range(1, 7))
def test_nobody_coordinates_transactions(version: int) -> None:
    found = coordinator(1, version)
    assert found.error_code == errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert found.error_message == "topics has no transactions"
    assert found.node_id == -1
    assert coordinator(2, version).error_code == errors.INVALID_REQUEST
