"""Requests of Kafka's clients, carried out: from a frame to the buffers of its answer.

Knows neither sockets nor frames' lengths (`server/transport/kafka.py`), and nothing of the engine but commands and
outcomes (`server/service`).  Loaded with the first connection that speaks Kafka.
"""
