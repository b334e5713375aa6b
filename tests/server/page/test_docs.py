"""The API to read and to try, at `/v0/docs` (§8.5, decision 99)."""

import gzip
import re
from pathlib import Path

import pytest

from server.http.desk import Desk, code, header
from topics.server.page import docs

GZIP = (b"accept-encoding", b"gzip")
SWAGGER = Path(docs.__file__).parent / "swagger"


@pytest.mark.parametrize("name", docs.FILES)
def test_a_file_is_served_as_it_was_published(name: str) -> None:
    """Compressed for who takes that; HEAD says how long it is."""
    desk, published = Desk(), (SWAGGER / name).read_bytes()

    plain = desk.ask("GET", f"/v0/docs/{name}")
    zipped = desk.ask("GET", f"/v0/docs/{name}", None, GZIP)
    head = desk.ask("HEAD", f"/v0/docs/{name}")

    assert b"".join(plain.body) == gzip.decompress(b"".join(zipped.body)) == published
    assert header(zipped, b"content-encoding") == b"gzip"
    assert header(plain, b"content-type") == docs.FILES[name]
    assert (head.body, header(head, b"content-length")) == ([], b"%d" % len(published))


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "..", "%2e%2e", "page.html", "x"])
def test_nothing_else_is_served(name: str) -> None:
    """Names are those of a table, never of the disk."""
    assert code(Desk().ask("GET", f"/v0/docs/{name}")) == (404, "not_found")


def test_the_page_fetches_what_is_served_and_nothing_from_elsewhere() -> None:
    """And its policy lets in nothing else."""
    answer = Desk().ask("GET", "/v0/docs")
    text = b"".join(answer.body).decode()

    fetched = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', text)

    assert {f"docs/{name}" for name in docs.FILES} | {"openapi.json"} == set(fetched)
    assert "http" not in text
    policy = header(answer, b"content-security-policy")
    assert policy is not None
    assert policy.startswith(b"default-src 'none'; script-src 'self' 'sha256-")
    assert b"http" not in policy


def test_whose_files_they_are_is_said_beside_them() -> None:
    """The licence and the version, of which the code knows. (decision 99)"""
    assert f"Swagger UI {docs.VERSION}" in (SWAGGER / "README.md").read_text()
    assert "Apache License" in (SWAGGER / "LICENSE").read_text()
    assert {path.name for path in SWAGGER.iterdir()} == {
        *docs.FILES,
        "LICENSE",
        "NOTICE",
        "README.md",
        "swagger-ui-bundle.js.LICENSE.txt",
    }


def test_a_file_that_is_gone_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """500, and the log says which; the page is the package's own."""
    docs.read_file.cache_clear()
    monkeypatch.setattr(docs, "_DIRECTORY", Path("/nonexistent"))

    assert code(Desk().ask("GET", "/v0/docs/swagger-ui.css")) == (500, "internal")
