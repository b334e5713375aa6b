"""`UnfitJob`: a job whose JSON does not fit the type that a worker asked for.

A worker takes it up as any other, and it fails: it rests, is handed out again, and becomes a dead letter
in the end.  Were the whole claim refused, the jobs beside it would stay leased, and the next claim
would meet it again.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec

from topics.client.call import decode_error
from topics.client.decoding import decoder_of
from topics.client.models import Claimed, Job

J = TypeVar("J")

_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UnfitJob(Job[msgspec.Raw], frozen=True, kw_only=True):
    """What is known of it, with nothing of the client's decoded.

    Attributes:
        why: What does not fit.
    """

    meta: msgspec.Raw = msgspec.Raw(b"")  # type: ignore[assignment]
    why: Any = None

    def refuse(self) -> NoReturn:
        """Raises BadAnswer: Why it does not fit."""
        raise self.why


def claimed(job_type: type[J], what: str) -> Callable[[bytes], Claimed[J]]:
    """A decoder of the answer to a claim, in which a job that does not fit is an `UnfitJob`.

    Args:
        what: The call, for the message.
    """
    kind: Any = Claimed[job_type]  # type: ignore[valid-type]
    decode: Callable[[bytes], Claimed[J]] = decoder_of(kind)

    def decode_each(data: bytes) -> Claimed[J]:
        try:
            return decode(data)
        except _FAILURES:
            try:
                parts = decoder_of(Claimed[msgspec.Raw])(data)
                jobs = [job_of(job_type, bytes(part), what) for part in parts.jobs]
            except _FAILURES:
                jobs = None
            if jobs is None:
                raise  # it is no answer to a claim
        return Claimed(topic=parts.topic, jobs=jobs, ready=parts.ready, waits=parts.waits)

    return decode_each


def job_of(job_type: type[J], data: bytes, what: str) -> J:
    """One job; an `UnfitJob` where it does not fit the type.

    Raises:
        DecodeError, UnicodeDecodeError: It is no job at all.
    """
    try:
        return decoder_of(job_type)(data)
    except _FAILURES as error:
        try:
            bare = decoder_of(UnfitJob)(data)
        except _FAILURES:
            raise error from None
        found: Any = msgspec.structs.replace(bare, why=decode_error(what, 200, data, error))
        return found  # type: ignore[no-any-return]
