"""A node's life.

life           joins, serves, hands over, goes
directory      its data directory: which cluster and which node it belongs to
adoption       a single server's store, as the first node's
runtime        the runtime of a node, whose engine may be dropped and opened anew
host           performs the rule's effects (`topics.protocol.cluster.rule`), and is how a node stands
log_work       those that concern the log that nodes share: reads on, sends, asks
candidacy      whether a node may be the one that leads
trimmer        the leader's trims of the log
standing       what the rest of the server may ask a node
node_standing  how a node stands from its start on, by its host and the other nodes' heartbeats
status         what a node says of its cluster, as values
lag            how old what a replica shows is
tasks          tasks of one owner, ended together
"""
