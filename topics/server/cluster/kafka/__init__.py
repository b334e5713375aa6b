"""The cluster's log in Kafka, and everything else that talks to Kafka; loaded only where the settings
name brokers.  What is promised is `topics.protocol.cluster.rule.ports`.

    settings    how to reach the brokers, and the names of Kafka's topics; librdkafka's own settings
    failures    why a node does not start, each in one sentence
    library     the one door to `confluent_kafka`, and what its errors mean
    writing     an idempotent producer: records in their order, each with an offset or an unknown end
    reading     a thread that reads one partition, and fails where the log lost what it has read
    asking      questions to the brokers, which are repeated until they are answered
    log         `KafkaLog`, the port
    checks      the start: topics that are made or verified, the cluster's id, the clock
    placement   who is to lead: a consumer group over the control topic
    heartbeats  what the nodes say of themselves, in a compacted topic

Three topics, named after the cluster: `NAME.log` has a partition for each shard and holds the units,
`NAME.control` has as many partitions and is what the consumer group divides among the nodes; its first
record holds the cluster's id.  `NAME.nodes` is compacted and holds the nodes' heartbeats.

librdkafka has threads of its own, and calls back when it is polled.  A thread of ours polls it, waits in
it without using the CPU, and hands what came to the event loop in batches.  What waits between is
bounded on both sides: a reader is not polled until the loop has taken its last batches, and a record is
not handed to the producer while it holds `QUEUE_BYTES_MAX`.
"""
