"""`topics latest`: the newest record of a tag, or of each."""

import json
from typing import Any

from topics.testing import MemoryTopics


def test_a_tag_and_all_of_them(memory: MemoryTopics, run: Any) -> None:
    """One line each, as `topics read` prints them. (§3.5)"""
    client = memory.client
    client.append("prices", 1, {"n": 2.50}, tag="EUR", meta={"m": 1})
    client.append("prices", 3, tag="USD")

    done = run("latest", "prices", "EUR")
    assert done.exit_code == 0, done.output
    line = json.loads(done.stdout)
    assert (line["$seq"], line["$tag"], line["meta"]) == (2, "EUR", {"m": 1})
    assert run("latest", "prices", "EUR", "--data").stdout == '{"n":2.5}\n'
    lines = run("latest", "prices", "--no-meta").stdout.splitlines()
    assert [json.loads(line)["$seq"] for line in lines] == [2, 3]
    assert "meta" not in lines[0]
    assert run("latest", "prices", "--prefix", "U", "--data").stdout == "3\n"


def test_what_is_not_there(memory: MemoryTopics, run: Any) -> None:
    """And what says two things. (§0.6)"""
    memory.client.append("prices", 1, tag="EUR")
    done = run("latest", "prices", "USD")
    assert done.exit_code == 1
    assert "(404 record_not_found)" in done.stderr
    done = run("latest", "prices", "EUR", "--prefix", "U")
    assert "exclude each other" in done.stderr
