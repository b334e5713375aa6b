"""Kafka's protocol: bytes of its requests to commands, and outcomes to bytes of its responses.

`codec` is compiled from Kafka's own descriptions of its messages (`messages`, `schema`), when a message and version
is met for the first time.
"""
