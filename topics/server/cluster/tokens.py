"""By what nodes of one cluster know one another.

Who reads the cluster's topics in Kafka knows its secret, and could read all data there.  The token that is
made of the secret goes with what a node asks of another, and with nothing else.
"""

import hashlib
import hmac
from typing import Final

FORWARDED: Final = b"x-topics-forwarded"
"""The header with the token."""


def token_of(secret: bytes) -> bytes:
    return hashlib.blake2s(b"forwarded", key=secret[:32], digest_size=16).hexdigest().encode()


def is_token(given: bytes, token: bytes) -> bool:
    return hmac.compare_digest(given, token)
