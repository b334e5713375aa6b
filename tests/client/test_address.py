"""URLs of servers, parsed here where they are of the usual form and by httpx where not."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client import address as addresses
from topics.client.address import Address, parse_address


def parsed_by_httpx(url: str) -> Address | str:
    try:
        return addresses._parse_unusual(url)
    except ValueError as error:
        return str(error)


def parsed(url: str) -> Address | str:
    try:
        return parse_address(url)
    except ValueError as error:
        return str(error)


USUAL = [
    "http://127.0.0.1:4000",
    "http://localhost",
    "https://topics.example.com/",
    "http://a_b.example:80",
    "https://a.example:443/base/of.it/",
    "http://a.example:443",
    "http://[::1]:4000",
    "http://[fe80::1]/x",
]
UNUSUAL = [
    "HTTP://A.example",
    "http://user:p%40ss@a.example:4000/x",
    "http://user@a.example",
    "http://b\u00fccher.example/x",
    "http://a.example/%41/../b",
    "http://a.example/./b",
    "http://a.example?x=1",
    "http://a.example//b",
    "http://1.2.3.4.5",
]
WRONG = [
    "",
    "topics",
    "localhost:4000",
    "ftp://a.example",
    "http://",
    "http://:80",
    "http://a.example:0",
    "http://a.example:65536",
    "http://a.example:x",
    "http://256.0.0.1",
    "http://[::g]",
    "http://[1::2::3]",
    "http://a.example\n",
    "http://a b.example\x00",
]


@pytest.mark.parametrize("url", [*USUAL, *UNUSUAL, *WRONG])
def test_both_ways_lead_to_one_address(url: str) -> None:
    """Or to one refusal."""
    assert parsed(url) == parsed_by_httpx(url)


@given(
    scheme=st.sampled_from(["http", "https"]),
    host=st.from_regex(r"[a-z0-9._:\[\]-]{1,12}", fullmatch=True),
    port=st.sampled_from(["", ":", ":0", ":80", ":443", ":4000", ":0080", ":65536", ":99999"]),
    path=st.from_regex(r"(/[A-Za-z0-9._~%-]{0,4}){0,3}", fullmatch=True),
)
def test_any_url_of_about_that_form(scheme: str, host: str, port: str, path: str) -> None:
    """The two ways never differ."""
    url = f"{scheme}://{host}{port}{path}"

    assert parsed(url) == parsed_by_httpx(url)


@pytest.mark.parametrize("url", WRONG)
def test_a_url_that_is_none(url: str) -> None:
    """It is refused with its text."""
    with pytest.raises(ValueError, match=r"is not a|there is no port"):
        parse_address(url)


def test_an_address() -> None:
    """What requests and the resolver take from it."""
    usual = parse_address("http://[::1]:4000/base/")
    secret = parse_address("https://user:p%40ss@a.example")

    assert usual == Address(
        "http://[::1]:4000/base/", "http", "::1", 4000, "[::1]:4000", "/base", None
    )
    assert (secret.userinfo, secret.port, secret.origin) == (
        ("user", "p@ss"),
        443,
        "https://a.example",
    )
    assert "p%40ss" not in repr(secret)
    assert "p@ss" not in repr(secret)


def test_usual_urls_need_no_httpx() -> None:
    """It takes longer to import than all the rest of a command."""
    code = (
        "import sys; from topics.client import Client\n"
        "for url in sys.argv[1:]: Client(url).close()\n"
        "print('httpx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *USUAL], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(
    "url",
    [
        *("http://ada:pass@a.test:99999", "http://ada:pa/ss@a.test", "ftp://ada:pass@a.test"),
        *("http://ada:pass@a.test:port", "http://ada:pass@[::1", "ada:pass@a"),
        "http://ada:pa\0ss@a.test",
    ],
)
def test_a_password_stays_out_of_messages(url: str) -> None:
    """A URL that cannot be used is told without it: messages end in logs."""
    with pytest.raises(ValueError, match="a") as raised:
        parse_address(url)

    assert "pa" not in str(raised.value)
    assert "ada" not in str(raised.value)
