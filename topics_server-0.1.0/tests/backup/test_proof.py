"""The proof that no deleted record came back."""

import numpy as np
import pytest

from topics.backup.proof import Living, prove
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.records import DELETED
from topics.store import segment
from topics.store.files import read_at_most

from .places import lived


def test_what_lives_is_counted() -> None:
    """Sealed and unsealed records, and neither the deleted nor those below a floor."""
    assert prove(lived().files) == Living(topics=1, records=16)


def test_a_flag_that_was_lost_is_found() -> None:
    """One deleted record that lives again is one more than the log says."""
    world = lived()
    files = world.files
    [name] = [n for n in files.names() if n.endswith(".seg")][:1]
    raw = bytearray(files.tree()[name])
    file = files.open(name)
    assert len(read_at_most(file, 8, 0)) == 8
    instance = bytes.fromhex(world.process.store.instance_id)
    header = segment.read_header(file, name, number=int(name[:10]), instance=instance)
    flags = np.frombuffer(raw, np.uint8, header.flags_bytes, header.flags_offset)
    [first, *_] = np.flatnonzero(flags == DELETED).tolist()
    raw[header.flags_offset + first] = 0
    files.put(name, bytes(raw))

    with pytest.raises(Corrupt, match=r'topic "a" has 17 live records, and 16 by its log'):
        prove(files)
