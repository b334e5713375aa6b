"""Faces: a protocol of clients each, as pure functions from its bytes to commands and from outcomes to its bytes.

A face knows the model and no other room of the core: what a command does is not its business.
"""
