"""Kafka's exchange over memory, without a socket: what its tests ask and look at."""

from struct import Struct
from typing import Any

from protocol.batches.builder import Record, batch, records_of

from topics.protocol.faces.kafka.apis import SERVED
from topics.protocol.faces.kafka.codec import decode, encode
from topics.protocol.faces.kafka.schema import message, types
from topics.protocol.model.commands import PutTopic
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.limits import Limits
from topics.server.access.guard import Guard
from topics.server.http.exchange import TopicsExchange
from topics.server.kafka.call import Client, Rules
from topics.server.kafka.exchange import Answered, KafkaExchange, Refused
from topics.server.kafka.steps import Running
from topics.testing import START_MS, _Shell

KEYS = {api.name: key for key, api in SERVED.items()}
HEAD = Struct(">hhih")
NUMBER = 77


class KafkaDesk:
    """An exchange over memory, asked in one call.

    Args:
        http: That of HTTP, which shares its parts with this one.

    Attributes:
        ended: How often `revoke` ended the connection.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        rules: Rules | None = None,
        shell: _Shell | None = None,
        http: TopicsExchange | None = None,
        **limits: int,
    ) -> None:
        self.shell = shell or _Shell(Limits(**limits), START_MS)
        self.http = http or TopicsExchange(self.shell, guard=guard)
        service, slots, _, nodes = self.http.parts
        self.exchange = KafkaExchange(service, slots, guard, rules, nodes)
        self.http.on_revoked.append(self.exchange.revoke)
        self.ended = 0
        self.client = self.connected()

    def connected(self) -> Client:
        return self.exchange.connected("192.0.2.1", ("127.0.0.1", 4000), self._end)

    def _end(self) -> None:
        self.ended += 1

    def begin(self, name: str, version: int | None = None, **fields: Any) -> Running[Answered]:
        """A request on its way."""
        frame, _ = self.frame(name, version, **fields)
        return self.begin_raw(frame)

    def begin_raw(self, frame: bytes) -> Running[Answered]:
        running = self.exchange.begin(self.client, memoryview(frame), lambda _: None)
        running.go_on()
        return running

    def frame(self, name: str, version: int | None = None, **fields: Any) -> tuple[bytes, int]:
        """A request as it comes, and its version; by default the last that is served."""
        version = SERVED[KEYS[name]].last if version is None else version
        request = message(name + "Request")
        head = HEAD.pack(KEYS[name], version, NUMBER, 1) + b"c"
        head += b"\0" if version >= request.flexible else b""
        value = getattr(types(name + "Request"), name + "Request")(**fields)
        return head + b"".join(encode(name + "Request", version, value)), version

    def ask(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """The answer to a request that waits for nothing."""
        frame, version = self.frame(name, version, **fields)
        return self.answer(self.begin_raw(frame), name, version)

    def answer(self, running: Running[Answered], name: str, version: int | None = None) -> Any:
        version = SERVED[KEYS[name]].last if version is None else version
        if running.failure is not None:
            raise running.failure
        assert running.is_over, "it waits"
        if not running.result:
            return None
        data = b"".join(bytes(each) for each in running.result)
        assert int.from_bytes(data[:4], "big") == NUMBER
        response = message(name + "Response")
        at = 5 if version >= response.flexible and name != "ApiVersions" else 4
        return decode(name + "Response", version, memoryview(data), at)

    # ------------------------------------------------------------------ in short

    def create(self, name: str = "t", *, partitions: int = -1, **configs: str) -> Any:
        T = types("CreateTopicsRequest")
        given = [
            T.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = T.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=-1, configs=given
        )
        (found,) = self.ask("CreateTopics", topics=[topic]).topics
        return found

    def produce(
        self,
        *data: bytes,
        name: str = "t",
        version: int = 12,
        acks: int = -1,
        partition: int = 0,
        **fields: Any,
    ) -> Any:
        """The answers for the batches, each for one partition."""
        T = types("ProduceRequest")
        parts = [T.PartitionProduceData(index=partition, records=each) for each in data]
        found = self.ask(
            "Produce",
            version,
            acks=acks,
            topic_data=[T.TopicProduceData(name=name, partition_data=parts)],
            **{"timeout_ms": 1000, **fields},
        )
        return None if found is None else found.responses[0].partition_responses

    def fetching(
        self, offset: int, *, name: str = "t", partition: int = 0, **fields: Any
    ) -> dict[str, Any]:
        """The fields of a Fetch of one topic."""
        T = types("FetchRequest")
        part = T.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        topic = T.FetchTopic(topic=name, partitions=[part])
        return {"max_bytes": 1 << 20, "topics": [topic], **fields}

    def fetch(self, offset: int, *, version: int = 12, **fields: Any) -> Any:
        found = self.ask("Fetch", version, **self.fetching(offset, **fields))
        return found.responses[0].partitions[0]

    def list_offset(
        self, time_ms: int, *, name: str = "t", version: int | None = None, partition: int = 0
    ) -> Any:
        T = types("ListOffsetsRequest")
        part = T.ListOffsetsPartition(partition_index=partition, timestamp=time_ms)
        topic = T.ListOffsetsTopic(name=name, partitions=[part])
        return self.ask("ListOffsets", version, topics=[topic]).topics[0].partitions[0]

    def refused(self, name: str, version: int | None = None, **fields: Any) -> str:
        """Why a request ends its connection."""
        try:
            self.ask(name, version, **fields)
        except Refused as why:
            return str(why)
        raise AssertionError("it was answered")


class Meddler:
    """A shell on which somebody else changes a topic right before each change of a client."""

    def __init__(self, desk: KafkaDesk, times: int) -> None:
        self.left, self._submit = times, desk.shell.submit

    def submit(self, command: Any, deliver: Any) -> Any:
        if isinstance(command, PutTopic) and self.left:
            self.left -= 1
            others = TopicConfig(cap_records=self.left + 1)
            self._submit(PutTopic("t", others, type_given=True), lambda _: None)
        return self._submit(command, deliver)


def some(*values: bytes, **fields: Any) -> bytes:
    """A batch of values without keys."""
    records: list[Record] = [(None, value, (), 0) for value in values]
    return batch(records_of(records), len(records), **fields)
