"""Header blocks before they are decoded (RFC 7541).

Owns one question: how many fields there are in a block.  A byte may stand for a field of 4 KB, so a
block is looked at before anything is made of it.  What is malformed is left for the decoder to find.
"""


def count_fields(block: bytes, limit: int) -> int:
    """Count the fields of a header block, up to one more than `limit`, or up to the first field
    that cannot be read."""
    count = at = 0
    try:
        while at < len(block) and count <= limit:
            first = block[at]
            if first & 0x80:  # a field of a table
                at = _behind_integer(block, at, 0x7F)
            elif first & 0xE0 == 0x20:  # the size of the table: no field
                at = _behind_integer(block, at, 0x1F)
                continue
            else:
                prefix = 0x3F if first & 0x40 else 0x0F
                if first & prefix:  # a name of a table
                    at = _behind_integer(block, at, prefix)
                else:
                    at = _behind_string(block, at + 1)
                at = _behind_string(block, at)
            count += 1
    except IndexError:
        return count
    return count


def _behind_integer(block: bytes, at: int, prefix: int) -> int:
    if block[at] & prefix == prefix:
        at += 1
        while block[at] & 0x80:
            at += 1
    return at + 1


def _behind_string(block: bytes, at: int) -> int:
    size = block[at] & 0x7F
    if size == 0x7F:
        shift = 0
        while True:
            at += 1
            size += (block[at] & 0x7F) << shift
            shift += 7
            if not block[at] & 0x80:
                break
    return at + 1 + size
