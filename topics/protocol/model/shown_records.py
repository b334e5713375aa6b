"""The records that an outcome shows, as text that is still to be read.

Owns which outcomes have records, and what a job's record says beside what is stored.  Whoever renders an
outcome puts the text, once it is read, where its own form of the outcome has it.
"""

from typing import Final

import orjson

from topics.protocol.model.outcomes import STABLE, Granted, Jobs, Outcome, Page, Records

WITH_RECORDS: Final = frozenset((Page, *STABLE, Granted))
"""Kinds of outcomes that may show records."""


def records_of(outcome: Outcome) -> Records | None:
    """None where it shows none."""
    kind = type(outcome)
    if kind is Page or kind in STABLE:
        return outcome.records  # type: ignore[attr-defined, no-any-return]
    if kind is Granted and outcome.jobs is not None:  # type: ignore[attr-defined]
        return job_records(outcome.jobs)  # type: ignore[attr-defined]
    return None


def job_records(jobs: Jobs, *, queue: str | None = None) -> Records:
    """Leased jobs as records: each with its tag, its lease and its delivery (§10.2).

    Args:
        queue: The name of the queue, where each job stands alone and is to say it (§10.8).
    """
    grant = jobs.grant
    named = b"" if queue is None else b',"topic":"%b"' % queue.encode()
    inserts = [
        b'%b,"lease_id":"lease_%x","deadline":%d,"deliveries":%d'
        % (named, lease, grant.until_ms, delivery)
        for lease, delivery in zip(grant.leases, grant.deliveries, strict=True)
    ]
    options = grant.options
    if options and options.count(options[0]) == len(options):
        said = _options(*options[0])
        inserts = [each + said for each in inserts]
    elif options:
        inserts = [each + _options(*own) for each, own in zip(inserts, options, strict=True)]
    return Records(jobs.extents, tags=True, inserts=inserts)


def _options(priority: int, group: str | None) -> bytes:
    """What a claim says of a job's options."""
    text = b',"priority":%d' % priority if priority else b""
    return text if group is None else text + b',"group":' + orjson.dumps(group)
