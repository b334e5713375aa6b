"""The HTTP status of every error code (§0.6): the core speaks of codes, HTTP of both."""

from collections.abc import Mapping
from typing import Final

from topics.protocol.model.errors import ErrorCode

STATUSES: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.PARTITION_REQUIRED: 400,
    ErrorCode.BATCH_TOO_LARGE: 400,
    ErrorCode.RECORD_TOO_LARGE: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.TOPIC_NOT_FOUND: 404,
    ErrorCode.PARTITION_NOT_FOUND: 404,
    ErrorCode.ROUTER_NOT_FOUND: 404,
    ErrorCode.GROUP_NOT_FOUND: 404,
    ErrorCode.SCHEDULE_NOT_FOUND: 404,
    ErrorCode.RECORD_NOT_FOUND: 404,
    ErrorCode.JOB_NOT_FOUND: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.NOT_ACCEPTABLE: 406,
    ErrorCode.ROUTER_CYCLE: 409,
    ErrorCode.TOPIC_EXISTS_INCOMPATIBLE: 409,
    ErrorCode.TOPIC_NOT_EMPTY: 409,
    ErrorCode.GROUP_NOT_EMPTY: 409,
    ErrorCode.NOT_A_QUEUE: 409,
    ErrorCode.NO_DEAD_LETTER: 409,
    ErrorCode.LEASED: 409,
    ErrorCode.PARTITIONED: 409,
    ErrorCode.TRIM_REFUSED: 409,
    ErrorCode.UPGRADE_PENDING: 409,
    ErrorCode.PAYLOAD_TOO_LARGE: 413,
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: 415,
    ErrorCode.TOPIC_FULL: 422,
    ErrorCode.KEY_REQUIRED: 422,
    ErrorCode.THROTTLED: 429,
    ErrorCode.INTERNAL: 500,
    ErrorCode.NOT_READY: 503,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.NOT_LEADER: 503,
    ErrorCode.REPLICA_BEHIND: 503,
}

assert STATUSES.keys() == set(ErrorCode)
