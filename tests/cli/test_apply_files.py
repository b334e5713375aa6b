"""Files of `topics apply`: YAML, JSON, directories, standard input."""

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
        ("topics: {a: {ttl_ms: 5", "2: no YAML"),
        ("topics:\n  a:\n  a:", "3: 'a' is given twice"),
        ("topics: &x {a: *x}", "1: nested too deeply"),
        ("topics: {a: !!binary x}", "1: the tag tag:yaml.org,2002:binary is not supported"),
        ("x: &x {ttl_ms: 1}\ntopics: {a: {<<: *x}}", "2: merge keys (<<) are not supported"),
        ("? [a]\n: 1", "1: a name has to be a text"),
        (
            "schedules: {s: {topic: t, every_ms: 1h, record: {data: .nan}}}",
            "'.nan' is no number of JSON",
        ),
        (
            "schedules: {s: {topic: t, every_ms: 1h, record: {data: [-.Inf]}}}",
            "'-.Inf' is no number",
        ),
        ("topics: {a: {cap_records: 1e999}}", "1: '1e999' is no number of JSON"),
        ("# nothing", "nothing is declared"),
    ],
)
def test_a_fault_of_yaml(run: Any, file: Path, text: str, fault: str) -> None:
    """Says where, before anything is asked or changed."""
    file.write_text(text)

    done = run("apply", "-f", file)

    assert done.exit_code == 2
    assert fault in done.stderr
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"topics": {"a": {}, "a": {}}}', "'a' is given twice in one object"),
        ('{"topics":\n {"a": {}, }}', ":2: no JSON"),
        ('{"topics": {"a": {"ttl_ms": NaN}}}', "NaN is no number of JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_fault_of_json(run: Any, tmp_path: Path, text: str, fault: str) -> None:
    """Says where, too."""
    (tmp_path / "t.json").write_text(text)

    done = run("apply", "-f", tmp_path / "t.json")

    assert done.exit_code == 2
    assert fault in done.stderr


def test_json_needs_no_library(
    memory: MemoryTopics, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only YAML does, and says which."""
    from topics.cli import apply_files

    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    apply_files._loader.cache_clear()
    (tmp_path / "t.json").write_text('{"topics": {"a": {"ttl_ms": "1h"}}}')
    (tmp_path / "t.yaml").write_text("topics: {b: }")

    done = run("apply", "-f", tmp_path / "t.json")
    refused = run("apply", "-f", tmp_path / "t.yaml")

    assert (done.exit_code, memory.client.topic("a").config.ttl_ms) == (0, 3_600_000)
    assert refused.exit_code == 2
    assert "YAML needs the package PyYAML" in refused.stderr


def test_standard_input_is_either(memory: MemoryTopics, run: Any, tmp_path: Path) -> None:
    """JSON begins with a brace. A text that is not UTF-8 is neither."""
    assert run("apply", "-f", "-", input='{"topics": {"a": {}}}').exit_code == 0
    assert run("apply", "-f", "-", input="topics: {b: }").exit_code == 0
    assert [each.topic for each in memory.client.topics()] == ["a", "b"]
    assert "is not UTF-8 (byte 8)" in run("apply", "-f", "-", input=b"topics: \xff").stderr
    assert run("apply", "-f", tmp_path).exit_code == 2
    assert run("apply", "-f", tmp_path / "missing.yaml").exit_code == 2
    assert run("apply", "-f", "-", "--exit-code", input="topics: {b: }").exit_code == 2
