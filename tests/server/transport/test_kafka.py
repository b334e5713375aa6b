"""Kafka's frames on one connection: however they come, in order, within bounds, to an end (§0.1, §9)."""

from struct import pack
from typing import Any

import pytest

from server.kafka.desk import KafkaDesk, some
from server.kafka.test_login import guarded
from topics.server.transport import kafka
from topics.server.transport.connection import Connection
from topics.server.transport.connection_life import ConnectionState
from topics.server.transport.http1 import Http1
from topics.server.transport.http2 import Http2
from topics.server.transport.kafka import Kafka
from topics.server.transport.limits import TransportLimits

from .http1_rig import GET, Full, Rig

FRAME_BYTES = 1 << 20


class KafkaRig(Rig):
    """One connection to an exchange over memory."""

    def __init__(
        self, desk: KafkaDesk | None = None, limits: TransportLimits | None = None
    ) -> None:
        super().__init__(limits=limits)
        self.desk = desk or KafkaDesk()
        self.transport = Full()
        self.connection = Connection(
            self.shared,
            Http1,
            Http2,
            lambda connection: Kafka(connection, self.desk.exchange, FRAME_BYTES),
        )
        self.transport.protocol = self.connection
        given: Any = self.transport
        self.connection.connection_made(given)

    def ask(self, name: str, version: int | None = None, **fields: Any) -> bytes:
        """A request as it goes over the wire."""
        frame, _ = self.desk.frame(name, version, **fields)
        return pack(">i", len(frame)) + frame

    def answers(self) -> list[bytes]:
        """The frames that came since the last call."""
        data, found = self.got(), []
        while data:
            size = int.from_bytes(data[:4], "big")
            assert len(data) >= 4 + size, "half an answer"
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found


def waiting(desk: KafkaDesk) -> dict[str, Any]:
    return desk.fetching(0, min_bytes=1, max_wait_ms=500)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_frames_are_frames_however_they_come(size: int) -> None:
    rig = KafkaRig()
    rig.desk.create()
    sent = rig.ask("ApiVersions", 0) * 3 + rig.ask("Metadata", 12, topics=None)
    for at in range(0, len(sent), size):
        rig.send(sent[at : at + size])
    first, second, third, last = rig.answers()
    assert first == second == third
    assert b"t" in last
    assert rig.connection.state is ConnectionState.OPEN


def test_http_and_kafka_are_told_apart_by_the_first_byte() -> None:
    rig = KafkaRig()
    rig.send(GET)
    assert isinstance(rig.connection._speaker, Http1)
    rig = KafkaRig()
    rig.send(rig.ask("ApiVersions")[:1])
    assert isinstance(rig.connection._speaker, Kafka)


def test_a_server_that_does_not_serve_kafka_ends_the_connection() -> None:
    """Without a word: none would be understood. (§9)"""
    rig = Rig()
    rig.send(b"\0\0\0\x10\0\x12\0\0")
    assert rig.is_finished
    assert rig.got() == b""


@pytest.mark.parametrize("sent", [GET, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\2\0\1"])
def test_what_is_no_kafka_ends_on_the_port_of_kafka_s_clients(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """HTTP, HTTP/2, TLS: a line in the log says so. (§9)"""
    caplog.set_level("INFO")
    rig = Rig()
    desk = KafkaDesk()
    rig.connection = Connection(
        rig.shared, None, None, lambda connection: Kafka(connection, desk.exchange, FRAME_BYTES)
    )
    rig.transport.protocol = rig.connection
    given: Any = rig.transport
    rig.connection.connection_made(given)
    rig.send(sent)
    assert rig.is_finished
    assert rig.got() == b""
    assert "speaks no Kafka" in caplog.text


def test_answers_leave_in_the_order_of_requests() -> None:
    """Also where the first waits, and the second has its answer."""
    rig = KafkaRig()
    rig.desk.create()
    rig.send(rig.ask("Fetch", 12, **waiting(rig.desk)), rig.ask("ApiVersions", 0))
    assert rig.answers() == []
    rig.desk.produce(some(b"1"))
    rig.loop.rest()
    fetched, listed = rig.answers()
    assert some(b"1")[16:] in fetched
    assert len(listed) > 50


def test_a_request_is_not_begun_before_the_one_ahead_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that a thread verifies, and one behind it, keep their order."""
    rig = KafkaRig()
    rig.desk.create()
    calls: list[Any] = []

    class Call:
        def __init__(self, call: Any) -> None:
            self.call = call
            calls.append(self)

        def add_done_callback(self, then: Any) -> None:
            self.then = then

        def result(self) -> Any:
            return self.call()

        def cancel(self) -> None:
            """It has not begun."""

    monkeypatch.setattr("topics.server.kafka.produce.APART_BYTES", 100)
    monkeypatch.setattr(rig.desk.shell, "decode_in_thread", Call)
    rig.send(produced(rig, b"1" * 90), produced(rig, b"2"))
    assert (len(calls), rig.desk.list_offset(-1).offset) == (1, 0)

    calls[0].then(calls[0])
    rig.loop.rest()

    assert len(rig.answers()) == 2
    assert rig.desk.fetch(0).high_watermark == 2
    assert b"2" not in bytes(rig.desk.fetch(0).records)[:160]


def produced(rig: KafkaRig, *values: bytes, acks: int = -1) -> bytes:
    from topics.protocol.faces.kafka.schema import types

    T = types("ProduceRequest")
    topic = T.TopicProduceData(
        name="t", partition_data=[T.PartitionProduceData(index=0, records=some(*values))]
    )
    return rig.ask("Produce", 9, acks=acks, timeout_ms=9, topic_data=[topic], transactional_id=None)


def test_a_request_without_an_answer_leaves_no_gap() -> None:
    """`acks=0` has none, and the answers of others do not shift."""
    rig = KafkaRig()
    rig.desk.create()
    rig.send(produced(rig, b"1", acks=0) + rig.ask("ApiVersions", 0))
    assert len(rig.answers()) == 1
    assert rig.desk.list_offset(-1).offset == 1


def test_requests_on_their_way_are_bounded() -> None:
    rig = KafkaRig()
    rig.desk.create()
    rig.send(*[rig.ask("Fetch", 12, **waiting(rig.desk))] * (kafka.REQUESTS + 5))
    assert rig.desk.shell.driver.parked == kafka.REQUESTS
    rig.desk.produce(some(b"1"))
    rig.loop.rest()
    assert len(rig.answers()) == kafka.REQUESTS + 5


def test_a_client_that_has_to_pause_is_not_read_whether_it_pauses_or_not() -> None:
    """It is told a second, and gets one, as in Kafka (KIP-219). (129)"""
    rig = KafkaRig(KafkaDesk(max_sse_connections=1))
    rig.desk.create()
    rig.send(rig.ask("Fetch", 12, **waiting(rig.desk)))
    other = KafkaRig(rig.desk)
    fetch = other.ask("Fetch", 12, **waiting(rig.desk))

    other.send(fetch * 5, other.ask("ApiVersions", 0))

    assert len(other.answers()) == 1
    other.loop.advance(0.9)
    assert other.answers() == []
    for _ in range(4):
        other.loop.advance(1)
    assert len(other.answers()) == 4
    other.loop.advance(1)
    assert len(other.answers()) == 1
    assert rig.desk.shell.driver.parked == 1
    other.send(fetch)
    other.lose()
    other.loop.advance(2)
    assert rig.desk.exchange.measures.connections == 2


def test_two_answers_that_ask_for_a_pause_make_one() -> None:
    rig = KafkaRig()
    rig.desk.create()
    rig.send(rig.ask("Fetch", 12, **waiting(rig.desk)) * 2)
    (client,) = rig.desk.exchange._clients.keys() - {rig.desk.client}
    speaker = rig.connection._speaker
    assert isinstance(speaker, Kafka)
    for _ in range(2):
        client.mute_s = 1.0
        speaker._mute()
    rig.send(rig.ask("ApiVersions", 0))
    rig.desk.produce(some(b"1"))
    rig.loop.rest()
    assert len(rig.answers()) == 2
    rig.loop.advance(1)
    assert len(rig.answers()) == 1


def test_metrics_tell_bytes_and_why_connections_end() -> None:
    rig = KafkaRig()
    asked = rig.ask("ApiVersions", 0)
    rig.send(asked[:7], asked[7:] + pack(">i", 3))
    (answer,) = rig.answers()
    measures = rig.desk.exchange.measures
    assert (measures.received_bytes, measures.sent_bytes) == (len(asked), len(answer) + 4)
    told = {
        each.name.rpartition("kafka_")[2]: {tuple(s.labels.values()): s.value for s in each.samples}
        for each in measures.families()
    }
    assert told["connections_ended_total"]["malformed",] == 1


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, FRAME_BYTES + 1, 2**31 - 1])
def test_a_frame_of_an_impossible_size_ends_the_connection(size: int) -> None:
    rig = KafkaRig()
    rig.send(rig.ask("ApiVersions", 0))
    rig.answers()
    rig.send(pack(">i", size) + b"\0" * 64)
    assert rig.is_finished
    assert rig.answers() == []


def test_before_a_login_frames_are_small() -> None:
    rig = KafkaRig(guarded("secret"))
    rig.send(rig.ask("ApiVersions", 0))
    assert len(rig.answers()) == 1
    rig.send(pack(">i", kafka.LOGIN_BYTES_MAX + 1))
    assert rig.is_finished


def test_what_is_no_request_ends_the_connection() -> None:
    rig = KafkaRig()
    rig.send(pack(">i", 8) + b"\0" * 8, rig.ask("ApiVersions", 0))
    assert rig.is_finished
    assert rig.answers() == []


def test_a_bug_ends_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = KafkaRig()

    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug of ours")

    monkeypatch.setattr("topics.server.kafka.exchange.encode", broken)
    rig.send(rig.ask("ApiVersions", 0))
    assert rig.is_finished
    assert "a bug of ours" in caplog.text


def test_a_client_that_ends_its_half_gets_its_answers() -> None:
    rig = KafkaRig()
    rig.desk.create()
    rig.send(rig.ask("Fetch", 12, **waiting(rig.desk)))
    rig.end_half()
    assert not rig.is_finished
    rig.desk.produce(some(b"1"))
    rig.loop.rest()
    assert len(rig.answers()) == 1
    assert rig.is_finished
    idle = KafkaRig()
    idle.send(idle.ask("ApiVersions", 0))
    idle.end_half()
    assert idle.is_finished


def test_what_a_lost_client_waits_for_is_given_up() -> None:
    rig = KafkaRig()
    rig.desk.create()
    rig.send(rig.ask("Fetch", 12, **waiting(rig.desk)))
    assert rig.desk.shell.driver.parked == 1
    rig.lose()
    assert rig.desk.shell.driver.parked == 0
    assert not rig.desk.exchange._clients.keys() - {rig.desk.client}


def test_half_a_frame_and_silence_have_their_time() -> None:
    for sent, time_s in ((b"\0\0", kafka.FRAME_S), (b"\0\0\0\x20abc", kafka.FRAME_S)):
        rig = KafkaRig()
        rig.send(sent)
        rig.loop.advance(time_s - 1)
        assert not rig.is_finished
        rig.loop.advance(2)
        assert rig.is_finished
    rig = KafkaRig()
    rig.send(rig.ask("ApiVersions", 0))
    rig.loop.advance(kafka.IDLE_S - 1)
    assert not rig.is_finished
    rig.loop.advance(2)
    assert rig.is_finished


def test_whoever_waits_is_not_idle() -> None:
    rig = KafkaRig()
    rig.desk.create()
    rig.send(rig.ask("Fetch", 12, **waiting(rig.desk)))
    rig.loop.advance(kafka.IDLE_S + 1)
    assert not rig.is_finished


def test_a_stop_waits_for_what_is_in_flight() -> None:
    rig = KafkaRig()
    rig.desk.create()
    rig.send(rig.ask("Fetch", 12, **waiting(rig.desk)))
    idle = KafkaRig(rig.desk)
    idle.send(idle.ask("ApiVersions", 0))
    for each in (rig, idle):
        each.shared.drain()
    assert idle.is_finished
    assert not rig.is_finished
    rig.desk.shell.advance(500)
    rig.loop.rest()
    assert len(rig.answers()) == 1
    assert rig.is_finished


# ---------------------------------------------------------------------- memory


def large(rig: KafkaRig, times: int) -> None:
    """Something to fetch of so many times 100 KiB."""
    rig.desk.create()
    for _ in range(times):
        rig.desk.produce(some(b"x" * (100 << 10)))


def test_a_large_answer_goes_as_its_client_takes_it() -> None:
    """And no request is begun behind one that is not taken."""
    rig = KafkaRig()
    large(rig, 6)
    rig.transport.room = 1000
    fetching = rig.desk.fetching(0)
    fetching["topics"][0].partitions[0].partition_max_bytes = fetching["max_bytes"] = 1 << 22
    rig.send(rig.ask("Fetch", 12, **fetching), produced(rig, b"behind"))
    assert 1000 < len(rig.transport.written) < 200 << 10
    assert rig.shared.answers.held_bytes > 100 << 10
    assert rig.desk.list_offset(-1).offset == 6

    rig.transport.take_all()
    rig.loop.rest()

    fetched, put = rig.answers()
    assert len(fetched) > 600 << 10
    assert len(put) < 100
    assert rig.shared.answers.held_bytes == 0


def test_answers_have_a_bound_together() -> None:
    rig = KafkaRig(limits=TransportLimits(answers_bytes=100 << 10, answer_whole_bytes=1000))
    large(rig, 2)
    rig.send(rig.ask("Fetch", 12, **rig.desk.fetching(0)))
    assert rig.is_finished
    assert rig.shared.answers.held_bytes == 0


def test_frames_have_a_bound_together() -> None:
    """Whoever holds most gives way, as with bodies of HTTP."""
    limits = TransportLimits(bodies_bytes=100 << 10, body_free_bytes=10)
    rig = KafkaRig(limits=limits)
    rig.send(pack(">i", 90 << 10) + b"\x7f" * (80 << 10))
    assert rig.shared.bodies.held_bytes > 79 << 10
    rig.send(b"\0" * (5 << 10))
    assert not rig.is_finished
    rig.send(b"\0" * (5 << 10))
    assert rig.is_finished, "the frame was no request"
    assert rig.shared.bodies.held_bytes == 0
    rig = KafkaRig(limits=limits)
    rig.send(pack(">i", 200 << 10) + b"\0" * (90 << 10))
    rig.send(b"\0" * (20 << 10))
    assert rig.is_finished
    assert rig.shared.bodies.held_bytes == 0
