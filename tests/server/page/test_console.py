"""The files of the page at `/`: what is served below `/v0/console/`, and what stands in them."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from server.http.desk import Desk, code, header
from topics.server.page import console, page
from topics.visible import visible

GZIP = (b"accept-encoding", b"gzip")
FILES = Path(console.__file__).parent / "console"
TEXTS = {path.name: path.read_text() for path in sorted(FILES.iterdir())}
MODULES = {name: text for name, text in TEXTS.items() if name.endswith(".js")}


def test_every_file_of_the_folder_is_served() -> None:
    """Modules and styles, and nothing else lies there."""
    assert set(console.FILES) == set(TEXTS)
    assert "main.js" in console.FILES


@pytest.mark.parametrize("name", console.FILES)
def test_a_file_is_served_as_it_stands(name: str) -> None:
    """Compressed for who takes that, revalidated each time, as what it is and nothing else."""
    desk = Desk()

    plain = desk.ask("GET", f"/v0/console/{name}")
    zipped = desk.ask("GET", f"/v0/console/{name}", None, GZIP)

    assert b"".join(plain.body) == gzip.decompress(b"".join(zipped.body)) == TEXTS[name].encode()
    assert header(plain, b"content-type") == console.FILES[name]
    assert header(plain, b"cache-control") == b"no-cache"
    assert header(plain, b"x-content-type-options") == b"nosniff"


@pytest.mark.parametrize("name", ["page.html", "..", "%2e%2e", "console.py", "x"])
def test_nothing_else_is_served(name: str) -> None:
    """Names are those of a table, never of the disk."""
    assert code(Desk().ask("GET", f"/v0/console/{name}")) == (404, "not_found")


def test_the_page_and_its_modules_name_files_that_are_there() -> None:
    """Every `src`, `href` and `import` leads to a file that is served, and each file is named."""
    named = set(re.findall(rb'(?:src|href)="v0/console/([\w.]+)"', page.DOCUMENT))
    imported = {
        name for text in MODULES.values() for name in re.findall(r'from "\./([\w.]+)"', text)
    }

    assert {name.decode() for name in named} | imported == set(console.FILES)


@pytest.mark.parametrize("name", MODULES)
def test_text_never_becomes_markup(name: str) -> None:
    """Data of the server is inserted as text; no key is put into an address, or stored but for the tab."""
    text = MODULES[name]

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", text
    )
    assert not re.search(r"localStorage|cookie =|token=", text)
    assert "sessionStorage" not in text or name == "api.js"


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    """No address of another host but the name of SVG, which is not fetched."""
    text = TEXTS[name]

    assert set(re.findall(r"(?:https?:|wss?:)//[\w.]+[^\s'\"]*", text)) <= {
        "http://www.w3.org/2000/svg"
    }
    assert not re.search(r"@import|(?<!c)url\(|import\(|importScripts", text)


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_is_one_noun(name: str) -> None:
    """Small files, each of which says what it is first."""
    lines = TEXTS[name].splitlines()

    assert len(lines) < 300
    assert name == "console.css" or lines[0].startswith(("// ", "/* "))


@pytest.mark.parametrize("name", MODULES)
def test_text_of_others_goes_one_way(name: str) -> None:
    """`make`, `set` and `svg` spell out what would turn the order of letters; no other line of a
    module puts text that is not its own into the page."""
    text = MODULES[name]
    if name == "dom.js":
        return

    assert not re.search(r"textContent\s*=[^=]|innerText|createTextNode|nodeValue", text)
    for found in re.finditer(r"\.title = (.*)", text):
        assert "visible(" in found[1], found[0]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_the_page_spells_out_what_the_command_line_does() -> None:
    """The same table of characters, but for line ends and tabs, which lay records out."""
    program = f"""
        globalThis.document = {{ getElementById: () => null }};
        const {{ visible }} = await import({str(FILES / "dom.js")!r});
        const hidden = [];
        for (let code = 0; code < 0x110000; code++) {{
            const char = String.fromCodePoint(code);
            if (visible(char) !== char) hidden.push([code, visible(char)]);
        }}
        console.log(JSON.stringify(hidden));
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program], capture_output=True, text=True, check=True
    )
    everything = ((code, visible(chr(code))) for code in range(0x110000))
    hidden = [[code, shown] for code, shown in everything if shown != chr(code)]

    assert json.loads(done.stdout) == [each for each in hidden if chr(each[0]) not in "\n\t"]
