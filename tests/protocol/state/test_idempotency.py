"""Idempotency keys of one topic (§0.8)."""

import msgspec

from topics.protocol.model.events import KeyImage, array_header
from topics.protocol.state.idempotency import (
    BLOCK_ROWS,
    IdempotencyKeys,
    PlacedBatch,
    RememberedBatch,
    TopicKeys,
)

A, B, C = (bytes([i]) * 16 for i in range(3))


def test_a_key_lives_for_its_window() -> None:
    """Found until the window has passed, exclusive; a window of 0 finds nothing. (§0.8)"""
    keys = TopicKeys()
    keys.remember(A, 5, 3, 1000)

    assert keys.find(A, now_ms=1000, window_ms=100) == RememberedBatch(5, 3, 1000)
    assert keys.find(A, now_ms=1099, window_ms=100) == RememberedBatch(5, 3, 1000)
    assert keys.find(A, now_ms=1100, window_ms=100) is None
    assert keys.find(A, now_ms=1000, window_ms=0) is None
    assert keys.find(B, now_ms=1000, window_ms=100) is None


def test_the_oldest_are_forgotten_first() -> None:
    """A walk from the front, which says how many went. (§0.8)"""
    keys = TopicKeys()
    for digest, ts_ms in ((A, 1000), (B, 1050), (C, 1100)):
        keys.remember(digest, 1, 1, ts_ms)

    assert keys.forget(now_ms=1099, window_ms=100) == 0
    assert keys.forget(now_ms=1150, window_ms=100) == 2
    assert list(keys) == [C]
    assert len(keys) == 1


def test_a_key_that_comes_again_after_its_window_is_new() -> None:
    """It stands at the end of the order again. (§0.8)"""
    keys = TopicKeys()
    keys.remember(A, 1, 1, 1000)
    keys.remember(B, 2, 1, 1010)
    keys.remember(A, 3, 1, 1200)

    assert keys.find(A, now_ms=1200, window_ms=100) == RememberedBatch(3, 1, 1200)
    assert keys.forget(now_ms=1200, window_ms=100) == 1
    assert list(keys) == [A]


def test_images_hold_all_of_it() -> None:
    """What a checkpoint keeps is what `remember` was told. (§0.8)"""
    keys, copy = TopicKeys(), TopicKeys()
    keys.remember(A, 1, 2, 1000)
    keys.remember(B, 3, 4, 1001)
    for image in keys.images():
        copy.remember(image.digest, image.first_seq, image.count, image.ts_ms)

    assert copy.images() == keys.images()


def digest_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def read_back(keys: TopicKeys) -> list[KeyImage]:
    """What a start reads of the pieces that a checkpoint holds; places of no key left out."""
    count, pieces = keys.pieces()
    body = array_header(count) + b"".join(pieces)
    found = msgspec.msgpack.decode(body, type=list[KeyImage])
    return [image for image in found if image.count]


def test_many_keys_come_and_go() -> None:
    """More than fit one block, the oldest forgotten a part at a time. (§0.8)"""
    keys = TopicKeys()
    for number in range(3 * BLOCK_ROWS + 7):
        keys.remember(digest_of(number), number + 1, 1, 1000 + number)

    assert keys.forget(now_ms=1000 + BLOCK_ROWS + 10, window_ms=10, limit=100) == 100
    assert keys.forget(now_ms=1000 + BLOCK_ROWS + 10, window_ms=10) == BLOCK_ROWS - 99
    first = BLOCK_ROWS + 1
    assert keys.oldest_ms() == 1000 + first
    assert list(keys) == [digest_of(n) for n in range(first, 3 * BLOCK_ROWS + 7)]
    assert keys.find(digest_of(first), now_ms=0, window_ms=1) == RememberedBatch(
        first + 1, 1, 1000 + first
    )
    assert read_back(keys) == keys.images()
    assert keys.forget(now_ms=1 << 40, window_ms=1) == 2 * BLOCK_ROWS + 6
    assert (len(keys), keys.oldest_ms(), keys.pieces()) == (0, None, (0, []))
    keys.remember(A, 1, 1, 1 << 41)
    assert read_back(keys) == [KeyImage(A, 1, 1, 1 << 41)]


def test_pieces_stay_as_they_were_taken() -> None:
    """A checkpoint is written while keys go on: new ones, ones again, and old ones that go."""
    keys = TopicKeys()
    for number in range(BLOCK_ROWS + 2):
        keys.remember(digest_of(number), number + 1, 1, 1000 + number)
    count, pieces = keys.pieces()
    before = b"".join(pieces)

    keys.remember(digest_of(3), 9999, 1, 5000)
    keys.remember(digest_of(BLOCK_ROWS + 1), 9998, 1, 5000)
    keys.forget(now_ms=5000, window_ms=3990)

    assert b"".join(pieces) == before
    assert count == BLOCK_ROWS + 2
    assert read_back(keys) == keys.images()


def test_a_key_whose_records_are_in_memory_only_survives_no_restart() -> None:
    """Neither it nor what it stood for before. (§0.10)"""
    keys = TopicKeys()
    keys.remember(A, 1, 1, 1000)
    keys.remember(B, 2, 1, 1000)
    keys.remember(A, 3, 1, 2000, volatile=True)

    assert keys.find(A, now_ms=2000, window_ms=10) == RememberedBatch(3, 1, 2000, volatile=True)
    assert len(keys) == 2
    assert read_back(keys) == [KeyImage(B, 2, 1, 1000)]
    assert keys.forget(now_ms=2000, window_ms=1000) == 1
    assert keys.forget(now_ms=2010, window_ms=10) == 1


def test_a_block_that_is_full_is_handed_out_as_it_is() -> None:
    """It is not written any more, so that a checkpoint need not copy it. (§0.8)"""
    keys = TopicKeys()
    for n in range(BLOCK_ROWS):
        keys.remember(n.to_bytes(16, "big"), n, 1, 1000)

    count, blocks = keys.pieces()

    assert count == BLOCK_ROWS
    assert blocks == [keys._blocks[0]]
    assert blocks[0] is keys._blocks[0]
    keys.remember(C, 1, 1, 1000)
    assert len(keys.pieces()[1]) == 2


def test_a_topic_whose_checkpoint_has_no_keys_has_none_to_forget() -> None:
    """It is looked at again with its first key. (§0.8)"""
    keys = IdempotencyKeys(lambda topic_id: 100)
    keys.restore(1, [], 100)
    assert not keys.has_old(10**9)

    keys.remember(1, A, 1, 1, 1000)

    assert not keys.has_old(1099)
    assert keys.has_old(1100)
    assert keys.forget_old(1100) == 1


def test_a_key_of_no_record_is_not_restored() -> None:
    """A checkpoint of an earlier version may have such keys: nothing could be repeated of them. (§0.8)"""
    keys = TopicKeys()

    for image in (KeyImage(A, 1, 0, 1000), KeyImage(B, 1, 2, 1000)):
        keys.restore(image)

    assert list(keys) == [B]


def test_the_keys_of_what_was_in_memory_only_are_lost_with_it() -> None:
    """Keys of logged records stay, and the count is right. (§4 of the cluster)"""
    keys = IdempotencyKeys(lambda _: 1000)
    keys.remember(1, A, 1, 1, 1000)
    keys.remember(1, B, 2, 1, 1000, volatile=True)
    keys.remember(2, C, 1, 1, 1000, volatile=True)

    keys.lose_volatile(1)
    keys.lose_volatile(3)

    assert keys.find(1, A, 1000) is not None
    assert keys.find(1, B, 1000) is None
    assert keys.find(2, C, 1000) is not None
    assert keys.count == 2


def test_a_batch_in_memory_only_is_lost_in_all_its_partitions() -> None:
    """Its key goes with it; that of another batch stays. (§0.10)"""
    keys = TopicKeys()
    keys.remember_placed(A, b"placed", 1000, volatile=True)
    keys.remember_placed(B, b"placed", 1000)

    keys.lose_volatile()

    assert keys.find(A, now_ms=1000, window_ms=10) is None
    assert keys.find(B, now_ms=1000, window_ms=10) == PlacedBatch(b"placed", 1000)
