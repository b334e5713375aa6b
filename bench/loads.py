"""What the benchmarks write and ask: request bodies of a known size, and the commands they become.

A record's `data` is a JSON object of exactly so many bytes, its `$seq` and `$ts` come on top.  Every
payload is the same on every run: nothing here is random.
"""

from collections.abc import Sequence

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_delete, parse_diff, parse_purge
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Append, DeleteRecords, Diff, Purge, PutTopic
from topics.protocol.model.limits import Limits

LIMITS = Limits()


def data_of(size_bytes: int) -> bytes:
    """A JSON object of exactly `size_bytes`, from 16 bytes on."""
    filler = size_bytes - len(b'{"n":1,"text":""}')
    assert filler >= 0
    return b'{"n":1,"text":"%b"}' % (b"x" * filler)


def append_body(
    records: int,
    size_bytes: int,
    *,
    tags: Sequence[str] = (),
    nodes: Sequence[str] = (),
) -> bytes:
    """The body of one append; tags and nodes are given out in turn."""
    data = data_of(size_bytes)
    rows = []
    for i in range(records):
        tag = b',"tag":"%b"' % tags[i % len(tags)].encode() if tags else b""
        node = b',"node":"%b"' % nodes[i % len(nodes)].encode() if nodes else b""
        rows.append(b'{"data":%b%b%b}' % (data, tag, node))
    return b'{"records":[%b]}' % b",".join(rows)


def put(topic: str, body: bytes = b"{}") -> PutTopic:
    return parse_put(topic, body)


def append(topic: str, body: bytes) -> Append:
    """As the route parses it, without the list of seqs in the answer."""
    return parse_append(topic, body, LIMITS, return_seqs=False, header_key=None)


def diff(topic: str, body: bytes) -> Diff:
    return parse_diff(topic, body, LIMITS)


def delete(topic: str, body: bytes) -> DeleteRecords:
    return parse_delete(topic, body)


def purge(topic: str, body: bytes) -> Purge:
    return parse_purge(topic, body)
