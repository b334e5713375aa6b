"""Bodies of the calls of workers: what to claim, and which jobs are meant."""

import re
from typing import Final, TypeVar

import msgspec

from topics.protocol.faces.http.bodies.checks import check_lengths, clamp, clamped_lease, u64
from topics.protocol.faces.http.bodies.types import ClaimBody, ExtendBody, HeldBody, NackBody
from topics.protocol.faces.http.decoding import FieldTooLong, decode, invalid
from topics.protocol.model.commands import Ack, Claim, Extend, Nack
from topics.protocol.model.config import LEASE_MS_MAX
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import WAIT_MS_MAX, Limits
from topics.protocol.model.records import Buffer

_CLAIM: Final = msgspec.json.Decoder(ClaimBody)
_ACK: Final = msgspec.json.Decoder(HeldBody)
_NACK: Final = msgspec.json.Decoder(NackBody)
_EXTEND: Final = msgspec.json.Decoder(ExtendBody)


def parse_claim(topic: str, body: Buffer, limits: Limits) -> Claim:
    asked = decode(_CLAIM, body)
    return Claim(
        topic=topic,
        node=worker(asked.node, limits, "$.node"),
        limit=claim_limit(asked.max, limits),
        lease_ms=None if asked.lease_ms is None else clamped_lease(asked.lease_ms),
        wait_ms=min(asked.wait_ms or 0, WAIT_MS_MAX),
    )


def worker(node: str, limits: Limits, path: str) -> str:
    """The worker's name: not empty, and no longer than a node's."""
    if not node:
        raise invalid("expected the worker's name", path)
    check_lengths([node], limits.max_node_bytes, "node", path)
    return node


def claim_limit(asked: int | None, limits: Limits) -> int:
    return clamp(asked or 1, 1, limits.max_claim or asked or 1)


def parse_ack(topic: str, body: Buffer, limits: Limits) -> Ack:
    asked = _decode_held(_ACK, body, limits)
    return Ack(topic, worker(asked.node, limits, "$.node"), *_held(asked, limits))


def parse_nack(topic: str, body: Buffer, limits: Limits) -> Nack:
    asked = _decode_held(_NACK, body, limits)
    seqs, leases = _held(asked, limits)
    delay_ms = min(asked.delay_ms or 0, LEASE_MS_MAX)
    return Nack(topic, worker(asked.node, limits, "$.node"), seqs, leases, delay_ms)


def parse_extend(topic: str, body: Buffer, limits: Limits) -> Extend:
    asked = _decode_held(_EXTEND, body, limits)
    seqs, leases = _held(asked, limits)
    lease_ms = clamped_lease(asked.lease_ms)
    return Extend(topic, worker(asked.node, limits, "$.node"), seqs, leases, lease_ms)


H = TypeVar("H", bound=HeldBody)


def _decode_held(decoder: msgspec.json.Decoder[H], body: Buffer, limits: Limits) -> H:
    try:
        return decode(decoder, body)
    except FieldTooLong as refusal:
        if refusal.field == "seqs" and limits.max_claim:
            raise _too_many_seqs(limits) from None
        raise


def _too_many_seqs(limits: Limits) -> Rejection:
    return Rejection(
        ErrorCode.BATCH_TOO_LARGE,
        f"more than {limits.max_claim} seqs - at `$.seqs`",
        {"limit": limits.max_claim},
    )


def _held(asked: HeldBody, limits: Limits) -> tuple[list[int], list[int] | None]:
    """The seqs, and the number of each one's lease where tokens were given."""
    seqs, tokens = asked.seqs, asked.lease_ids
    if limits.max_claim and len(seqs) > limits.max_claim:
        raise _too_many_seqs(limits)
    u64(max(seqs, default=0), "$.seqs")
    if tokens is None:
        return seqs, None
    if len(tokens) != len(seqs):
        raise invalid(f"{len(tokens)} lease_ids for {len(seqs)} seqs", "$.lease_ids")
    return seqs, [_lease_number(token) for token in tokens]


_LEASE_ID: Final = re.compile(r"lease_([1-9a-f][0-9a-f]{0,23})")


def _lease_number(token: str) -> int:
    """The number in a lease's token; 0, which no lease has, where the token is not the server's."""
    found = _LEASE_ID.fullmatch(token)
    return int(found[1], 16) if found else 0
