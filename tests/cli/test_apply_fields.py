"""What files of `topics apply` declare, and faults in it."""

from pathlib import Path
from typing import Any

import pytest

from topics.testing import MemoryTopics


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topics.yaml"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("topcs: {}", "1: there is no field 'topcs'; is it topics?"),
        ("queues: {}", "1: 'queues' is no section: a queue is one of the topics"),
        ("- 1", "1: a document is a mapping with topics, routers and schedules"),
        ("topics: 5", "1: topics: is a mapping of names, not 5"),
        ("topics:\n  a: 5", "2: topics.a: is a mapping of fields, not 5"),
        ("topics:\n  a:\n    tll_ms: 5", "3: topics.a: there is no field 'tll_ms'; is it ttl_ms?"),
        ("topics:\n  a:\n    ttl_ms: soon", "3: topics.a: ttl_ms is milliseconds"),
        ("topics: {a: {ttl_ms: true}}", "ttl_ms is milliseconds, or like 90s, 1h30m or 2d"),
        ("topics: {a: {ttl_ms: -1}}", "ttl_ms is at least 0, not -1"),
        ("topics: {a: {lease_ms: 1}}", "lease_ms is 100 to 86,400,000, not 1"),
        ("topics: {a: {priority: -2000}}", "priority is -1,000 to 1,000, not -2,000"),
        ("topics: {a: {backoff: {base_ms: 2d}}}", "base_ms is at most max_ms"),
        ("topics: {a: {ttl_ms: null}}", "ttl_ms has no value; leave it out for the default"),
        ("topics: {a: {compact: 3}}", "compact is on or off"),
        ("topics: {a: {dead_letter: 5}}", "dead_letter is a text, not 5"),
        ("topics: {a: {type: stream}}", "type is one of log, queue"),
        ("topics: {a: {rate: {max: 1}}}", "rate: per_ms is missing"),
        ("topics: {a: {rate: {max: x, per_ms: 1s}}}", "rate.max is a number"),
        ("topics: {a: {backoff: {base: 1}}}", "is it base_ms?"),
        ("topics: {a: {kafka_configs: {x: [1]}}}", "kafka_configs.x is a text"),
        ("prefix: 5\ntopics: {}", "1: prefix: is a text, not 5"),
        ("prefix: b\ntopics:\n  a:", "3: topics.a: does not begin with 'b'"),
        ("routers:\n  r: {dest: b}", "2: routers.r: source is missing"),
        ("routers: {r: }", "routers.r: is a mapping of fields, not null"),
        ("routers: {r: {source: a, dest: b, filter: [1]}}", "filter is a text such as"),
        ("routers: {r: {source: a, dest: b, guarantee: twice}}", "guarantee is one of"),
        ("schedules: {s: {topic: t, record: {data: 1}}}", "one of cron, every_ms and at is needed"),
        ("schedules: {s: {topic: t, at: 5, cron: x, record: {data: 1}}}", "and no more"),
        ("schedules: {s: {topic: t, at: soon, record: {data: 1}}}", "at is milliseconds since"),
        ("schedules: {s: {topic: t, at: 2027-03-01T09:00, record: {data: 1}}}", "with its zone"),
        ("schedules: {s: {topic: t, at: 2027-03-01, record: {data: 1}}}", "with its zone"),
        ("topics:\n  a:\n  ümläut:", "3: topics: 'ümläut' is no name of a topic: 1 to 255 of"),
        ("topics: {a>b: }", "1: topics: 'a>b' is no name of a topic"),
        ("routers: {a b: {source: a, dest: b}}", "1: routers: 'a b' is no name of a router"),
        ("schedules: {-s: {topic: t, every_ms: 1s, record: {data: 1}}}", "no name of a schedule"),
        ("topics: {a: {type: queue, dead_letter: a/b}}", 'dead_letter is a topic, not "a/b"'),
        ("routers: {r: {source: a, dest: ''}}", 'dest is a topic, not ""'),
        ("routers: {r: {source: 5, dest: b}}", "source is a topic, not 5"),
        ("schedules: {s: {topic: t t, every_ms: 1s, record: {data: 1}}}", "topic is a topic, not"),
        ("routers: {r: {source: a, dest: b, filter: [node, Eq, x]}}", "filter is a text such as"),
        ("routers: {r: {source: a, dest: b, filter: [tag, In, x]}}", "filter is a text such as"),
        ("routers: {r: {source: a, dest: b, filter: [tag, Eq]}}", "filter is a text such as"),
        ("schedules: {s: {topic: t, every_ms: [], record: {data: 1}}}", "every_ms is milliseconds"),
        ("schedules: {s: {topic: t, every_ms: 1s, record: {dta: 1}}}", "is it data?"),
        ("schedules: {s: {topic: t, every_ms: 1s, record: {tag: a}}}", "record: data is missing"),
        ("schedules: {s: {topic: t, every_ms: 1s, record: 5}}", "record is a mapping"),
        ("schedules: {s: {topic: t, every_ms: 1s, record: {data: 1}, config: 1}}", "config is a"),
        ("schedules: {s: {topic: t, every_ms: 1s, record: {data: 1}, config: {tll: 1}}}", "'tll'"),
    ],
)
def test_a_fault_is_named_with_its_line(
    memory: MemoryTopics, run: Any, file: Path, text: str, fault: str
) -> None:
    """And the word that was meant, before anything is asked or changed."""
    file.write_text(text)

    done = run("apply", "-f", file)

    assert done.exit_code == 2
    assert fault in done.stderr
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def test_all_faults_of_all_files_are_named_at_once(
    memory: MemoryTopics, run: Any, tmp_path: Path
) -> None:
    """A directory's files in the order of their names; other files of it are none of them."""
    (tmp_path / "1.yaml").write_text("topics: {a: {ttl: 1}}\n---\ntopics: {b: {tl: 1}}\n")
    (tmp_path / "2.json").write_text('{"topics": {"a": {}}}')
    (tmp_path / "README.md").write_text("topics")

    done = run("apply", "-f", tmp_path)

    lines = done.stderr.splitlines()
    assert done.exit_code == 2
    assert [line.split(": ")[1].removeprefix(str(tmp_path)) for line in lines[:3]] == [
        "/1.yaml:1",
        "/1.yaml:3",
        "/2.json",
    ]
    assert "topics.a: is declared at" in lines[2]
    assert lines[3] == "topics: 3 faults; nothing was changed"


def test_a_plan_spells_times_and_configs_as_files_do(memory: MemoryTopics, run: Any) -> None:
    """A moment in UTC, and of the config that a schedule gives to its topic what is no default."""
    text = """
    schedules:
      s:
        topic: t
        at: 2037-03-01T10:00+01:00
        until: 2037-03-02T00:00:00.5Z
        config: {type: queue, ttl_ms: 1d}
        record: {data: 1}
    """

    done = run("apply", "-f", "-", "--dry-run", input=text)

    assert "    at: 2037-03-01T09:00:00+00:00\n" in done.stdout
    assert "    until: 2037-03-02T00:00:00.500+00:00\n" in done.stdout
    assert '    config: {"type": "queue", "ttl_ms": 86400000}\n' in done.stdout
