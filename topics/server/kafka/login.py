"""SASL/PLAIN: the password is an API key; the user's name is free."""

from typing import Any, Final

from topics.protocol.faces.kafka import errors
from topics.server.access.guard import Guard
from topics.server.kafka.call import Call
from topics.server.kafka.steps import Steps

MECHANISM: Final = "PLAIN"
FAILED_S: Final = 1.0
"""What an answer to a wrong key waits, so that guessing takes long."""
_REFUSED: Final = "not logged in: the password of SASL/PLAIN is an API key of this server"


def handshake(call: Call) -> Steps[Any]:
    """Choose how to log in."""
    T, mechanism = call.T, call.request.mechanism
    code = 0
    if mechanism == MECHANISM:
        call.client.mechanism = mechanism
    else:
        code = errors.UNSUPPORTED_SASL_MECHANISM
    return T.SaslHandshakeResponse(error_code=code, mechanisms=[MECHANISM])
    yield


def authenticate(call: Call, guard: Guard | None) -> Steps[Any]:
    """Log in."""
    T, client = call.T, call.client
    if client.mechanism is None:
        return T.SaslAuthenticateResponse(
            error_code=errors.ILLEGAL_SASL_STATE, error_message="SaslHandshake comes first"
        )
    parts = call.request.auth_bytes.split(b"\0")
    password = parts[2] if len(parts) == 3 else b""
    if guard is None:
        client.may_ask = True
        return T.SaslAuthenticateResponse(error_message=None)
    caller = guard.keys.find(password) if password else None
    if caller is None:
        guard.failures.note(client.address)
        yield from call.pause(FAILED_S)
        return T.SaslAuthenticateResponse(
            error_code=errors.SASL_AUTHENTICATION_FAILED, error_message=_REFUSED
        )
    client.logged_in(caller)
    return T.SaslAuthenticateResponse(error_message=None)
