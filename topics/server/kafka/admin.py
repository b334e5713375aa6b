"""What consoles and administrators ask beside topics and configs: where bytes lie, who writes, what has configs; and what
there is none of here, lists of access and reassignments."""

import os
from collections.abc import Sequence
from typing import Any, Final

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.names import is_shown
from topics.protocol.model.commands import DescribeProducers, DescribeTopics
from topics.protocol.model.fetched import ProducersDescribed, TopicFacts, TopicsDescribed
from topics.protocol.model.names import partition_name, quote
from topics.server.kafka.call import Call, listed
from topics.server.kafka.configs import BROKER, TOPIC
from topics.server.kafka.steps import Steps
from topics.server.kafka.topics import every_topic

PAGE: Final = 500
"""Partitions, or producers, that are described in one turn."""
PRODUCERS_MAX: Final = 100_000
"""Of one answer."""
IN_MEMORY: Final = "memory"
"""Where a server without a directory keeps its topics."""
UNKNOWN_SIZE: Final = -1
_NO_ACLS: Final = "topics has no lists of access: API keys say who may do what"
_LOGGER, _METRICS, _GROUP = 8, 16, 32
"""Kinds of resources that Kafka knows beside topics and brokers."""


# ---------------------------------------------------------------------- where bytes lie


def describe_log_dirs(call: Call) -> Steps[Any]:
    """The directory of this server, and the bytes of each partition."""
    T = call.T
    lacks = call.lacks("admin")
    if lacks is not None:
        return T.DescribeLogDirsResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    asked = call.request.topics
    wanted: dict[str, set[int]] | None = None
    if asked is None:
        found, _ = yield from every_topic(call)
    else:
        wanted = {}
        for each in asked:
            wanted.setdefault(each.topic, set()).update(each.partitions)
        names = [name for name in wanted if call.lacks("admin", name) is None]
        described: TopicsDescribed = yield from call.ask(DescribeTopics(names=names))
        found = [each for each in described.topics if is_shown(each.name)]
    topics = []
    for facts in found:
        indexes: Sequence[int] = range(facts.config.partition_count)
        if wanted is not None:
            indexes = [index for index in indexes if index in wanted[facts.name]]
        sizes = yield from _sizes(call, facts, indexes)
        parts = [
            T.DescribeLogDirsPartition(partition_index=index, partition_size=size)
            for index, size in sizes
        ]
        if parts:
            topics.append(T.DescribeLogDirsTopic(name=facts.name, partitions=parts))
        yield from call.part_done()
    total, usable = yield from _space(call)
    directory = T.DescribeLogDirsResult(
        log_dir=call.rules.data_dir or IN_MEMORY,
        topics=topics,
        total_bytes=total,
        usable_bytes=usable,
    )
    return T.DescribeLogDirsResponse(results=[directory])


def _sizes(call: Call, facts: TopicFacts, indexes: Sequence[int]) -> Steps[list[tuple[int, int]]]:
    """The bytes of some partitions of a topic."""
    sizes = {facts.name: facts.size_bytes}
    names = {partition_name(facts.name, index): index for index in indexes}
    others = [name for name, index in names.items() if index]
    for at in range(0, len(others), PAGE):
        described: TopicsDescribed = yield from call.ask(
            DescribeTopics(names=others[at : at + PAGE])
        )
        sizes.update((each.name, each.size_bytes) for each in described.topics)
    return [(index, sizes[name]) for name, index in names.items() if name in sizes]


def _space(call: Call) -> Steps[tuple[int, int]]:
    """The bytes of the file system, and those that are free."""
    directory = call.rules.data_dir
    if directory is None:
        return UNKNOWN_SIZE, UNKNOWN_SIZE
    try:
        found = yield from call.thread(
            call.service.shell.read_in_thread, lambda: os.statvfs(directory)
        )
    except OSError:
        return UNKNOWN_SIZE, UNKNOWN_SIZE
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


# ---------------------------------------------------------------------- who writes


def describe_producers(call: Call) -> Steps[Any]:
    """What each producer wrote last into some partitions."""
    T, topics, listed_ = call.T, [], 0
    for asked in call.request.topics:
        parts = []
        lacks = call.lacks("read", asked.name)
        count = 0
        if lacks is None:
            described: TopicsDescribed = yield from call.ask(DescribeTopics(names=[asked.name]))
            if described.topics and is_shown(asked.name):
                count = described.topics[0].config.partition_count
        for index in asked.partition_indexes:
            part = T.PartitionResponse(partition_index=index)
            if lacks is not None:
                part.error_code = errors.TOPIC_AUTHORIZATION_FAILED
                part.error_message = lacks.message
            elif not 0 <= index < count:
                part.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
                part.error_message = f"there is no partition {index} of {quote(asked.name)}"
            elif listed_ > PRODUCERS_MAX:
                part.error_code = errors.INVALID_REQUEST
                part.error_message = f"an answer lists about {PRODUCERS_MAX} producers, and no more"
            else:
                yield from _producers(call, partition_name(asked.name, index), part)
            listed_ += len(part.active_producers)
            parts.append(part)
            yield from call.part_done()
        topics.append(T.TopicResponse(name=asked.name, partitions=parts))
    call.is_long = listed_ > PAGE
    return T.DescribeProducersResponse(topics=topics)


def _producers(call: Call, name: str, part: Any) -> Steps[None]:
    T = call.T
    skip: int | None = 0
    while skip is not None:
        found: ProducersDescribed = yield from call.ask(DescribeProducers(name, skip, PAGE))
        part.active_producers += [
            T.ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last,
                last_timestamp=each.ts_ms,
                coordinator_epoch=-1,
            )
            for each in found.producers
        ]
        skip = found.next_skip
        if skip is not None:
            yield from call.pause(0)


# ---------------------------------------------------------------------- what has configs


def list_config_resources(call: Call) -> Steps[Any]:
    """What has configs that are described: topics, and this server."""
    T = call.T
    if call.lacks("admin") is not None:
        return T.ListConfigResourcesResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    asked = listed(call.request.resource_types)
    if call.version == 0:
        asked = [_METRICS]
    kinds = asked or [BROKER, TOPIC]
    if any(kind not in (TOPIC, BROKER, _LOGGER, _METRICS, _GROUP) for kind in kinds):
        return T.ListConfigResourcesResponse(error_code=errors.UNSUPPORTED_VERSION)
    found = []
    if BROKER in kinds:
        found += [
            T.ConfigResource(resource_name=str(number), resource_type=BROKER)
            for number in call.cluster.numbers
        ]
    if TOPIC in kinds:
        topics, _ = yield from every_topic(call)
        for each in topics:
            found.append(T.ConfigResource(resource_name=each.name, resource_type=TOPIC))
            yield from call.part_done()
    return T.ListConfigResourcesResponse(config_resources=found)


# ---------------------------------------------------------------------- what there is none of


def list_partition_reassignments(call: Call) -> Steps[Any]:
    """No partition is on its way elsewhere."""
    if call.lacks("admin") is not None:
        return call.T.ListPartitionReassignmentsResponse(
            error_code=errors.CLUSTER_AUTHORIZATION_FAILED
        )
    return call.T.ListPartitionReassignmentsResponse(error_message=None)
    yield


def describe_acls(call: Call) -> Steps[Any]:
    """There are none: consoles show that."""
    return call.T.DescribeAclsResponse(error_code=errors.SECURITY_DISABLED, error_message=_NO_ACLS)
    yield


def create_acls(call: Call) -> Steps[Any]:
    """None can be made."""
    T = call.T
    refused = T.AclCreationResult(error_code=errors.SECURITY_DISABLED, error_message=_NO_ACLS)
    return T.CreateAclsResponse(results=[refused] * len(call.request.creations))
    yield


def delete_acls(call: Call) -> Steps[Any]:
    """There are none."""
    T = call.T
    refused = T.DeleteAclsFilterResult(error_code=errors.SECURITY_DISABLED, error_message=_NO_ACLS)
    return T.DeleteAclsResponse(filter_results=[refused] * len(call.request.filters))
    yield
