"""Metadata, and the topics that clients make and delete."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.configs import BadConfig, config_with
from topics.protocol.faces.kafka.names import NO_ID, epoch_of, id_of, is_shown, why_not
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import AddPartitions, DeleteTopic, DescribeTopics, PutTopic
from topics.protocol.model.config import PARTITIONS_MAX, TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.fetched import TopicFacts, TopicsDescribed
from topics.protocol.model.names import quote
from topics.protocol.model.outcomes import TopicPut
from topics.server.kafka.call import Call, listed
from topics.server.kafka.configs import ENTRIES_LONG, ENTRIES_MAX, of_created, settable
from topics.server.kafka.steps import Steps
from topics.server.service.nodes import NO_NODE, Seen

BY_ID: Final = 12
"""The version of Metadata from which on topics are asked for by their ids."""
BROKERS: Final = 1
"""The kind of nodes that a client of topics looks for."""
PARTITIONS_DESCRIBED: Final = 2000
"""Of one page of DescribeTopicPartitions, as in Kafka."""
PARTITIONS_KEPT: Final = 4096
"""Entries of answers that are kept, for the next that says the same."""
PAGE: Final = 500
"""Topics of a list that are described in one turn."""
_TWICE: Final = "the request names the topic twice"
_BAD_COUNT: Final = f"a topic has 1 to {PARTITIONS_MAX} partitions"


def every_topic(call: Call) -> Steps[tuple[list[TopicFacts], str]]:
    """All topics that the client may see, and the name of the data."""
    found: list[TopicFacts] = []
    history = ""
    after: str | None = ""
    while after is not None:
        page: TopicsDescribed = yield from call.ask(DescribeTopics(after=after, page_size=PAGE))
        found += [each for each in page.topics if is_shown(each.name)]
        after, history = page.next_after, page.history
        if after is not None:
            yield from call.pause(0)
    call.is_long = sum(each.config.partition_count for each in found) > PAGE
    return found, history


def metadata(call: Call) -> Steps[Any]:
    """Which topics there are, and where: all of them are where the leader is."""
    request, T = call.request, call.T
    cluster = call.cluster
    if request.topics is None or (call.version == 0 and not request.topics):
        every, history = yield from every_topic(call)
        topics = []
        for each in every:
            topics.append(_topic(call, each))
            yield from call.part_done()
    else:
        topics, history = yield from _named(call)
    if request.include_topic_authorized_operations:
        for each in topics:
            each.topic_authorized_operations = call.operations(each.name)
            yield from call.part_done()
    answer = T.MetadataResponse(
        brokers=[T.MetadataResponseBroker(*node) for node in cluster.nodes],
        cluster_id=history,
        controller_id=cluster.leader.number,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = call.operations()
    return answer


def _named(call: Call) -> Steps[tuple[list[Any], str]]:
    """The topics that the request names, of which some are made; and the name of the data."""
    request, T = call.request, call.T
    names = listed([each.name for each in request.topics if each.name is not None])
    ids = listed([each.topic_id for each in request.topics if each.name is None])
    refused = {
        name: errors.TOPIC_AUTHORIZATION_FAILED for name in names if not _may_see(call, name)
    }
    asked = [name for name in names if name not in refused]
    found: TopicsDescribed = yield from call.ask(
        DescribeTopics(names=asked, epochs=[epoch_of(each) for each in ids])
    )
    by_name = {each.name: each for each in found.topics if is_shown(each.name)}
    for name in asked:
        if name not in by_name:
            refused[name] = yield from _missing(call, name)
            if not refused[name]:
                again: TopicsDescribed = yield from call.ask(DescribeTopics(names=[name]))
                by_name.update((each.name, each) for each in again.topics)
                # The leader has made it; a node that follows may not have it yet.
                refused[name] = errors.LEADER_NOT_AVAILABLE
            yield from call.part_done()
    by_id = {id_of(each.epoch): each for each in found.topics if is_shown(each.name)}
    out = []
    for name in names:
        if name in by_name:
            out.append(_topic(call, by_name[name]))
        else:
            code = refused.get(name, errors.UNKNOWN_TOPIC_OR_PARTITION)
            out.append(T.MetadataResponseTopic(error_code=code, name=name))
        yield from call.part_done()
    for topic_id in ids:
        if call.version < BY_ID:
            code = errors.INVALID_REQUEST
            out.append(T.MetadataResponseTopic(error_code=code, name="", topic_id=topic_id))
        elif topic_id in by_id:
            out.append(_topic(call, by_id[topic_id]))
        else:
            code = errors.UNKNOWN_TOPIC_ID
            out.append(T.MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id))
        yield from call.part_done()
    return out, found.history


def _may_see(call: Call, name: str) -> bool:
    """Whoever may write to a topic, or change it, has to know where it is, too."""
    caller = call.caller
    return not caller.is_key or (caller.covers(name) and not caller.is_revoked)


def _missing(call: Call, name: str) -> Steps[int]:
    """Make a topic that a client asks for and that is not there; its error, 0: it is there now."""
    if why_not(name) is not None:
        return errors.INVALID_TOPIC
    if not (call.request.allow_auto_topic_creation and call.rules.auto_create):
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    if call.lacks("write", name) is not None:
        return errors.TOPIC_AUTHORIZATION_FAILED
    if call.cluster.leader is NO_NODE:
        return errors.LEADER_NOT_AVAILABLE
    try:
        yield from call.ask(PutTopic(name, TopicConfig(), type_given=False, previous=None))
    except Rejection as refusal:
        return errors.code_of(refusal)
    return 0


def _topic(call: Call, facts: TopicFacts) -> Any:
    cluster = call.cluster
    parts = [_partition(cluster, index) for index in range(facts.config.partition_count)]
    return call.T.MetadataResponseTopic(
        name=facts.name, topic_id=id_of(facts.epoch), partitions=parts
    )


@lru_cache(PARTITIONS_KEPT)
def _partition(cluster: Seen, index: int) -> Any:
    """One partition, which all topics share: nobody changes it."""
    T = types("MetadataResponse")
    return T.MetadataResponsePartition(partition_index=index, **led(cluster))


def led(cluster: Seen) -> dict[str, Any]:
    """What is said of each partition: by whom it is led, and who has it."""
    return {
        "error_code": errors.LEADER_NOT_AVAILABLE if cluster.leader is NO_NODE else 0,
        "leader_id": cluster.leader.number,
        "leader_epoch": cluster.term,
        "replica_nodes": cluster.numbers,
        "isr_nodes": cluster.numbers,
    }


def describe_cluster(call: Call) -> Steps[Any]:
    """The nodes."""
    T, cluster = call.T, call.cluster
    if call.request.endpoint_type != BROKERS:
        return T.DescribeClusterResponse(
            error_code=errors.MISMATCHED_ENDPOINT_TYPE,
            error_message="brokers answer here, and no controller does",
        )
    described: TopicsDescribed = yield from call.ask(DescribeTopics())
    answer = T.DescribeClusterResponse(
        cluster_id=described.history,
        controller_id=cluster.leader.number,
        brokers=[T.DescribeClusterBroker(*node) for node in cluster.nodes],
    )
    if call.request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = call.operations()
    return answer


# ---------------------------------------------------------------------- described, a page at a time


def describe_topic_partitions(call: Call) -> Steps[Any]:
    """Partitions of topics, by name and number, from a cursor on, up to a bound; and where the next page begins."""
    T, cursor = call.T, call.request.cursor
    limit = min(max(call.request.response_partition_limit, 1), PARTITIONS_DESCRIBED)
    begin, first = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    names = sorted({each.name for each in call.request.topics})
    if first < 0 or (cursor is not None and names and begin not in names):
        return T.DescribeTopicPartitionsResponse(
            topics=[_undescribed(T, name, errors.INVALID_REQUEST) for name in names]
        )
    answer = T.DescribeTopicPartitionsResponse()
    if names:
        found = yield from _named_from(call, names, begin, answer)
    else:
        found = yield from _all_from(call, begin, limit)
    left = limit
    for facts in found:
        at = first if facts.name == begin else 0
        if not left:
            answer.next_cursor = T.Cursor(topic_name=facts.name, partition_index=at)
            break
        indexes = range(at, facts.config.partition_count)[:left]
        answer.topics.append(_described(call, facts, indexes))
        left -= len(indexes)
        if indexes and indexes.stop < facts.config.partition_count:
            answer.next_cursor = T.Cursor(topic_name=facts.name, partition_index=indexes.stop)
            break
        yield from call.part_done()
    call.is_long = limit - left > PAGE
    return answer


def _named_from(
    call: Call, names: Sequence[str], begin: str, answer: Any
) -> Steps[Sequence[TopicFacts]]:
    """The topics of some names from one on; the answer says what is wrong with the others."""
    refused = {name for name in names if not _may_see(call, name)}
    described: TopicsDescribed = yield from call.ask(
        DescribeTopics(names=[name for name in names if name not in refused])
    )
    found = {each.name: each for each in described.topics if is_shown(each.name)}
    for name in names:
        if name not in found:
            code = (
                errors.TOPIC_AUTHORIZATION_FAILED
                if name in refused
                else errors.UNKNOWN_TOPIC_OR_PARTITION
            )
            answer.topics.append(_undescribed(call.T, name, code))
            yield from call.part_done()
    return [each for name, each in found.items() if name >= begin]


def _all_from(call: Call, begin: str, count: int) -> Steps[Sequence[TopicFacts]]:
    """The topics that the client may see, from one name on: more of them than `count`, where there are more."""
    found: list[TopicFacts] = []
    if begin and _may_see(call, begin):
        first: TopicsDescribed = yield from call.ask(DescribeTopics(names=[begin]))
        found += [each for each in first.topics if is_shown(each.name)]
    after: str | None = begin
    while after is not None and len(found) <= count:
        page: TopicsDescribed = yield from call.ask(DescribeTopics(after=after, page_size=PAGE))
        found += [each for each in page.topics if is_shown(each.name)]
        after = page.next_after
        if after is not None:
            yield from call.pause(0)
    return found


def _undescribed(T: Any, name: str, code: int) -> Any:
    return T.DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _described(call: Call, facts: TopicFacts, indexes: range) -> Any:
    T = call.T
    return T.DescribeTopicPartitionsResponseTopic(
        name=facts.name,
        topic_id=id_of(facts.epoch),
        partitions=[
            T.DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                **led(call.cluster),
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index in indexes
        ],
        topic_authorized_operations=call.operations(facts.name),
    )


# ---------------------------------------------------------------------- made and deleted


def create_topics(call: Call) -> Steps[Any]:
    """Make topics, each by itself."""
    T, results, entries = call.T, [], 0
    named = Counter(each.name for each in call.request.topics)
    for asked in _each_once(call.request.topics):
        result = T.CreatableTopicResult(name=asked.name)
        code, message = yield from _created(call, asked, result, is_twice=named[asked.name] > 1)
        result.error_code, result.error_message = code, message
        if entries > ENTRIES_MAX:
            result.configs, result.topic_config_error_code = [], errors.INVALID_REQUEST
        entries += len(result.configs)
        results.append(result)
    call.is_long = entries > ENTRIES_LONG
    return T.CreateTopicsResponse(topics=results)


def _each_once(topics: Sequence[Any]) -> list[Any]:
    """One of each name: as in Kafka, a name that is there twice has one answer."""
    return list({each.name: each for each in topics}.values())


def _created(
    call: Call, asked: Any, result: Any, *, is_twice: bool
) -> Steps[tuple[int, str | None]]:
    """Make one; its error, 0 where there is none, and why."""
    why = why_not(asked.name)
    if why is not None:
        return errors.INVALID_TOPIC, why
    if is_twice:
        return errors.INVALID_REQUEST, _TWICE
    lacks = call.lacks("admin", asked.name)
    if lacks is not None:
        return errors.TOPIC_AUTHORIZATION_FAILED, lacks.message
    partitions, replicas = asked.num_partitions, asked.replication_factor
    if asked.assignments:
        if partitions != -1 or replicas != -1:
            return (
                errors.INVALID_REQUEST,
                "either assignments, or numbers of partitions and replicas",
            )
        why = _why_not_assigned(call, asked.assignments)
        if why is not None:
            return errors.INVALID_REPLICA_ASSIGNMENT, why
        partitions, replicas = len(asked.assignments), call.nodes.replicas
    if partitions != -1 and not 1 <= partitions <= PARTITIONS_MAX:
        return errors.INVALID_PARTITIONS, _BAD_COUNT
    if replicas not in (-1, call.nodes.replicas):
        why = (
            f"every topic has the replication factor {call.nodes.replicas}: ask for that, or for -1"
        )
        return errors.INVALID_REPLICATION_FACTOR, why
    found: TopicsDescribed = yield from call.ask(DescribeTopics(names=[asked.name]))
    exists = errors.TOPIC_ALREADY_EXISTS, f"topic {quote(asked.name)} already exists"
    if found.topics:
        return exists
    texts = {each.name: each.value for each in settable(call, asked.configs)}
    valueless = [name for name, text in texts.items() if text is None]
    if valueless:
        return errors.INVALID_CONFIG, f"{quote(valueless[0])} has no value"
    try:
        config = config_with(TopicConfig(), texts)
    except BadConfig as error:
        return errors.INVALID_CONFIG, str(error)
    if partitions > 1:
        config = replace(config, partitions=partitions)
    if not call.request.validate_only:
        try:
            put: TopicPut = yield from call.ask(
                PutTopic(asked.name, config, type_given=True, previous=None)
            )
        except Rejection as refusal:
            return errors.code_of(refusal), refusal.message
        if not put.created:  # by another, since it was looked for
            return exists
        made: TopicsDescribed = yield from call.ask(DescribeTopics(names=[asked.name]))
        result.topic_id = id_of(made.topics[0].epoch) if made.topics else NO_ID
    result.num_partitions, result.replication_factor = config.partition_count, call.nodes.replicas
    result.configs = of_created(call, config)
    return 0, None


def _why_not_assigned(call: Call, assignments: Sequence[Any]) -> str | None:
    """What is wrong with the replicas that a client wants for partitions 0 and on; None: nothing."""
    indexes = sorted(each.partition_index for each in assignments)
    if indexes != list(range(len(assignments))):
        return "assignments are for partitions 0 and on, each once"
    return _why_not_here(call, assignments)


def _why_not_here(call: Call, assignments: Sequence[Any]) -> str | None:
    numbers, replicas = set(call.cluster.numbers), call.nodes.replicas
    for each in assignments:
        asked = set(each.broker_ids)
        if len(each.broker_ids) != replicas or len(asked) != replicas or not asked <= numbers:
            return f"the number of replicas of a partition is {replicas}, on nodes among {sorted(numbers)}"
    return None


def create_partitions(call: Call) -> Steps[Any]:
    """Give topics more partitions, each by itself."""
    T, results = call.T, []
    named = Counter(each.name for each in call.request.topics)
    for asked in _each_once(call.request.topics):
        result = T.CreatePartitionsTopicResult(name=asked.name)
        code, message = yield from _grown(call, asked, is_twice=named[asked.name] > 1)
        result.error_code, result.error_message = code, message
        results.append(result)
    return T.CreatePartitionsResponse(results=results)


def _grown(call: Call, asked: Any, *, is_twice: bool) -> Steps[tuple[int, str | None]]:
    if is_twice:
        return errors.INVALID_REQUEST, _TWICE
    lacks = call.lacks("admin", asked.name)
    if lacks is not None:
        return errors.TOPIC_AUTHORIZATION_FAILED, lacks.message
    found: TopicsDescribed = yield from call.ask(DescribeTopics(names=[asked.name]))
    if not found.topics or not is_shown(asked.name):
        return errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quote(asked.name)}"
    if not 1 <= asked.count <= PARTITIONS_MAX:
        return errors.INVALID_PARTITIONS, _BAD_COUNT
    if asked.assignments is not None:
        more = asked.count - found.topics[0].config.partition_count
        if more > 0 and len(asked.assignments) != more:
            return (
                errors.INVALID_REPLICA_ASSIGNMENT,
                f"{more} partitions would be new, and {len(asked.assignments)} are assigned",
            )
        why = _why_not_here(call, asked.assignments)
        if why is not None:
            return errors.INVALID_REPLICA_ASSIGNMENT, why
    try:
        yield from call.ask(AddPartitions(asked.name, asked.count, call.request.validate_only))
    except Rejection as refusal:
        if refusal.code is ErrorCode.TOPIC_EXISTS_INCOMPATIBLE:
            return errors.INVALID_PARTITIONS, refusal.message
        return errors.code_of(refusal), refusal.message
    return 0, None


def delete_topics(call: Call) -> Steps[Any]:
    """Delete topics, by names or by ids."""
    T, request, results = call.T, call.request, []
    asked = (
        [(each.name, each.topic_id) for each in request.topics]
        if call.version >= 6
        else [(name, NO_ID) for name in request.topic_names]
    )
    named = Counter(asked)
    for name, topic_id in named:
        result = T.DeletableTopicResult(name=name, topic_id=topic_id)
        code, message = yield from _deleted(call, result, is_twice=named[name, topic_id] > 1)
        result.error_code, result.error_message = code, message
        results.append(result)
    return T.DeleteTopicsResponse(responses=results)


def _deleted(call: Call, result: Any, *, is_twice: bool) -> Steps[tuple[int, str | None]]:
    if is_twice:
        return errors.INVALID_REQUEST, _TWICE
    if (result.name is None) == (result.topic_id == NO_ID):
        return errors.INVALID_REQUEST, "either a name or an id says which topic"
    if result.name is None:
        epochs = [epoch_of(result.topic_id)]
        found: TopicsDescribed = yield from call.ask(DescribeTopics(epochs=epochs))
        if not found.topics or not is_shown(found.topics[0].name):
            return errors.UNKNOWN_TOPIC_ID, "no topic has this id"
        result.name = found.topics[0].name
    lacks = call.lacks("delete", result.name)
    if lacks is not None:
        return errors.TOPIC_AUTHORIZATION_FAILED, lacks.message
    found = yield from call.ask(DescribeTopics(names=[result.name]))
    if not found.topics or not is_shown(result.name):
        return errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quote(result.name)}"
    result.topic_id = id_of(found.topics[0].epoch)
    try:
        yield from call.ask(DeleteTopic(result.name))
    except Rejection as refusal:
        return errors.code_of(refusal), refusal.message
    return 0, None
