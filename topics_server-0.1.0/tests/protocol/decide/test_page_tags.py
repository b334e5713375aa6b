"""A page's tag and its bytes: whoever has a tag has the page (§3.4)."""

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.durable import Durable
from protocol.harness import Harness, by, shown, tagged, text_of
from topics.protocol.model.commands import ReadPage
from topics.protocol.model.outcomes import StablePage
from topics.protocol.state import recent_pages
from topics.protocol.state.recent_pages import RecentPages

BUDGET: Final = 1 << 20
PLACES: Final = tuple((from_seq, limit) for from_seq in (0, 1, 3, 7, 12, 90) for limit in (2, 100))
"""Where every step of a script is looked at from."""


def page(engine: Harness, from_seq: int = 0, limit: int = 100, **fields: Any) -> StablePage:
    asked = {"budget_bytes": BUDGET, "include_tags": False, "include_meta": True, "epoch": None}
    command = ReadPage(fields.pop("name", "t"), from_seq, limit, **{**asked, **fields})
    found = engine.ask(command)
    assert isinstance(found, StablePage)
    return found


def tag(engine: Harness, from_seq: int = 0, limit: int = 100, **fields: Any) -> str:
    return page(engine, from_seq, limit, **fields).tag


# ---------------------------------------------------------------------- what keeps a tag


def test_a_full_page_keeps_its_tag_while_others_append() -> None:
    """Nothing in it moves with the head. (§3.4)"""
    engine = Harness()
    engine.append(1, 2, 3)
    before = tag(engine, limit=3)

    engine.append(4, 5)

    assert tag(engine, limit=3) == before


@pytest.mark.parametrize("durability", ["disk", "fsync", "memory"])
def test_a_tag_outlives_seals_rewrites_and_restarts(durability: str) -> None:
    """It names records, not the runs that they lie in. (§3.4)"""
    engine = Durable()
    engine.put(durability=durability)
    for n in range(6):
        engine.append(n, "x" * n, tagged("a"))
    engine.delete(match="a")
    before, bytes_before = tag(engine), text_of(page(engine))

    engine.seal_all()
    sealed = tag(engine)
    engine.rewrite()
    rewritten = tag(engine)
    engine = engine.stop()
    stopped = tag(engine)
    engine = engine.kill()

    assert {before} == {sealed, rewritten, stopped, tag(engine)}
    assert text_of(page(engine)) == bytes_before


# ---------------------------------------------------------------------- what changes it


def test_a_delete_within_a_page_changes_its_tag() -> None:
    """And one outside of it does not. (§3.4)"""
    engine = Harness()
    engine.append(*[tagged(f"t.{n}") for n in range(1, 7)])
    first, second = tag(engine, 0, 3), tag(engine, 3, 3)

    engine.delete(match="t.5")

    assert tag(engine, 0, 3) == first
    assert tag(engine, 3, 3) != second


def test_a_loss_changes_the_tag() -> None:
    """The tombstone is a part of the page. (§3.3, §3.4)"""
    engine = Harness()
    engine.put(cap_records=4)
    engine.append(1, 2, 3, 4)
    before = tag(engine, 0, 2), tag(engine, 2, 2)

    engine.append(5)

    assert tag(engine, 0, 2) != before[0]
    assert tag(engine, 2, 2) == before[1]


def test_records_that_come_change_the_tag_of_a_page_with_room() -> None:
    """A page that ends at the head goes on with it."""
    engine = Harness()
    engine.append(1, 2)
    before = tag(engine, limit=3)

    engine.append(3)

    assert tag(engine, limit=3) != before


def test_the_cursor_behind_a_page_is_a_part_of_it() -> None:
    """A record that came and was deleted moves where the next page begins, and nothing else."""
    engine = Harness()
    engine.append(1)
    before = page(engine)

    engine.append(tagged("t"))
    engine.delete(match="t")
    after = page(engine)

    assert shown(after)["records"] == shown(before)["records"]
    assert (before.next_seq, after.next_seq) == (1, 2)
    assert after.tag != before.tag


def test_another_instance_has_other_tags() -> None:
    """The same records in a topic of the same name are not the same page. (§1.4)"""
    engine = Harness()
    engine.append(1)
    before = tag(engine)
    engine.drop()
    engine.append(1)

    assert tag(engine) != before


@pytest.mark.parametrize(
    "fields",
    [{"include_tags": True}, {"include_meta": False}, {"budget_bytes": 9}, {"epoch": "other"}],
    ids=lambda fields: next(iter(fields)),
)
def test_another_question_has_another_tag(fields: dict[str, Any]) -> None:
    """The parameters are in it, though the page may be equal."""
    engine = Harness()
    engine.append(1)

    assert tag(engine, **fields) != tag(engine)


# ---------------------------------------------------------------------- any history

STEPS: Final = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from(["a", "b", None])),
    st.tuples(st.just("delete"), st.integers(0, 30), st.sampled_from(["a", "b", "*", None])),
    st.tuples(st.just("config"), st.sampled_from([0, 2, 6]), st.sampled_from([0, 1000])),
    st.tuples(st.just("wait"), st.sampled_from([400, 2000])),
    st.tuples(st.sampled_from(["seal", "rewrite", "stop", "kill", "recreate", "copy"])),
)


def play(engine: Durable, durability: str, step: tuple[Any, ...]) -> Durable:
    """One step of a history, and the engine that goes on."""
    match step:
        case ("append", count, mark):
            engine.append(*[{"data": n, "tag": mark, "meta": {"m": n}} for n in range(count)])
        case ("delete", before_seq, match):
            engine.delete(before_seq=before_seq, **({} if match is None else {"match": match}))
        case ("config", cap, ttl_ms):
            engine.put(durability=durability, cap_records=cap, ttl_ms=ttl_ms)
        case ("wait", ms):
            engine.now_ms += ms
        case ("seal",):
            engine.seal_all()
        case ("rewrite",):
            engine.rewrite()
        case ("stop",):
            return engine.stop()
        case ("kill",):
            return engine.kill()
        case ("recreate",):
            engine.drop()
            engine.put(durability=durability)
        case ("copy",):
            engine.append(by("w", {"from": "elsewhere"}), name="s")
            engine.work_off()
    return engine


@given(
    durability=st.sampled_from(["disk", "fsync", "memory", "ephemeral"]),
    is_derived=st.booleans(),
    steps=st.lists(STEPS, max_size=14),
)
@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_pages_of_one_tag_are_equal_byte_for_byte(
    durability: str, is_derived: bool, steps: list[tuple[Any, ...]]
) -> None:
    """Whatever happened between them, and whoever read the text; and each page says what `diff` says.
    (§3.4)"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent_pages, "FEW", 1)
        tell(durability, is_derived, steps)


def tell(durability: str, is_derived: bool, steps: list[tuple[Any, ...]]) -> None:
    engine = Durable()
    engine.put(durability=durability)
    engine.put("s")
    if is_derived:
        engine.route(source="s", dest="t")
    kept: dict[str, bytes] = {}
    for step in [("append", 4, "a"), *steps]:
        engine = play(engine, durability, step)
        if "t" not in engine.engine.state.topics:
            continue
        # The second time text is kept for others, and from the third on it is theirs.
        for from_seq, limit in PLACES * 3:
            found = page(engine, from_seq, limit, include_tags=bool(limit % 4))
            text = text_of(found)
            assert kept.setdefault(found.tag, text) == text
            assert_is_diff(engine, found, from_seq, limit)


def assert_is_diff(engine: Harness, found: StablePage, from_seq: int, limit: int) -> None:
    asked = {"limit": limit, "include_tags": bool(limit % 4)}
    said = engine.diff(from_seq, **asked)
    engine.engine.reads.recent, recent = RecentPages(), engine.engine.reads.recent
    anew = engine.diff(from_seq, **asked)
    engine.engine.reads.recent = recent
    assert said == anew
    gap = said["tombstone"]
    assert found.next_seq == said["next_from_seq"]
    assert (found.gap is None) == (gap is None)
    if found.gap is not None:
        assert (found.gap.gap_from, found.gap.gap_to) == (gap["gap_from"], gap["gap_to"])
        assert found.gap.reason == gap["reason"]
    assert shown(found)["records"] == said["records"]
