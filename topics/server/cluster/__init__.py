"""A server as one of a cluster's nodes: everything here is loaded only where the settings name one.

standing    what the rest of the server may ask a node of the cluster
status      what a node says of its cluster, as values
runtime     the runtime of a node, whose engine may be dropped and opened anew
host        performs the rule's effects (`topics.protocol.cluster`), and is how a node stands
log_work    those that concern the log that nodes share: reads on, sends, asks
tasks       tasks of one owner, ended together
kafka       that log in Kafka, who is to lead, and what the nodes say of themselves
exchange    what is answered here, and what goes to the leader
forwarding  a request carried to another node, and its answer carried back
doubt       what a replica that lags may not say
candidacy   whether a node may be the one that leads
directory   the data directory of a node: which cluster and which node it belongs to
lag         how old what a replica shows is
node_standing  how a node stands from its start on, by its host and the other nodes' heartbeats
node        a node's life: joins, serves, hands over, goes
assembly    a node, put together from the settings
"""
