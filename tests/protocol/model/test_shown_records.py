"""Which outcomes have records, and what a job's record says beside what is stored."""

from topics.protocol.model.outcomes import Grant, Granted, Jobs, Page, Records, RouterDropped
from topics.protocol.model.shown_records import job_records, records_of

RECORDS = Records(())
JOBS = Jobs(Grant(1, "w-1", [7, 9], [255, 256], [1, 3], 5_000), ())


def test_an_outcome_without_records_has_none() -> None:
    """A list, an acknowledgement, a claim that found nothing. (§10.2)"""
    assert records_of(RouterDropped("r", True)) is None
    assert records_of(Granted("q", None, 0)) is None


def test_a_page_has_its_own() -> None:
    """Text is served as it lies. (§3.2)"""
    assert records_of(Page("t", RECORDS, 1, 1, 1, "e", None, 0)) is RECORDS


def test_a_job_says_its_lease() -> None:
    """Each with its tag, and with its queue where it stands alone. (§10.2, §10.8)"""
    found = records_of(Granted("q", JOBS, 2))

    assert found == job_records(JOBS)
    assert found is not None
    assert found.tags
    first = b',"lease_id":"lease_ff","deadline":5000,"deliveries":1'
    second = b',"lease_id":"lease_100","deadline":5000,"deliveries":3'
    assert found.inserts == [first, second]
    assert job_records(JOBS, queue="q").inserts[0] == b',"topic":"q"' + first
