"""A server as one of a cluster's nodes: everything here is loaded only where the settings name one.

assembly      a node, put together from the settings
node          a node's life: joins, catches up, leads or follows, hands over
kafka         the log that nodes share, who is to lead, and what the nodes say of themselves
service       which commands and streams the replica answers, and which go to the leader
node_socket   the same of what a WebSocket subscribes to
second_look   what a replica that lags may not say
positions     a place of the log, as clients name it
peers         links to the other nodes
link_wire     the connection of a link at the node that asks
link_socket   the same at the node that decides
tokens        by what nodes know one another
neighbours    who leads, where the others are, and the answer of `GET /v0/cluster`
snapshots     another node's store in the place of this one's
exchange      HTTP's part of all that
figures       what metrics tell of it
"""
