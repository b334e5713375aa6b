"""A topic of several partitions in a data directory, and records in each of them."""

from typing import Any

from protocol.batches.builder import batch, records_of
from protocol.durable import Durable

from topics.protocol.model.commands import AppendBatch
from topics.protocol.model.names import partition_name


def write(engine: Durable, partition: int, *datas: bytes, name: str = "t") -> None:
    """Records in a partition, as a client of Kafka's writes them."""
    data = batch(records_of([(b"k", each, (), 0) for each in datas]), len(datas))
    engine.ask(AppendBatch(partition_name(name, partition), data))


def partitioned(engine: Durable, count: int = 3, name: str = "t", **config: Any) -> Durable:
    """Two records in the first partition, none in the second, one in the third."""
    engine.put(name, partitions=count, **config)
    write(engine, 0, b'{"n":1}', b'{"n":2}', name=name)
    write(engine, 2, b'{"n":3}', name=name)
    return engine
