"""Clients that mean harm: raw sockets against a real server process, and no client library.

Nothing here measures time.  Asserted is what an attack leaves: it is refused as it should be, other
clients are answered meanwhile and afterwards, and memory, descriptors and threads are as before.
"""
