"""The table of attacks in docs/security.md names tests that exist, and every test of an attack."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def functions_of(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text()))
    return {each.name for each in found if isinstance(each, ast.FunctionDef)}


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", (ROOT / "docs/security.md").read_text())
    assert len(named) > 30
    missing = [f"{path}::{name}" for path, name in named if name not in functions_of(ROOT / path)]
    assert not missing


def test_every_attack_is_in_the_table() -> None:
    table = (ROOT / "docs/security.md").read_text()
    attacks = {
        f"tests/attacks/{path.name}::{name}"
        for path in HERE.glob("test_*.py")
        if path != Path(__file__)
        for name in functions_of(path)
        if name.startswith("test_")
    }
    assert [each for each in sorted(attacks) if f"`{each}`" not in table] == []
