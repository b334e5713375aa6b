"""Where the server is, and how names of Celery's become names of topics."""

import re
import subprocess
import sys

import pytest
from kombu import Connection

from topics.integrations.celery.options import Options, without_key

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("celery", "celery"),
        ("celery@host.celery.pidbox", "celery:40host.celery.pidbox"),
        ("a:40b", "a:3a40b"),
        ("_private", "q:_private"),
        ("größe", "gr:c3:b6:c3:9fe"),
    ],
)
def test_a_queue_is_a_topic_of_its_name(name: str, topic: str) -> None:
    """What a topic may not be called is escaped. (§1.1)"""
    assert Options().topic(name) == topic
    assert NAME.fullmatch(topic)


def test_no_two_names_are_one_topic() -> None:
    """Escapes are escaped, and a name that is too long keeps its digest. (§1.1)"""
    names = ["q@", "q:40", "_q", "q:_q", "a" * 300, "a" * 301, "é" * 100, "é" * 99]

    topics = {Options().topic(name) for name in names}

    assert len(topics) == len(names)
    assert all(NAME.fullmatch(topic) for topic in topics)


def test_a_prefix_is_of_all_topics() -> None:
    """An application with a prefix shares no topic with one that has another."""
    options = Options(prefix="shop.")

    topics = [options.topic("celery"), options.bindings, options.results, options.chord("g")]

    assert topics == [
        "shop.celery",
        "shop.kombu.bindings",
        "shop.celery.results",
        "shop.celery.chord.g",
    ]
    assert options.log("celery.pidbox") == "shop.kombu.log.celery.pidbox"


@pytest.mark.parametrize(
    ("url", "server", "key"),
    [
        ("topics://127.0.0.1", "http://127.0.0.1:4000", None),
        ("topics://s3cret@127.0.0.1:4001/", "http://127.0.0.1:4001", "s3cret"),
        ("topics://:s3cret@127.0.0.1:4001//", "http://127.0.0.1:4001", "s3cret"),
        ("topics://a%40b@[::1]:4001", "http://[::1]:4001", "a@b"),
        ("https://s3cret@queue.example/topics", "https://queue.example/topics", "s3cret"),
        ("topics://", "http://127.0.0.1:4000", None),
    ],
)
def test_a_url_says_where_the_server_is(url: str, server: str, key: str | None) -> None:
    """The key stands in the place of the user or of the password."""
    with Options().client(url) as client:
        target = client.session.target

    assert (target.url.rstrip("/"), target.api_key) == (server, key)


def test_no_host_is_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`topics://` alone is what `TOPICS_URL` names, as for every other client."""
    monkeypatch.setenv("TOPICS_URL", "http://10.0.0.1:4002")

    with Options().client("topics://") as client:
        assert client.session.target.url.rstrip("/") == "http://10.0.0.1:4002"


def test_logs_do_not_show_the_key() -> None:
    """A worker prints the URL of its broker when it starts."""
    assert Connection("topics://s3cret@h:4000").as_uri() == "topics://**@h:4000"
    assert Connection("topics+https://s3cret@h").as_uri() == "topics+https://**@h"
    assert Connection("topics://s3cret@h:4000").as_uri(True) == "topics://s3cret@h:4000"
    assert without_key("https://:k@h/a@b") == "https://**@h/a@b"


def test_options_of_celery_are_left_alone() -> None:
    """Celery has options of its own in the same place."""
    options = Options.of({"lease_ms": 5000, "max_retries": 3})

    assert options == Options(lease_ms=5000)


def test_a_queue_with_a_cap_refuses() -> None:
    """No task is dropped in silence, none is given to another worker because the server was killed; what the
    program says comes last. (§0.10)"""
    options = Options(queue_config={"max_deliveries": 3, "lease_ms": 1000})

    config = options.queue({"cap_records": 10, "discard": "old"})

    assert config == {
        "type": "queue",
        "lease_ms": 1000,
        "discard": "old",
        "durability": "disk",
        "leases_durable": True,
        "max_deliveries": 3,
        "cap_records": 10,
    }


def test_nothing_else_is_imported() -> None:
    """`topics` does without Celery, and kombu learns of the transport by itself."""
    program = """
import sys, topics, topics.client
assert not {"celery", "kombu"} & set(sys.modules)
import kombu.serialization
from kombu.transport import TRANSPORT_ALIASES
assert "topics" in TRANSPORT_ALIASES
assert "topics.integrations.celery.transport" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
