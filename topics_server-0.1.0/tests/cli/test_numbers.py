"""Numbers that Python's float and int do not take, through the command line (§0.4)."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from topics.client import RawRecord
from topics.testing import MemoryTopics

TEXTS = ["1e400", "9" * 5000, '{"deep":[-1e400,1]}', "1e" + "9" * 30, "7"]


def stored(memory: MemoryTopics, topic: str) -> list[str]:
    found = memory.client.read(topic, record_type=RawRecord)
    return [bytes(record.data).decode() for record in found if isinstance(record, RawRecord)]


@pytest.fixture
def filled(memory: MemoryTopics) -> MemoryTopics:
    """A topic with each of the numbers, as data and in `meta`."""
    for text in TEXTS:
        meta = msgspec.Raw(b'{"m":%b}' % text.encode())
        memory.client.append("jobs", msgspec.Raw(text.encode()), meta=meta)
    return memory


def test_appended_and_read(memory: MemoryTopics, run: Any) -> None:
    """What comes out is what went in, byte for byte. (§3)"""
    done = run("append", "jobs", input="\n".join(TEXTS))

    assert done.exit_code == 0, done.output
    assert stored(memory, "jobs") == TEXTS
    assert run("read", "jobs", "--data").stdout.splitlines() == TEXTS


def test_copied_with_their_meta(filled: MemoryTopics, run: Any) -> None:
    """`read` into `append --format records`. (§2)"""
    lines = run("read", "jobs").stdout
    done = run("append", "copy", "--format", "records", input=lines)

    assert done.exit_code == 0, done.output
    assert stored(filled, "copy") == TEXTS
    assert run("read", "copy").stdout.count('"meta":{"m":1e400}') == 1


def test_a_tag_is_made_of_the_field_beside_one(memory: MemoryTopics, run: Any) -> None:
    """The other fields of the line are none of its business. (§2)"""
    lines = "\n".join(f'{{"id":{n},"x":{text}}}' for n, text in enumerate(TEXTS))
    done = run("append", "jobs", "--tag-field", "id", input=lines)

    assert done.exit_code == 0, done.output
    assert run("read", "jobs", "--tags").stdout.count('"$tag":"3"') == 1


def test_jobs(memory: MemoryTopics, run: Any, tmp_path: Path) -> None:
    """A command gets them on its standard input. (§10.4)"""
    memory.client.put_topic("jobs", type="queue")
    for text in TEXTS:
        raw = msgspec.Raw(text.encode())
        memory.client.append("jobs", raw, meta={"m": raw})
    out = tmp_path / "out"

    done = run("work", "jobs", "--drain", "--", "sh", "-c", f"cat >> {out}")

    assert done.exit_code == 0, done.output
    assert sorted(out.read_text().splitlines()) == sorted(TEXTS)
