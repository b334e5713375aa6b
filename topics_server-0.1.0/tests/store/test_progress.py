"""How much of a start is done (§8.2)."""

from topics.store.progress import EVERY, Progress, ReportingList


def test_progress_moves_with_all_that_a_start_does() -> None:
    """The checkpoint, the log and the segments each have their share; only the end is 1."""
    progress = Progress()
    shares = [progress.share]
    progress.begin(topics=1000, log_bytes=400_000, segments=24)

    progress.topics_taken(500)
    shares.append(progress.share)
    progress.topics_done(1000)
    shares.append(progress.share)
    progress.log_read(200_000)
    shares.append(progress.share)
    progress.log_done(400_000)
    shares.append(progress.share)
    for _ in range(24):
        progress.segment_checked()
        shares.append(progress.share)

    assert shares == sorted(set(shares))
    assert shares[0] == 0.0
    assert shares[-1] == 0.99
    progress.finish()
    assert progress.share == 1.0


def test_a_watched_list_is_the_list() -> None:
    """It reports now and then how far it was iterated."""
    told: list[int] = []
    items = ReportingList(range(2 * EVERY + 1), told.append)

    assert list(items) == list(range(2 * EVERY + 1))
    assert told == [0, EVERY, 2 * EVERY]
