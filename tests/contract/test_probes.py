"""Health, readiness, aliases, metrics and limits (§8, §11)."""

import pytest

from .api import Api


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_liveness_says_ok(api: Api, path: str) -> None:
    """200 with status, version and uptime. (§8.1)"""
    health = api.ok("GET", path)
    assert health["status"] == "ok"
