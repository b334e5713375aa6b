"""A server as one of a cluster's nodes: everything here is loaded only where the settings name one.

standing  what the rest of the server may ask a node of the cluster
host      performs the rule's effects (`topics.protocol.cluster`) over the log that nodes share
"""
