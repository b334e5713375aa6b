"""Names and ids of topics, as Kafka's clients know them.

A name of ours that has a colon, or more than 249 characters, is none of Kafka's: such a topic is not shown to its
clients.  A name of Kafka's that does not begin with a letter or a digit is none of ours.

A topic's id is made of its history and its number there, as its epoch is: a topic that was deleted and made again has
another.
"""

import re
from typing import Final

from topics.protocol.model.names import PARTITION_MARK, is_topic_name, quote

NAME_CHARS_MAX: Final = 249
NO_ID: Final = bytes(16)
_LEGAL: Final = re.compile(f"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}")
_EPOCH: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{1,16})")


def is_shown(name: str) -> bool:
    """Whether clients of Kafka are shown a topic of this name."""
    return ":" not in name and PARTITION_MARK not in name and len(name) <= NAME_CHARS_MAX


def is_legal(name: str) -> bool:
    """Whether a topic of Kafka's could have this name, also where none of ours can."""
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def why_not(name: str) -> str | None:
    """Why no topic of this name can be made by a client of Kafka; None where it can."""
    if is_topic_name(name) and is_shown(name):
        return None
    if not 0 < len(name) <= NAME_CHARS_MAX:
        return f"a topic's name has 1 to {NAME_CHARS_MAX} characters, and this one {len(name)}"
    return (
        f"{quote(name)} is no topic's name here: A-Z a-z 0-9 . _ -, first a letter or digit; "
        "docs/kafka.md says what to set for programs that use others"
    )


def id_of(epoch: str) -> bytes:
    """The id of the topic with an epoch, 16 bytes."""
    found = _EPOCH.fullmatch(epoch)
    assert found is not None, epoch
    return bytes.fromhex(found[1]) + int(found[2], 16).to_bytes(8, "big")


def epoch_of(topic_id: bytes) -> str:
    """The epoch of the topic with an id."""
    return f"{topic_id[:8].hex()}-{int.from_bytes(topic_id[8:], 'big'):x}"
