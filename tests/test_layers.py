"""Who may import whom: the architecture's table, read off the sources."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import topics

ROOT = Path(topics.__file__).parent

STDLIB = set(sys.stdlib_module_names)
UNREAL = {
    "asyncio", "io", "mmap", "os", "pathlib", "random", "secrets", "selectors", "socket", "ssl",
    "subprocess", "threading", "time", "concurrent", "multiprocessing", "signal", "tempfile",
    "shutil", "urllib.request", "uuid", "logging",
}  # fmt: skip
"""What reaches a clock, a file, a socket, a thread or a random source."""

PURE = (STDLIB - UNREAL) | {"numpy", "orjson", "msgspec"}

ALLOWED: dict[str, set[str]] = {
    "protocol": PURE | {"topics.protocol"},
    "store": PURE
    | {"os", "mmap", "threading", "time", "io", "pathlib", "xxhash", "topics.store"}
    | {
        f"topics.protocol.{name}"
        for name in ("records", "events", "errors", "ports", "models", "codec")
    },
    "client": STDLIB | {"httptools", "httpx", "msgspec", "orjson", "topics.client"},
    "asgi": STDLIB
    | {"hypercorn", "h2", "hpack", "h11", "wsproto", "uvloop", "orjson"}
    | {"topics.asgi", "topics.protocol", "topics.store", "topics.settings"},
}

MAYBE: dict[str, set[str]] = {
    # Where a driver's library is spoken, and where a process is put together.
    "hypercorn": {"asgi/hardening.py", "asgi/http2.py", "asgi/connection.py", "asgi/door.py"},
    "h2": {"asgi/hardening.py", "asgi/http2.py"},
    "h11": {"asgi/hardening.py"},
    "wsproto": {"asgi/hardening.py"},
    "topics.store": {"asgi/runtime.py"},
    "topics.settings": {"asgi/runtime.py", "asgi/hosted.py"},
    "xxhash": {"store/layout.py"},
}
"""Imports that an allowed package keeps to these of its modules."""

RULES = {"tags", "dedupe", "limits"}
"""Rules of the core that stand alone: they know the vocabulary, and meet others only in what joins."""
VOCABULARY = {"names", "errors", "models", "records", "events", "ports", "codec"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Full names of all modules that a module names in an import, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield from _imported_from(node.module, [alias.name for alias in node.names])


def _imported_from(module: str, names: list[str]) -> Iterator[str]:
    """`from topics.protocol import http` names a module, `from topics.protocol.http import x` not."""
    folder = ROOT.parent / Path(*module.split("."))
    for name in names:
        is_module = (folder / f"{name}.py").exists() or (folder / name).is_dir()
        yield f"{module}.{name}" if is_module else module


def is_within(name: str, allowed: set[str]) -> bool:
    """Whether a module, or a package that it is in, is among those allowed."""
    parts = name.split(".")
    return any(".".join(parts[: i + 1]) in allowed for i in range(len(parts)))


CASES = [
    pytest.param(package, path, id=f"{package}/{path.name}")
    for package in ALLOWED
    for path in modules(package)
]


@pytest.mark.parametrize(("package", "path"), CASES)
def test_a_module_imports_what_its_package_may(package: str, path: Path) -> None:
    """The core knows no clock, file or socket; the store no HTTP; the client no server."""
    allowed = ALLOWED[package]
    named = [name for name in imports(path) if name != "topics"]  # which tells the version only
    assert [name for name in named if not is_within(name, allowed)] == []
    for name in imports(path):
        for kept, where in MAYBE.items():
            if is_within(name, {kept}) and package == next(iter(where)).split("/")[0]:
                assert path.relative_to(ROOT).as_posix() in where, name


@pytest.mark.parametrize("path", modules("protocol"), ids=lambda p: p.name)
def test_nothing_unreal_is_reached_by_a_part_of_a_module(path: Path) -> None:
    """`urllib.parse` is arithmetic, `urllib.request` is a socket; there is no other of its kind."""
    for name in imports(path):
        assert not name.startswith(("urllib.request", "http.client", "http.server")), name
        assert name.split(".")[0] not in UNREAL, name


@pytest.mark.parametrize("rule", sorted(RULES))
def test_rules_do_not_import_each_other(rule: str) -> None:
    """Two rules meet only in what joins them: topic, admission, state, engine, upkeep."""
    known = {
        name.split(".")[2]
        for name in imports(ROOT / "protocol" / f"{rule}.py")
        if name.startswith("topics.protocol.")
    }
    assert known <= VOCABULARY


@pytest.mark.parametrize("word", sorted(VOCABULARY))
def test_the_vocabulary_knows_no_rule(word: str) -> None:
    """Words are shared by all, so they depend on words alone."""
    known = {
        name.split(".")[2]
        for name in imports(ROOT / "protocol" / f"{word}.py")
        if name.startswith("topics.protocol.")
    }
    assert known <= VOCABULARY


def test_every_row_of_the_table_is_about_something() -> None:
    """A package that moved away would be allowed everything."""
    assert all(modules(package) for package in ALLOWED)
