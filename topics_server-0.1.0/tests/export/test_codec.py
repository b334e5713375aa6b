"""Bytes on their way into files."""

import hashlib

import pyarrow as pa

from topics.export.codec import Measured, digest_of

from .lakes import MemoryLake


def test_what_goes_through_is_counted_and_digested() -> None:
    """Whatever it comes as, and the digest is that of the file."""
    lake = MemoryLake()
    lake.make_directory("d")
    measured = Measured(lake.create("d/x"))
    for data in (b"one", memoryview(b"two"), pa.py_buffer(b"three")):
        assert measured.write(data) == len(memoryview(data))
    assert (measured.size, measured.tell()) == (11, 11)
    assert measured.sha256 == digest_of(lake, "d/x") == hashlib.sha256(b"onetwothree").hexdigest()
    measured.close()
    assert measured.closed
