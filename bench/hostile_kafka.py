"""Kafka's clients that mean harm: what each costs a neighbour that appends over HTTP and produces over Kafka.

Run `python -m bench.hostile_kafka [ATTACK ...] [--clients N] [--other CHECKOUT]`.  Each attack runs for a few seconds from
a process of its own, N times over; a client in good faith appends a record, then produces one, each on a connection of
its own, every two milliseconds.  `bench.hostile_http1` says what is printed; the sink is a second server.
"""

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from bench.hostile_requests import Client as HttpClient
from bench.hostile_requests import records, request
from bench.kafka import Broker, Client, batch_of, framed, produce_frame
from bench.neighbour import Ask, table
from bench.serving import Serving
from topics.protocol.batches.codecs import packed
from topics.protocol.faces.kafka.schema import types

PARTITIONS: Final = 10_000
TOPICS: Final = 10_000
LOGINS: Final = 1000
KEY: Final = "secret"
KEYED: Final = "logins that are wrong"
REFUSED: Final = "Kafka where it is not served"
APART: Final = ("HTTP on the port of Kafka", "TLS on the port of Kafka")
TIMEOUT_S: Final = 60

_free: list[int] = []
_ports: dict[int, int] = {}
"""The port of Kafka's clients alone, by that of its server; an attacker is forked, and knows them."""

Prepare = Callable[[Serving], None]
Attack = Callable[[int, int], None]
"""Attacks a port, so many times over."""


def connected(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.settimeout(TIMEOUT_S)
    return made


def again(*frames: bytes) -> Attack:
    """Send these, one after the other, and read an answer to each, for ever; come back when cut."""

    def attack(port: int, clients: int) -> None:
        made = [connected(port) for _ in range(clients)]
        while True:
            for frame in frames:
                for n, each in enumerate(made):
                    try:
                        each.sendall(frame)
                        if not answered(each):
                            raise ConnectionResetError
                    except OSError:
                        each.close()
                        made[n] = connected(port)

    return attack


def answered(client: socket.socket) -> bool:
    """Read one answer; False at the end of the connection."""
    left = 4
    head = b""
    while left:
        piece = client.recv(left)
        if not piece:
            return False
        head, left = head + piece, left - len(piece)
    (left,) = struct.unpack(">i", head)
    while left:
        piece = client.recv(min(left, 1 << 20))
        if not piece:
            return False
        left -= len(piece)
    return True


def unread(frame: bytes) -> Attack:
    """Ask, and read nothing."""

    def attack(port: int, clients: int) -> None:
        while True:
            held = [connected(port) for _ in range(20 * clients)]
            for each in held:
                each.settimeout(0.2)
                with suppress(OSError):
                    each.sendall(frame * 40)
            time.sleep(1)
            for each in held:
                each.close()

    return attack


def halves(port: int, clients: int) -> None:
    """Frames that begin, and go on by a byte now and then."""
    head = struct.pack(">i", 1 << 20)
    held = [connected(port) for _ in range(200 * clients)]
    for each in held:
        each.sendall(head)
    while True:
        for n, each in enumerate(held):
            try:
                each.sendall(b"x")
            except OSError:
                held[n] = connected(port)
        time.sleep(0.2)


def sent(*starts: bytes) -> Attack:
    """Connections that send this, one after the other."""

    def attack(port: int, clients: int) -> None:
        while True:
            for start in starts:
                for _ in range(clients):
                    with suppress(OSError), connected(port) as client:
                        client.sendall(start)
                        client.recv(1000)

    return attack


def apart(start: bytes) -> Attack:
    attack = sent(start)
    return lambda port, clients: attack(_ports[port], clients)


def hello() -> bytes:
    """What a client of TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            incoming, outgoing, server_hostname="x"
        ).do_handshake()
    return outgoing.read()


def logins(port: int, clients: int) -> None:
    """A thousand connections, each of which logs in with a key that nobody has, again and again."""
    hand = framed("SaslHandshake", 1, mechanism="PLAIN")
    login = framed("SaslAuthenticate", 2, auth_bytes=b"\0anyone\0wrong")
    held = [connected(port) for _ in range(LOGINS * clients)]
    for each in held:
        each.sendall(hand)
        answered(each)
    while True:
        for n, each in enumerate(held):
            try:
                each.sendall(login)
            except OSError:
                held[n] = connected(port)
        for each in held:
            with suppress(OSError):
                answered(each)


def bomb(codec: int) -> bytes:
    """A batch of a record that says that it is large, and unpacks to more than is taken."""
    batch = bytearray(batch_of(1, 0, keyed=False)[:61])
    batch[21:23] = struct.pack(">h", codec)
    return produce_frame("t", sealed(bytes(batch) + packed(codec, bytes(512 << 20))))


def sealed(batch: bytes) -> bytes:
    """The batch with its length and CRC as they should be."""
    from crc32c import crc32c

    data = bytearray(batch)
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


def lying() -> list[bytes]:
    """Frames with a length that is not what follows: of an array, of a record, of a batch."""
    whole = produce_frame("t", batch_of(1000, 0, keyed=True))
    batch = bytearray(batch_of(1000, 0, keyed=True))
    batch[61:66] = b"\xfe\xff\xff\xff\x0f"  # the first record's length
    count = bytearray(batch_of(1000, 0, keyed=True))
    count[57:61] = struct.pack(">i", 1 << 30)
    names = bytearray(framed("Metadata", 8, topics=[]))
    names[19:23] = struct.pack(">i", 1 << 30)
    return [
        whole[:40] + b"\xff" * 8 + whole[48:],
        produce_frame("t", sealed(bytes(batch))),
        produce_frame("t", sealed(bytes(count))),
        bytes(names),
    ]


def produced_to_many() -> bytes:
    T = types("ProduceRequest")
    batch = batch_of(1, 0, keyed=False)
    topics = [
        T.TopicProduceData(
            name=f"t{n}", partition_data=[T.PartitionProduceData(index=0, records=batch)]
        )
        for n in range(PARTITIONS)
    ]
    return framed("Produce", 9, acks=-1, timeout_ms=1000, transactional_id=None, topic_data=topics)


def fetched_from_many(*, wait_ms: int = 0) -> bytes:
    T = types("FetchRequest")
    topics = [
        T.FetchTopic(topic=f"t{n}", partitions=[T.FetchPartition(partition_max_bytes=1 << 20)])
        for n in range(PARTITIONS)
    ]
    return framed("Fetch", 11, max_wait_ms=wait_ms, min_bytes=1, max_bytes=50 << 20, topics=topics)


def listed() -> bytes:
    T = types("ListOffsetsRequest")
    topics = [
        T.ListOffsetsTopic(name=f"t{n}", partitions=[T.ListOffsetsPartition(timestamp=-1)])
        for n in range(PARTITIONS)
    ]
    return framed("ListOffsets", 5, replica_id=-1, topics=topics)


def named() -> bytes:
    T = types("MetadataRequest")
    topics = [T.MetadataRequestTopic(name=f"t{n}") for n in range(TOPICS)]
    return framed("Metadata", 8, topics=topics, allow_auto_topic_creation=False)


def fetch_frame() -> bytes:
    T = types("FetchRequest")
    part = T.FetchPartition(partition_max_bytes=8 << 20)
    topics = [T.FetchTopic(topic="t", partitions=[part])]
    return framed("Fetch", 11, max_wait_ms=0, min_bytes=1, max_bytes=8 << 20, topics=topics)


def one_topic(serving: Serving) -> None:
    broker = HttpClient(serving.port)
    broker.ask(request("PUT", "/v0/topics/t", {}))
    broker.close()


def filled(serving: Serving) -> None:
    one_topic(serving)
    client = Client(Broker("topics", serving.port, serving.process.pid))
    frame = produce_frame("t", batch_of(1000, 0, keyed=True))
    for _ in range(100):
        client.send(frame)
        client.take()
    client.close()


def many_topics(serving: Serving) -> None:
    client = HttpClient(serving.port)
    for n in range(TOPICS):
        client.ask(request("PUT", f"/v0/topics/t{n}", {}))
    client.close()


def nothing(serving: Serving) -> None:
    del serving


ATTACKS: Final[dict[str, tuple[Prepare, Callable[[], Attack]]]] = {
    "batches that unpack to 512 MiB": (
        one_topic,
        lambda: again(*[bomb(each) for each in (1, 3, 4)]),
    ),
    "lengths that lie": (one_topic, lambda: again(*lying())),
    "produce to 10,000 topics": (many_topics, lambda: again(produced_to_many())),
    "produce to none of 10,000": (one_topic, lambda: again(produced_to_many())),
    "fetch of 10,000 topics": (many_topics, lambda: again(fetched_from_many())),
    "waiting fetch of 10,000": (many_topics, lambda: again(fetched_from_many(wait_ms=10))),
    "offsets of 10,000 topics": (many_topics, lambda: again(listed())),
    "metadata of 10,000 by name": (many_topics, lambda: again(named())),
    "metadata of all 10,000": (
        many_topics,
        lambda: again(framed("Metadata", 8, topics=None, allow_auto_topic_creation=False)),
    ),
    "half frames": (nothing, lambda: halves),
    "answers that nobody reads": (filled, lambda: unread(fetch_frame())),
    KEYED: (nothing, lambda: logins),
    APART[0]: (nothing, lambda: apart(request("GET", "/v0/health"))),
    APART[1]: (nothing, lambda: apart(hello())),
    REFUSED: (nothing, lambda: sent(framed("ApiVersions", 2))),
}


def options_of(name: str) -> Sequence[str]:
    """Of the server that an attack is for."""
    if name == KEYED:
        return ("--api-keys", KEY)
    if name in APART:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            _free.append(probe.getsockname()[1])
        return ("--kafka-port", str(_free[-1]))
    return ("--no-kafka",) if name == REFUSED else ()


@contextmanager
def setup(serving: Serving, name: str) -> Iterator[Ask]:
    """A client in good faith, which appends and produces by turns."""
    if name in APART:
        _ports[serving.port] = _free[-1]
    ATTACKS[name][0](serving)
    http = HttpClient(serving.port)
    kafka = Client(Broker("topics", serving.port, serving.process.pid))
    headers = (f"authorization: Bearer {KEY}",) if name == KEYED else ()
    http.ask(request("PUT", "/v0/topics/mine", {}, *headers))
    if name == KEYED:
        kafka.ask("SaslHandshake", 1, mechanism="PLAIN")
        login = f"\0anyone\0{KEY}".encode()
        assert not kafka.ask("SaslAuthenticate", 1, auth_bytes=login).error_code
    append = request("POST", "/v0/topics/mine", records("x" * 100), *headers)
    produce = produce_frame("mine", batch_of(1, 0, keyed=True))

    def ask() -> bool:
        status, _ = http.ask(append)
        if name != REFUSED:
            kafka.send(produce)
            kafka.take()
        return status == 429

    yield ask
    http.close()
    kafka.close()


def attack(port: int, name: str, clients: int) -> None:
    ATTACKS[name][1]()(port, clients)


main = table(list(ATTACKS), setup, attack, has_sink=False, options_of=options_of)


if __name__ == "__main__":
    main()
