"""Requests of Kafka's clients from frame to answer: what is served, in which version, and for whom (§1, §9)."""

from collections.abc import Callable
from struct import pack, unpack_from

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.apis import SERVED
from topics.server.kafka.exchange import Refused
from topics.server.service.shell import Phase

from .desk import HEAD, NUMBER, KafkaDesk, some
from .test_login import guarded, login


def raw(key: int, version: int, body: bytes = b"") -> bytes:
    return HEAD.pack(key, version, NUMBER, -1) + body


def answer_of(desk: KafkaDesk, frame: bytes) -> bytes:
    running = desk.begin_raw(frame)
    assert running.result is not None
    return b"".join(map(bytes, running.result))


@pytest.mark.parametrize("version", range(5))
def test_a_client_asks_first_what_is_served(version: int) -> None:
    found = KafkaDesk().ask("ApiVersions", version)
    listed = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
    assert listed == {key: (api.first, api.last) for key, api in SERVED.items()}
    assert found.error_code == 0


def test_every_api_that_is_announced_has_a_handler() -> None:
    desk = KafkaDesk()
    assert desk.exchange._handlers.keys() == SERVED.keys()


def test_a_version_that_nobody_knows_gets_the_list_in_the_form_of_version_0() -> None:
    """franz-go begins with version 5, and reads the answer so."""
    data = answer_of(KafkaDesk(), raw(18, 99, b"\0whatever"))
    number, error, count = unpack_from(">ihi", data)
    assert (number, error, count) == (NUMBER, errors.UNSUPPORTED_VERSION, len(SERVED))
    assert len(data) == 10 + 6 * count


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (raw(77, 0), "API 77 in version 0"),
        (raw(3, 99, b"\0"), "API 3 in version 99"),
        (b"\0\0", "the head of a request"),
        (raw(3, 9), "the head of a request|MetadataRequest"),
        (raw(1, 4, b"\xff"), "FetchRequest version 4"),
    ],
)
def test_what_is_no_request_ends_its_connection(frame: bytes, why: str) -> None:
    """As in Kafka: there is no answer that such a client would read."""
    with pytest.raises(Refused, match=why):
        KafkaDesk().begin_raw(frame)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_below_version_3_is_announced_and_refused(version: int) -> None:
    """librdkafka compresses only where it is announced (KAFKA-18659). (124)"""
    data = some(b"1")
    body = pack(">hiih", -1, 1000, 1, 1) + b"t" + pack(">iii", 1, 0, len(data)) + data
    desk = KafkaDesk()
    desk.create()

    found = answer_of(desk, raw(0, version, body))

    number, topics, size = unpack_from(">iih", found)
    assert (number, topics, size, found[10:11]) == (NUMBER, 1, 1, b"t")
    count, index, code, offset = unpack_from(">iihq", found, 11)
    assert (count, index, code, offset) == (1, 0, errors.UNSUPPORTED_VERSION, -1)
    assert len(found) == 29 + (0, 4, 12)[version]
    assert desk.list_offset(-1).offset == 0


def test_a_server_that_does_not_serve_yet_ends_the_connection() -> None:
    desk = KafkaDesk()
    desk.shell.phase = Phase.STARTING
    assert "does not serve" in desk.refused("ApiVersions")


@pytest.mark.parametrize("limit", ["max_inflight_per_ip", "max_inflight_per_key"])
def test_a_request_beyond_those_in_flight_waits_for_its_turn(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of both faces count together, and one that waits is in flight. (129)"""
    desk = guarded("secret", **{limit: 1})
    login(desk, "secret")
    if limit == "max_inflight_per_ip":
        desk = KafkaDesk(**{limit: 1})
    desk.create()
    pauses: list[Callable[[], object]] = []
    monkeypatch.setattr(desk.shell, "later", lambda _, then: pauses.append(then))
    waiting = desk.begin("Fetch", 12, **desk.fetching(0, min_bytes=1, max_wait_ms=500))
    second = desk.begin("ApiVersions")
    assert second.holds, "those behind wait, too"
    pauses.pop()()
    assert not second.is_over

    waiting.cancel()
    pauses.pop()()

    assert desk.answer(second, "ApiVersions").error_code == 0
    assert not pauses


def test_who_has_no_turn_in_time_is_sent_away() -> None:
    desk = KafkaDesk(max_inflight_per_ip=1)
    desk.create()
    waiting = desk.begin("Fetch", 12, **desk.fetching(0, min_bytes=1, max_wait_ms=500))
    assert "max_inflight" in desk.refused("ApiVersions")
    waiting.cancel()
    assert desk.ask("ApiVersions").error_code == 0


def test_a_client_that_is_gone_is_waited_for_no_more() -> None:
    desk = KafkaDesk()
    desk.create()
    waiting = desk.begin("Fetch", 12, **desk.fetching(0, min_bytes=1, max_wait_ms=500))
    assert desk.shell.driver.parked == 1
    waiting.cancel()
    waiting.cancel()
    assert desk.shell.driver.parked == 0
    desk.exchange.gone(desk.client)
    desk.exchange.gone(desk.client)
