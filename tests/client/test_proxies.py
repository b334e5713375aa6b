"""Which proxy a server is behind, as the environment says it."""

import subprocess
import sys
from importlib import util
from typing import Any

import pytest

from topics.client import AsyncClient, Client, proxies
from topics.client.address import parse_address
from topics.client.proxies import proxy_of

PROXY = "http://user:pass@p.example:1"
SOCKS = "socks5://user:pass@p.example:1"


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("url", "variables", "proxy"),
    [
        ("http://a.example", {}, None),
        ("http://a.example", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://a.example", {"http_proxy": PROXY}, PROXY),
        ("https://a.example", {"HTTP_PROXY": PROXY}, None),
        ("https://a.example", {"HTTP_PROXY": SOCKS, "HTTPS_PROXY": PROXY}, PROXY),
        ("http://a.example", {"HTTP_PROXY": PROXY, "ALL_PROXY": SOCKS}, PROXY),
        ("http://a.example", {"ALL_PROXY": "p.example:1"}, "http://p.example:1"),
        ("http://a.example", {"ALL_PROXY": ""}, None),
        *(
            (url, {"ALL_PROXY": SOCKS, "HTTP_PROXY": SOCKS}, None)
            for url in ("http://127.0.0.1:4000", "http://[::1]:1", "http://localhost", "http://127.9.9.9")
        ),
        ("http://x.localhost.", {"ALL_PROXY": SOCKS}, None),
        *(
            ("http://10.1.2.3:4000", {"ALL_PROXY": SOCKS, "NO_PROXY": no}, None)
            for no in ("*", "10.1.2.3", "10.1.2.3:4000", "a, 10.0.0.0/8")
        ),
        ("http://10.1.2.3", {"ALL_PROXY": PROXY, "NO_PROXY": "10.1.2.4,10.2.0.0/16,no/8"}, PROXY),
        ("http://[2001:db8::1]", {"ALL_PROXY": SOCKS, "NO_PROXY": "[2001:db8::1]"}, None),
        ("http://[2001:db8::1]", {"ALL_PROXY": SOCKS, "NO_PROXY": "2001:db8::/32"}, None),
        ("http://a.b.example", {"ALL_PROXY": SOCKS, "NO_PROXY": ".b.example"}, None),
        ("http://a.example", {"ALL_PROXY": PROXY, "NO_PROXY": "b.example,10.0.0.0/8"}, PROXY),
    ],
    ids=str,
)  # fmt: skip
def test_which_proxy(
    environ: pytest.MonkeyPatch, url: str, variables: dict[str, str], proxy: str | None
) -> None:
    """Of the server's scheme, else the one for all; none for this machine and for exceptions."""
    for name, value in variables.items():
        environ.setenv(name, value)

    assert proxy_of(parse_address(url)) == proxy


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "proxy", [SOCKS, "socks4://user:pass@p", "ftp://user:pass@p", "://user:pass@p"]
)
def test_a_proxy_that_is_not_spoken_to(environ: pytest.MonkeyPatch, kind: Any, proxy: str) -> None:
    """It is told where it is needed, by its variable and without its password."""
    environ.setattr(proxies, "find_spec", lambda name: None)
    environ.setenv("ALL_PROXY", proxy)

    with pytest.raises(ValueError, match=r"ALL_PROXY: .* name a\.example in NO_PROXY") as raised:
        kind("http://a.example")
    assert "pass" not in str(raised.value)
    kind("http://127.0.0.1:4000", http2=True)


@pytest.mark.skipif(util.find_spec("socksio") is None, reason="socksio is not installed")
def test_a_socks_proxy_is_used(environ: pytest.MonkeyPatch) -> None:
    """Where the package for it is there."""
    environ.setenv("ALL_PROXY", SOCKS)

    with Client("http://a.example"):
        pass


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://a.example"])
def test_no_command_is_a_stack_trace(environ: pytest.MonkeyPatch, url: str) -> None:
    """A proxy that a server does not need is passed over, and any other ends in one line."""
    environ.setenv("ALL_PROXY", "socks4://p.example:1")
    words = [sys.executable, "-m", "topics", "topics", "--url", url, "--retry-for", "0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert ("ALL_PROXY" in done.stderr) is (url == "http://a.example")
