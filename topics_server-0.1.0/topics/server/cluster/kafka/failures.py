"""Why a node of a cluster does not start: types, and a sentence each that says what to do.

The process ends with the sentence and exit code 2, as with any setting that is wrong.
"""


class CannotStart(Exception):
    """This node cannot take part in its cluster; the text is one sentence, for an operator."""


class NoLibrary(CannotStart):
    """The extra `cluster` is not installed."""


class BadKafkaConfig(CannotStart):
    """librdkafka does not take what `TOPICS_CLUSTER_KAFKA_CONFIG` holds."""


class Unreachable(CannotStart):
    """The brokers did not answer within `TOPICS_CLUSTER_START_MS`."""


class Forbidden(CannotStart):
    """The brokers answer, and do not let this node do what it has to."""


class TooFewBrokers(CannotStart):
    """There are fewer brokers than copies."""


class WrongTopic(CannotStart):
    """A topic of Kafka is there with a configuration under which it may lose records."""


class OtherCluster(CannotStart):
    """The topics of Kafka, or this node's data, are another cluster's."""


class OtherShards(CannotStart):
    """The cluster was made with another number of shards."""


class SmallMessages(CannotStart):
    """Kafka takes only messages that are too small for a unit."""


class ClockOff(CannotStart):
    """The clock of this machine is too far from the broker's."""
