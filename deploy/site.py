"""Which files of the repository are the site that `make docs` builds (mkdocs.yml).

Each file has the path in the site that it has in the repository, so a relative link is the same in
both.  Pages are README.md, CHANGELOG.md, CONTRIBUTING.md, docs/*.md, and those beside the code; files that they link
to are copied.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent.parent
SHOWN: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "tests/FLAKY.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "docs/images/*",
    "bench/README.md",
    "bench/plots/*",
    "deploy/Dockerfile",
    "deploy/cluster.env",
    "deploy/haproxy.cfg",
    "deploy/*.json",
    "deploy/*.service",
    "deploy/*.y*ml",
    "topics/store/FORMAT.md",
)


def on_files(files: Files, config: Any) -> Files:
    """The theme's own files, and those of the repository in place of those of one directory."""
    kept = [file for file in files if file.src_dir != config.docs_dir]
    ours = [
        File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
        for pattern in SHOWN
        for path in sorted(ROOT.glob(pattern))
    ]
    return Files([*kept, *ours])


def on_config(config: Any) -> Any:
    """Give each page that mkdocs.yml has no place for one at the end of "How to"."""
    named = set(_pages(config.nav))
    (how_to,) = (section["How to"] for section in config.nav if "How to" in section)
    for path in sorted((ROOT / "docs").glob("*.md")):
        if f"docs/{path.name}" not in named:
            how_to.append({path.read_text().splitlines()[0].lstrip("# "): f"docs/{path.name}"})
    return config


def _pages(nav: Any) -> Iterator[str]:
    for value in nav.values() if isinstance(nav, dict) else nav:
        if isinstance(value, str):
            yield value
        else:
            yield from _pages(value)
