"""`topics export-config`: a server's topics, routers and schedules as a file that `topics apply` takes."""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click.testing
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import topics.client
from topics.cli import main
from topics.cli.apply_export import exported
from topics.cli.apply_fields import TOPIC_DEFAULTS
from topics.cli.fields import FIELDS
from topics.client import NewRecord, TopicConfig
from topics.testing import START_MS, MemoryTopics


def test_what_has_its_default_is_left_out(memory: MemoryTopics, run: Any) -> None:
    """Durations, sizes and times are written as people write them."""
    client = memory.client
    client.put_topic("jobs", type="queue", lease_ms=120_000, dead_letter="dead")
    client.put_topic("audit", cap_bytes=10 << 30, rate={"max": 5, "per_ms": 1000}, durable=True)
    client.put_router("r", "jobs", "audit", filter="eu.*", preserve_node=False)
    client.put_router("s", "audit", "other", filter=("tag", "Eq", "a*"))
    client.put_schedule("once", "jobs", NewRecord({"n": 1}, tag="t"), at_ms=START_MS + 1500)
    client.put_schedule("daily", "jobs", 1, cron="0 6 * * *", config={"type": "queue"})
    client.put_schedule("often", "jobs", None, every_ms=30_000, paused=True, missed="none")

    done = run("export-config")

    assert (done.exit_code, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout) == {
        "topics": {
            "audit": {
                "cap_bytes": "10GiB",
                "durability": "fsync",
                "rate": {"max": 5, "per_ms": 1000},
            },
            "jobs": {"type": "queue", "lease_ms": "2m", "dead_letter": "dead"},
            "other": {},
        },
        "routers": {
            "r": {"source": "jobs", "dest": "audit", "filter": "eu.*", "preserve_node": False},
            "s": {"source": "audit", "dest": "other", "filter": ["tag", "Eq", "a*"]},
        },
        "schedules": {
            "daily": {
                "topic": "jobs",
                "record": {"data": 1},
                "cron": "0 6 * * *",
                "config": {"type": "queue"},
            },
            "often": {
                "topic": "jobs",
                "record": {"data": None},
                "every_ms": "30s",
                "missed": "none",
                "paused": True,
            },
            "once": {
                "topic": "jobs",
                "record": {"data": {"n": 1}, "tag": "t"},
                "at": "2025-06-15T15:06:41.500+00:00",
            },
        },
    }
    assert run("apply", "-f", "-", "--prune", input=done.stdout).stdout == "8 unchanged\n"
    as_json = run("export-config", "--json")
    assert json.loads(as_json.stdout)["topics"]["audit"]["cap_bytes"] == 10 << 30
    assert run("apply", "-f", "-", "--prune", input=as_json.stdout).stdout == "8 unchanged\n"


def test_a_prefix_is_part_of_the_file(memory: MemoryTopics, run: Any) -> None:
    """So that `--prune` of it deletes nothing else."""
    for name in ("app:a", "other"):
        memory.client.put_topic(name)

    done = run("export-config", "--prefix", "app:")

    assert yaml.safe_load(done.stdout) == {
        "prefix": "app:",
        "topics": {"app:a": {}},
        "routers": {},
        "schedules": {},
    }
    memory.client.put_topic("app:b")
    assert run("apply", "-f", "-", "--prune", "--yes", input=done.stdout).exit_code == 0
    assert [each.topic for each in memory.client.topics()] == ["app:a", "other"]


def test_what_goes_while_it_is_exported_is_left_out(
    memory: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the list and the look."""
    memory.client.put_topic("a")
    listed = [*memory.client.topics()]
    memory.client.delete_topic("a")
    monkeypatch.setattr(type(memory.client), "topics", lambda _client, prefix="": iter(listed))

    assert exported(memory.client, "", has_units=True)["topics"] == {}


def test_every_field_of_a_config_has_its_default() -> None:
    """A field that is added to the client's config is one of the files."""
    assert set(TOPIC_DEFAULTS) == set(FIELDS) - {"durable"}
    for name, default in TOPIC_DEFAULTS.items():
        in_force = getattr(TopicConfig(), name)
        assert in_force is None or in_force == default, name


# ---------------------------------------------------------------------- the round trip

WORDS: Final = st.sampled_from(
    [
        "on",
        "no",
        "null",
        "~",
        "1",
        "0o7",
        "1e5",
        "12:30",
        "2027-01-01",
        " a",
        "a: b",
        "# x",
        "- y",
        "<<",
        "!t",
        "&a",
        "*",
        "'",
        '"',
        "é",
        "\u2028",
        "\u202e",
        "",
        "\n",
        "a\nb\n",
        "%",
        "@",
        "=",
        ".5",
        ".inf",
        "0x1f",
        "1_000",
        "TRUE",
        "\ufeff",
        "\x7f",
        "\x85",
        "\t",
        "\r\n",
        "{}",
        "[]",
        "? a",
        "---",
        "...",
    ]
)
TEXTS: Final = WORDS | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
SPANS: Final = st.integers(0, 10**12)
CONFIGS: Final = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["log", "queue"]),
        "ttl_ms": SPANS,
        "cap_records": SPANS,
        "cap_bytes": SPANS,
        "discard": st.sampled_from(["old", "reject"]),
        "durability": st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
        "priority": st.none() | st.integers(-1000, 1000),
        "auto_priority": st.booleans(),
        "auto_create": st.booleans(),
        "idempotency_window_ms": SPANS,
        "dedupe_node": st.booleans(),
        "lease_ms": st.integers(100, 86_400_000),
        "claim_jitter_ms": st.integers(0, 5000),
        "max_deliveries": st.integers(0, 100),
        "dead_letter": st.none() | st.just("dead"),
        "leases_durable": st.booleans(),
        "max_message_bytes": st.integers(1, 2**31 - 1),
        "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "kafka_configs": st.dictionaries(
            st.sampled_from(["delete.retention.ms", "min.compaction.lag.ms"]),
            st.integers(0, 10**9).map(str),
        ),
        "result_ttl_ms": st.integers(1, 10**9),
        "keep_done": st.integers(0, 10**6),
        "order": st.just("group"),
        "fair": st.booleans(),
        "rate": st.fixed_dictionaries(
            {"max": st.integers(1, 1000), "per_ms": st.integers(1, 86_400_000)}
        ),
        "max_in_flight": st.integers(0, 1000),
        "group_max_in_flight": st.integers(0, 1),
        "backoff": st.fixed_dictionaries(
            {"base_ms": st.integers(0, 1000)},
            optional={
                "factor": st.integers(1, 1000) | st.floats(1, 1000),
                "max_ms": st.integers(1000, 86_400_000),
                "jitter": st.floats(0, 1),
            },
        ),
    },
)
TAGS: Final = st.sampled_from(["eu.*", "on", "1", "a*", "*"])
RECORDS: Final = st.fixed_dictionaries(
    {"data": VALUES},
    optional={
        "tag": TAGS,
        "node": st.just("n"),
        "meta": st.dictionaries(st.sampled_from(["a", "no", "1"]), VALUES, max_size=2),
        "priority": st.integers(-128, 127),
        "delay_ms": st.integers(0, 10**6),
        "expires_ms": st.integers(1, 10**6),
        "group": TAGS,
        "unique": TAGS
        | st.fixed_dictionaries(
            {"key": TAGS},
            optional={
                "on_conflict": st.sampled_from(["keep", "replace"]),
                "for_ms": st.integers(1, 10**6),
            },
        ),
    },
)
TIMES: Final = st.one_of(
    st.fixed_dictionaries(
        {"cron": st.sampled_from(["0 6 * * 1-5", "*/5 * * * * *"])},
        optional={"tz": st.sampled_from(["UTC", "Europe/Berlin"])},
    ),
    st.fixed_dictionaries({"every_ms": st.integers(1000, 10**9)}),
    # By the clock of this machine they are to come, and by that of the server in memory.
    st.fixed_dictionaries({"at": st.integers(4 * 10**12, 9 * 10**12)}),
)
ROUTERS: Final = st.fixed_dictionaries(
    {"source": st.just("a"), "dest": st.sampled_from(["b", "c"])},
    optional={
        "filter": TAGS | st.sampled_from([["tag", "Eq", "a*"], ["tag", "Glob", "b*"]]),
        "preserve_node": st.booleans(),
        "preserve_tag": st.booleans(),
        "guarantee": st.sampled_from(["at_least_once", "exactly_once"]),
        "allow_cycle": st.booleans(),
    },
)
SCHEDULES: Final = st.builds(
    lambda times, record, rest: {**times, **rest, "topic": "jobs", "record": record},
    TIMES,
    RECORDS,
    st.fixed_dictionaries(
        {},
        optional={
            "missed": st.sampled_from(["none", "one", "all"]),
            "until": st.integers(10**13, 10**14),
            "paused": st.booleans(),
            "config": st.none() | CONFIGS.map(lambda config: {**config, "type": "queue"}),
        },
    ),
)
NAMES: Final = st.sampled_from(["a", "1", "on", "null", "app:a.b_c-d", "2027-01-01", "0o7", "1e5"])
DOCUMENTS: Final = st.fixed_dictionaries(
    {
        # A record with options of jobs is refused where its topic is no queue.
        "topics": st.dictionaries(NAMES, CONFIGS, max_size=3).map(
            lambda topics: {**topics, "jobs": {"type": "queue"}}
        ),
        "routers": st.dictionaries(NAMES, ROUTERS, max_size=2),
        "schedules": st.dictionaries(NAMES, SCHEDULES, max_size=2),
    }
)


@contextmanager
def server() -> Iterator[Any]:
    """`topics ARGS` before an engine in memory of its own."""
    with MemoryTopics() as memory, pytest.MonkeyPatch.context() as patch:
        transport = memory.client.session.connections.transport
        client = functools.partial(topics.client.Client, transport=transport)
        patch.setattr(topics.client, "Client", client)

        def run(*args: str, input: str = "") -> click.testing.Result:
            return click.testing.CliRunner().invoke(main, args, input=input)

        yield run


@given(document=DOCUMENTS, as_json=st.booleans())
@settings(max_examples=60)
def test_any_config_comes_back_as_it_was(document: dict[str, Any], as_json: bool) -> None:
    """What is applied, exported and applied to a new server is the same there, and applied again changes
    nothing on either. (§1.1, §6.1, §14.1)"""
    flags = ("--json",) if as_json else ()
    with server() as run:
        made = run("apply", "-f", "-", input=json.dumps(document))
        assert made.exit_code == 0, made.stderr
        assert "the server keeps" not in made.stderr
        again = run("apply", "-f", "-", "--dry-run", "--exit-code", input=json.dumps(document))
        assert again.exit_code == 0, again.stdout
        file = run("export-config", *flags).stdout
        same = run("apply", "-f", "-", "--prune", "--dry-run", "--exit-code", input=file)
        assert same.exit_code == 0, same.output
    with server() as run:
        assert run("apply", "-f", "-", input=file).exit_code == 0
        assert run("export-config", *flags).stdout == file
