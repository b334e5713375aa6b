"""The envelope of what is refused. (§0.5, §0.6)"""

import json

import pytest

from topics.protocol.faces.http.errors import error_body, error_headers
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import ErrorCode, Rejection


@pytest.mark.parametrize("code", ErrorCode, ids=lambda c: c.code)
def test_every_error_in_its_envelope(code: ErrorCode) -> None:
    """`code` and `message`, `detail` where there is one; 429 and 503 say when. (§0.5, §0.6)"""
    plain = Rejection(code, 'a "quoted" message')
    detailed = Rejection(code, "m", {"topic": "é"}, retry_after_s=7, allow=("GET", "PUT"))

    told = json.loads(error_body(plain) + b"}")
    assert told == {"error": {"code": code.code, "message": 'a "quoted" message'}}
    assert json.loads(error_body(detailed) + b"}")["error"]["detail"] == {"topic": "é"}
    assert (b"retry-after" in dict(error_headers(plain))) == (STATUSES[code] in (429, 503))
    headers = dict(error_headers(detailed))
    asks = {b"www-authenticate": b"Bearer"} if STATUSES[code] == 401 else {}
    assert headers == {b"retry-after": b"7", b"allow": b"GET, PUT", **asks}
    assert code.code.islower()
    assert 400 <= STATUSES[code] < 600


def test_the_codes_of_the_contract() -> None:
    """§0.6, row by row."""
    table = {
        "invalid_request": 400, "batch_too_large": 400, "record_too_large": 400,
        "unauthorized": 401, "forbidden": 403, "topic_not_found": 404, "router_not_found": 404,
        "method_not_allowed": 405, "not_acceptable": 406, "router_cycle": 409,
        "topic_exists_incompatible": 409, "topic_not_empty": 409, "not_a_queue": 409,
        "payload_too_large": 413, "unsupported_media_type": 415, "topic_full": 422,
        "throttled": 429, "internal": 500, "not_ready": 503, "shutting_down": 503,
        "not_leader": 503, "replica_behind": 503, "upgrade_pending": 409,
    }  # fmt: skip
    known = {code.code: STATUSES[code] for code in ErrorCode}
    assert {name: known[name] for name in table} == table
