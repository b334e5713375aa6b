"""The page at `/`: its headers, its policy, and that it needs no other host."""

import gzip
from html.parser import HTMLParser

import pytest

from topics.protocol.faces.http.origins import LOOPBACK_HOSTS, OriginRule
from topics.protocol.model.limits import Limits
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Answer, Head
from topics.server.page import console, page
from topics.server.service.shell import Phase
from topics.testing import START_MS, _Shell

TEXT = page.DOCUMENT.decode()
SENT_MAX_BYTES = 80_000


def ask(
    method: str, *headers: tuple[bytes, bytes], phase: Phase = Phase.READY, path: bytes = b"/"
) -> Answer:
    shell = _Shell(Limits(), START_MS)
    shell.phase = phase
    exchange = TopicsExchange(shell, OriginRule(LOOPBACK_HOSTS, frozenset()))
    found = exchange.begin(Head(method, path, b"", [(b"host", b"localhost:4000"), *headers]))
    answer = found if isinstance(found, Answer) else found.finish([])
    assert isinstance(answer, Answer)
    return answer


class Elements(HTMLParser):
    """Every attribute of a document, and the text in its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.blocks: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._inside = tag if tag in self.blocks else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.blocks[self._inside].append(data)


@pytest.fixture(scope="module")
def elements() -> Elements:
    parsed = Elements()
    parsed.feed(TEXT)
    parsed.close()
    return parsed


def directives() -> dict[str, list[str]]:
    parts = [part.split() for part in page.POLICY.split("; ")]
    return {name: sources for name, *sources in parts}


@pytest.mark.parametrize("phase", Phase)
def test_the_page_is_served_in_every_phase(phase: Phase) -> None:
    """During a replay it is served and shows the replay. (§9)"""
    answer = ask("GET", phase=phase)

    assert (answer.status, b"".join(answer.body)) == (200, page.DOCUMENT)


def test_its_headers() -> None:
    """It is HTML and nothing else, revalidated each time, and sends no referrer. (§9)"""
    headers = dict(ask("GET").headers)

    assert headers == {
        b"content-type": b"text/html; charset=utf-8",
        b"content-length": b"%d" % len(page.DOCUMENT),
        b"content-security-policy": page.POLICY.encode(),
        b"cache-control": b"no-cache",
        b"x-content-type-options": b"nosniff",
        b"referrer-policy": b"no-referrer",
        b"vary": b"accept-encoding",
    }


def test_head_has_the_same_headers_and_no_body() -> None:
    """`HEAD` is answered like `GET`. (§0.6)"""
    got, head = ask("GET"), ask("HEAD")

    assert (head.status, list(head.headers), list(head.body)) == (200, list(got.headers), [])


def test_it_is_compressed_for_who_takes_it() -> None:
    """A client that accepts gzip gets the same document, smaller. (§0.3)"""
    answer = ask("GET", (b"accept-encoding", b"gzip"))

    assert dict(answer.headers)[b"content-encoding"] == b"gzip"
    assert gzip.decompress(b"".join(answer.body)) == page.DOCUMENT


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_can_only_be_read(method: str) -> None:
    """405 with the allowed methods. (§0.6)"""
    answer = ask(method)

    assert answer.status == 405
    assert dict(answer.headers)[b"allow"] == b"GET, HEAD"


def test_the_policy_lets_in_files_of_this_origin_and_nothing_else(elements: Elements) -> None:
    """Script and style come as files; none stands in the document; no frame, form or base."""
    assert elements.blocks == {"script": [], "style": []}
    assert directives() == {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "connect-src": ["'self'"],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
        "require-trusted-types-for": ["'script'"],
        "trusted-types": ["'none'"],
    }


def test_no_attribute_is_script_or_style_and_references_are_relative(elements: Elements) -> None:
    """The document has nothing that the policy would refuse, and a proxy may serve it under a prefix."""
    names = {name for _, name, _ in elements.attributes}
    references = [v for _, name, v in elements.attributes if name in ("src", "href", "action")]

    assert not [name for name in names if name == "style" or name.startswith("on")]
    assert all(each.startswith(("v0/", "#", "data:image/svg+xml,")) for each in references)


def test_it_is_modest() -> None:
    """The document and its files, as they travel, are smaller than a picture of them."""
    sent = [page.DOCUMENT, *(console.read_file(name, zipped=False) for name in console.FILES)]

    assert sum(len(gzip.compress(text)) for text in sent) < SENT_MAX_BYTES


LINK = (
    (b"sec-fetch-site", b"cross-site"),
    (b"sec-fetch-mode", b"navigate"),
    (b"sec-fetch-dest", b"document"),
)


def test_a_link_from_another_site_leads_to_the_page() -> None:
    """It holds no data, so following a link to it is allowed; to anything below /v0 it is not."""
    assert ask("GET", *LINK).status == 200
    assert ask("GET", *LINK, path=b"/v0/topics").status == 403


@pytest.mark.parametrize("dest", [b"iframe", b"script", b"empty", b"image"])
def test_other_sites_cannot_use_the_page(dest: bytes) -> None:
    """Neither in a frame nor as anything but a document of its own. (§0.11)"""
    headers = ((b"sec-fetch-site", b"cross-site"), (b"sec-fetch-dest", dest))

    assert ask("GET", *headers).status == 403
