"""Extras: what installs them, said in one place."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from topics import distribution
from topics.distribution import MissingExtra, install, needs

ROOT = Path(__file__).parents[1]


def test_a_checkout_is_installed_from_its_directory() -> None:
    """From wherever the command is typed; an editable install stays one."""
    assert install("spark") == f"pip install -e '{ROOT}[spark]'"


def test_a_wheel_that_was_built_of_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the checkout is, it does not know."""
    monkeypatch.setattr(distribution, "_ROOT", tmp_path)

    assert install("server") == "pip install '.[server]' in the checkout of topics"


def test_a_release_changes_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on the index has it."""
    monkeypatch.setattr(distribution, "IS_PUBLISHED", True)

    assert install("server") == "pip install 'topics-server[server]'"


def test_what_is_missing_names_the_extra() -> None:
    """A package of an extra; a module of ours that is not there is a bug, and stays one."""
    with (
        pytest.raises(MissingExtra, match=r"x needs pip .*\[server\].*'none_such'"),
        needs("server", of="x"),
    ):
        importlib.import_module("none_such")
    with (
        pytest.raises(ModuleNotFoundError, match=r"^No module named 'topics.none"),
        needs("server", of="x"),
    ):
        importlib.import_module("topics.none_such")


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize(
    ("absent", "code", "extra"),
    [
        ("numpy", "import topics.testing", "server"),
        ("orjson", "import asyncio, topics.asgi; asyncio.run(topics.asgi.app({}, None, None))", "server"),
        ("pyarrow", "import topics.arrow", "export"),
        ("pyarrow", "from topics.export import dataset", "export"),
        ("pyspark", "from topics.spark import session; session()", "spark"),
    ],
)  # fmt: skip
def test_a_module_of_an_extra_says_which(absent: str, code: str, extra: str) -> None:
    """Whoever imports it without the extra reads what to install, in the last line."""
    program = WITHOUT.format(absent={absent}) + code
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert install(extra) in done.stderr.splitlines()[-1], done.stderr


def test_no_page_names_what_is_not_published() -> None:
    """Pages and messages say `.[extra]`, which works in a checkout; README.md says what that is."""
    readme = (ROOT / "README.md").read_text()
    texts = [*ROOT.glob("docs/*.md"), ROOT / "README.md", *ROOT.glob("topics/**/*.py")]

    assert "### Extras" in readme
    assert distribution.IS_PUBLISHED or "on no\nindex yet" in readme
    for path in texts:
        if path.name != "distribution.py":
            assert not re.search(r"topics-server\[", path.read_text()), path
