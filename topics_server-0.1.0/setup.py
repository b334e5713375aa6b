"""What `pyproject.toml` cannot say: the readme, with links that work outside the repository."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def readme() -> str:
    """README.md; where a link is relative, it leads to the source on the web."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    text = (HERE / "README.md").read_text()
    return re.sub(r"\]\((?!https?:|#)", f"]({project['urls']['Source']}", text)


setup(long_description=readme(), long_description_content_type="text/markdown")
