"""Why the end of a link that decides refuses what it could not even ask the service for."""

from topics.protocol.model.errors import ErrorCode, Rejection


def unknown(kind: str) -> Rejection:
    """501: a process of another version asks for what this one does not know."""
    return Rejection(ErrorCode.INTERNAL, f"this process does not know {kind}")


def no_room(most: int) -> Rejection:
    """429: a reply finds no room in what may wait to be taken."""
    limit = {"limit": "max_answer_memory", "max": most}
    return Rejection(ErrorCode.THROTTLED, "too many bytes of answers wait to be taken", limit)
