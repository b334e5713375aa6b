"""Entity tags: what a cache keeps beside a page, and asks about (RFC 9110 §8.8.3, §13.1.2).

A tag is strong: answers that have it are equal, byte for byte.  A compressed answer has other bytes, and
so another tag, which ends in `-gzip`.
"""

import re
from typing import Final

_GZIPPED: Final = "-gzip"
_TAG: Final = re.compile(rb'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def entity_tag(tag: str, *, is_gzipped: bool) -> bytes:
    """A page's tag as the `ETag` of an answer."""
    return b'"%b"' % (tag + _GZIPPED if is_gzipped else tag).encode()


def known_tag(if_none_match: bytes | None, tag: str) -> bytes | None:
    """The `ETag` under which a client has the page already, in whichever coding; None: it has not.

    `*` is true of every page that there is, and is answered with the tag of the plain one.
    """
    if if_none_match is None:
        return None
    plain = entity_tag(tag, is_gzipped=False)
    if if_none_match.strip() == b"*":
        return plain
    kept = _TAG.findall(if_none_match)
    ours = (plain, entity_tag(tag, is_gzipped=True))
    return next((each for each in ours if each in kept), None)
