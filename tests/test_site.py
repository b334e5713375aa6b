"""The documentation as a site: `make docs` builds it, and it needs nothing from elsewhere."""

import html.parser
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
FETCHED: Final = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
"""What a browser loads by itself: tag, and the attribute that says from where."""


class Loads(html.parser.HTMLParser):
    """Addresses that a page has a browser load, and the targets of its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if address := found.get(FETCHED.get(tag, "")):
            self.loaded.append(address)
        if tag == "a" and (address := found.get("href")):
            self.linked.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does it: a broken link or a page without a place fails."""
    pytest.importorskip("material", reason="mkdocs-material is not installed; `make docs` does it")
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(built)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return built


def pages(site: Path) -> dict[str, Loads]:
    """What each page loads and links to, by its path in the site."""
    found = {p.relative_to(site).as_posix(): Loads(p.read_text()) for p in site.rglob("*.html")}
    assert len(found) > 25
    return found


def test_every_page_of_the_readme_is_one_of_the_site(site: Path) -> None:
    """Its table of documentation is complete there."""
    table = (ROOT / "README.md").read_text().partition("## Documentation")[2]
    named = re.findall(r"^\| \[[^]]*\]\(([^)]*)\.md\)", table, re.M)

    assert len(named) > 20
    missing = [page for page in named if not (site / page.replace("README", "index")).with_suffix(".html").is_file()]  # fmt: skip
    assert missing == []


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    """No font, script, image or frame of another origin; each file that is named is there."""
    for path, page in pages(site).items():
        if path == "404.html":
            continue  # served for any path, so its addresses begin at the root
        assert page.loaded
        files = [(site / path).parent / each.partition("?")[0] for each in page.loaded]
        assert [str(file) for file in files if not file.is_file()] == [], path


def test_the_style_sheets_load_nothing_from_elsewhere(site: Path) -> None:
    """Nor does what a style sheet names."""
    sheets = [p.read_text() for p in site.rglob("*.css")]

    assert len(sheets) >= 2
    for sheet in sheets:
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", sheet) == []


def test_the_plots_are_shown(site: Path) -> None:
    """The plots of `bench/` are pictures in the page on sizing."""
    shown = [each for each in pages(site)["docs/sizing.html"].loaded if each.endswith(".svg")]

    assert "../bench/plots/records.svg" in shown
    assert len(shown) == 4


def test_links_between_pages_stay_in_the_site(site: Path) -> None:
    """A link to a file of the repository, written for a forge, leads to its page here."""
    linked = pages(site)["index.html"].linked

    assert "docs/tutorial.html" in linked
    assert "bench/index.html" in linked
    assert [each for each in linked if each.endswith(".md")] == []
