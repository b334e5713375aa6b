"""A node's exchange, put together from its settings."""

import subprocess
import sys

import pytest

from topics.protocol.http.origins import OriginRule
from topics.protocol.model.errors import StoreError
from topics.protocol.model.limits import Limits
from topics.server.assembly import create
from topics.server.cluster.assembly import exchange_of
from topics.server.exchange.interface import Answer, Head
from topics.server.exchange.observer import Observer
from topics.settings import Settings
from topics.testing import START_MS, _Shell

from .pair import SECRET, FakeStanding


def refused(hosts: frozenset[bytes], url: str | None, host: bytes) -> bool:
    exchange = exchange_of(
        Settings(cluster_url=url),
        _Shell(Limits(), START_MS),
        FakeStanding(),
        node="n1",
        secret=SECRET,
        origins=OriginRule(hosts, frozenset()),
        observer=Observer(),
        guard=None,
    )
    found = exchange.begin(Head("GET", b"/v0/health", b"", [(b"host", host)]))
    return isinstance(found, Answer) and found.status == 403


def test_other_nodes_may_call_by_the_host_of_the_url() -> None:
    """A server without keys is called by names that it knows (DNS rebinding); its own URL is one."""
    local = frozenset({b"localhost"})

    assert not refused(local, "http://n1.cluster:4000", b"n1.cluster:4000")
    assert not refused(local, "http://[fd00::1]:4000", b"[fd00::1]:4000")
    assert refused(local, None, b"n1.cluster:4000")
    assert refused(local, "http://n1.cluster:4000", b"evil.example")
    assert not refused(frozenset(), "http://n1.cluster:4000", b"any.example")


def test_a_single_server_loads_nothing_of_a_cluster() -> None:
    """No module, so no cost: neither at the start nor for a request."""
    code = (
        "import sys, topics.server.assembly, topics.server.exchange.exchange;"
        "print([name for name in sys.modules if 'cluster' in name])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_server_that_is_told_of_a_cluster_does_not_start_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would take writes that no other node has."""
    monkeypatch.setattr("topics.settings.find_spec", lambda name: object())
    settings = Settings(cluster_kafka="k1:9092", cluster_url="http://n1:4000")
    with pytest.raises(StoreError, match="TOPICS_CLUSTER_KAFKA"):
        create(settings)
