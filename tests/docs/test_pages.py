"""Each page, as a reader follows it after the README's tour: every block of code, in its order, beside a server
of its own that has the topics of the tour."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from . import typescript
from .answers import agree
from .pages import DIRECTIVES, PAGES, ROOT, Block, blocks, commands, transcript
from .place import Place

TOOLS = Path(sys.executable).parent
RUN = ("sh", "python", "console", "ts")
DRAWN = re.compile(r"\b(?:wid|lease)_[\w-]+")
"""Names that the server draws: a reader types those that the answer before had."""
NAMED = re.compile(r"[\w/]*\btests/[\w/.]*\w")
"""A test of Python or TypeScript, or a folder of tests."""
COUNTING = ("README.md", "api.md", "backup.md", "tutorial.md", "upgrade.md")
"""Pages that show how many topics there are, or all of them: they begin with a new server."""


@pytest.fixture(scope="session")
def toured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tour(tmp_path_factory.mktemp("tour"), TOOLS)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.spark] * (page.name == "spark.md"))
        for page in PAGES
        if list(blocks(page))
    ],
)
def test_a_page_is_true(page: Path, toured: Path, tmp_path: Path) -> None:
    """What it says to type can be typed, in its order, and does what it says."""
    follow(page, tmp_path, toured, TOOLS)


def tour(folder: Path, tools: Path, clone: Path | None = None) -> Path:
    """What the tour of the README leaves in the data directory."""
    with Place(folder, tools, clone) as place:
        read(ROOT / "README.md", place)
    return folder / "topics-data"


def follow(page: Path, folder: Path, toured: Path, tools: Path, clone: Path | None = None) -> None:
    """Read a page in a folder, after the tour where it does not begin with a new server."""
    if page.name not in COUNTING:
        shutil.copytree(toured, folder / "topics-data")
    if any(map(is_module, blocks(page))):
        typescript.require_node()
    with Place(folder, tools, clone) as place:
        read(page, place)


def read(page: Path, place: Place) -> None:
    """Follow a page from its first block to its last."""
    drawn: dict[str, str] = {}
    modules = [block.code for block in blocks(page) if is_module(block)]
    told_by_modules = iter(typescript.printed(modules, place) if modules else ())
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.said("skip") is not None:
            continue
        for given in block.directives.get("given", ()):
            place.shell(given)
        name = block.said("file")
        if name is not None:
            (place.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (place.folder / name).write_text(place.here(block.code))
            continue
        printed = ""
        if block.kind == "console":
            for typed, shown in transcript(block.code):
                typed = DRAWN.sub(lambda name: drawn.get(name[0], name[0]), typed)
                told = until(place, typed, block) if block.said("until") else place.type(typed)
                drawn.update(zip(DRAWN.findall(shown), DRAWN.findall(told), strict=False))
                assert not shown or agree(shown, told), f"{where}\n$ {typed}\n{told}"
                printed += told
        elif is_module(block):
            printed = next(told_by_modules)
        elif block.kind == "python":
            printed = place.python(block.code, block.said("until"), block.said("meanwhile"))
        elif block.said("until") is not None:
            printed = "".join(until(place, command, block) for command in commands(block.code))
        else:
            printed = place.shell(block.code)
        for words in block.directives.get("prints", ()):
            assert words in printed, f"{where}\n{printed}"


def is_module(block: Block) -> bool:
    """Whether it is a part of the page's one module, which is run before the page's other blocks."""
    return block.kind == "ts" and block.said("skip") is None


def until(place: Place, command: str, block: Block) -> str:
    return place.until(command, block.said("until") or "", block.said("meanwhile"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    """None is overlooked, and the comments above a block are words that a test knows."""
    text = page.read_text()
    found = list(blocks(page))

    assert 2 * len(found) == len(re.findall(r"^ *```\w*$", text, re.M))
    assert {word for block in found for word in block.directives} <= DIRECTIVES
    assert text.count("\n<!-- ") == sum(len(v) for b in found for v in b.directives.values())
    for block in found:
        assert block.kind in RUN or {"skip", "file"} & block.directives.keys(), block.code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_block_that_is_skipped_names_tests_that_exist(page: Path) -> None:
    """Where the reason says that another test runs the block, there is such a test."""
    reasons = [why for block in blocks(page) for why in block.directives.get("skip", ())]
    named = [name for why in reasons for name in NAMED.findall(why)]

    assert [name for name in named if not (ROOT / name).exists()] == []
