"""Idempotency keys of one topic (§0.8)."""

from topics.protocol.dedupe import Keys, Remembered

A, B, C = (bytes([i]) * 16 for i in range(3))


def test_a_key_lives_for_its_window() -> None:
    """Found until the window has passed, exclusive; a window of 0 finds nothing. (§0.8)"""
    keys = Keys()
    keys.remember(A, 5, 3, 1000)

    assert keys.find(A, now_ms=1000, window_ms=100) == Remembered(5, 3, 1000)
    assert keys.find(A, now_ms=1099, window_ms=100) == Remembered(5, 3, 1000)
    assert keys.find(A, now_ms=1100, window_ms=100) is None
    assert keys.find(A, now_ms=1000, window_ms=0) is None
    assert keys.find(B, now_ms=1000, window_ms=100) is None


def test_the_oldest_are_forgotten_first() -> None:
    """A walk from the front, which says how many went. (§0.8)"""
    keys = Keys()
    for digest, ts_ms in ((A, 1000), (B, 1050), (C, 1100)):
        keys.remember(digest, 1, 1, ts_ms)

    assert keys.forget(now_ms=1099, window_ms=100) == 0
    assert keys.forget(now_ms=1150, window_ms=100) == 2
    assert list(keys) == [C]
    assert len(keys) == 1


def test_a_key_that_comes_again_after_its_window_is_new() -> None:
    """It stands at the end of the order again. (§0.8)"""
    keys = Keys()
    keys.remember(A, 1, 1, 1000)
    keys.remember(B, 2, 1, 1010)
    keys.remember(A, 3, 1, 1200)

    assert keys.find(A, now_ms=1200, window_ms=100) == Remembered(3, 1, 1200)
    assert keys.forget(now_ms=1200, window_ms=100) == 1
    assert list(keys) == [A]


def test_images_hold_all_of_it() -> None:
    """What a checkpoint keeps is what `remember` was told. (§0.8)"""
    keys, copy = Keys(), Keys()
    keys.remember(A, 1, 2, 1000)
    keys.remember(B, 3, 4, 1001)
    for image in keys.images():
        copy.remember(image.digest, image.first_seq, image.count, image.ts_ms)

    assert copy.images() == keys.images()
