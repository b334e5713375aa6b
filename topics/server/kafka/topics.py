"""Metadata, and the topics that clients make and delete."""

from collections import Counter
from typing import Any, Final

from topics.protocol.batches.header import LEADER_EPOCH
from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.configs import BadConfig, config_of
from topics.protocol.faces.kafka.names import NO_ID, epoch_of, id_of, is_shown, why_not
from topics.protocol.model.commands import DeleteTopic, DescribeTopics, PutTopic
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Rejection
from topics.protocol.model.fetched import TopicFacts, TopicsDescribed
from topics.protocol.model.names import quote
from topics.server.kafka.call import NODE, Call, listed
from topics.server.kafka.configs import ENTRIES_LONG, ENTRIES_MAX, of_created
from topics.server.kafka.steps import Steps

PAGE: Final = 500
"""Topics of a list that are described in one turn."""
_ONE_PARTITION: Final = "topics has one partition a topic for now; ask for 1, or for -1"


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
    call.is_long = len(found) > PAGE
    return found, history


def metadata(call: Call) -> Steps[Any]:
    """Which topics there are, and where: all of them are here."""
    request, T = call.request, call.T
    host, port = call.host
    node = NODE
    if request.topics is None or (call.version == 0 and not request.topics):
        every, history = yield from every_topic(call)
        topics = []
        for each in every:
            topics.append(_topic(T, each))
            yield from call.part_done()
    else:
        topics, history = yield from _named(call)
    return T.MetadataResponse(
        brokers=[T.MetadataResponseBroker(node_id=node, host=host, port=port)],
        cluster_id=history,
        controller_id=node,
        topics=topics,
    )


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
                del refused[name]
            yield from call.part_done()
    by_id = {id_of(each.epoch): each for each in found.topics if is_shown(each.name)}
    out = []
    for name in names:
        if name in by_name:
            out.append(_topic(T, by_name[name]))
        else:
            code = refused.get(name, errors.UNKNOWN_TOPIC_OR_PARTITION)
            out.append(T.MetadataResponseTopic(error_code=code, name=name))
        yield from call.part_done()
    for topic_id in ids:
        if topic_id in by_id:
            out.append(_topic(T, by_id[topic_id]))
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
    try:
        yield from call.ask(PutTopic(name, TopicConfig(), type_given=False))
    except Rejection as refusal:
        return errors.code_of(refusal)
    return 0


def _topic(T: Any, facts: TopicFacts) -> Any:
    part = T.MetadataResponsePartition(
        partition_index=0,
        leader_id=NODE,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=[NODE],
        isr_nodes=[NODE],
    )
    return T.MetadataResponseTopic(name=facts.name, topic_id=id_of(facts.epoch), partitions=[part])


def describe_cluster(call: Call) -> Steps[Any]:
    """The cluster is this server."""
    T = call.T
    host, port = call.host
    described: TopicsDescribed = yield from call.ask(DescribeTopics())
    return T.DescribeClusterResponse(
        cluster_id=described.history,
        controller_id=NODE,
        brokers=[T.DescribeClusterBroker(broker_id=NODE, host=host, port=port)],
    )


# ---------------------------------------------------------------------- made and deleted


def create_topics(call: Call) -> Steps[Any]:
    """Make topics, each by itself."""
    T, results, entries = call.T, [], 0
    named = Counter(each.name for each in call.request.topics)
    for asked in call.request.topics:
        result = T.CreatableTopicResult(name=asked.name)
        code, message = yield from _created(call, asked, result, is_twice=named[asked.name] > 1)
        result.error_code, result.error_message = code, message
        if entries > ENTRIES_MAX:
            result.configs, result.topic_config_error_code = [], errors.INVALID_REQUEST
        entries += len(result.configs)
        results.append(result)
    call.is_long = entries > ENTRIES_LONG
    return T.CreateTopicsResponse(topics=results)


def _created(
    call: Call, asked: Any, result: Any, *, is_twice: bool
) -> Steps[tuple[int, str | None]]:
    """Make one; its error, 0 where there is none, and why."""
    why = why_not(asked.name)
    if why is not None:
        return errors.INVALID_TOPIC, why
    if is_twice:
        return errors.INVALID_REQUEST, "the request names the topic twice"
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
        partitions = len(asked.assignments)
        replicas = max(len(each.broker_ids) for each in asked.assignments)
    if partitions not in (-1, 1):
        return errors.INVALID_PARTITIONS, _ONE_PARTITION
    if replicas not in (-1, 1):
        return errors.INVALID_REPLICATION_FACTOR, "a single server keeps one replica"
    found: TopicsDescribed = yield from call.ask(DescribeTopics(names=[asked.name]))
    if found.topics:
        return errors.TOPIC_ALREADY_EXISTS, f"topic {quote(asked.name)} already exists"
    try:
        config = config_of({each.name: each.value for each in asked.configs})
    except BadConfig as error:
        return errors.INVALID_CONFIG, str(error)
    if not call.request.validate_only:
        try:
            yield from call.ask(PutTopic(asked.name, config, type_given=True))
        except Rejection as refusal:
            return errors.code_of(refusal), refusal.message
        made: TopicsDescribed = yield from call.ask(DescribeTopics(names=[asked.name]))
        result.topic_id = id_of(made.topics[0].epoch) if made.topics else NO_ID
    result.num_partitions, result.replication_factor = 1, 1
    result.configs = of_created(config)
    return 0, None


def delete_topics(call: Call) -> Steps[Any]:
    """Delete topics, by names or by ids."""
    T, request, results = call.T, call.request, []
    asked = (
        [(each.name, each.topic_id) for each in request.topics]
        if call.version >= 6
        else [(name, NO_ID) for name in request.topic_names]
    )
    for name, topic_id in asked:
        result = T.DeletableTopicResult(name=name, topic_id=topic_id)
        code, message = yield from _deleted(call, result)
        result.error_code, result.error_message = code, message
        results.append(result)
    return T.DeleteTopicsResponse(responses=results)


def _deleted(call: Call, result: Any) -> Steps[tuple[int, str | None]]:
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
