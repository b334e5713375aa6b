"""Files that declare topics, routers and schedules: YAML or JSON, as nodes that know their line.

Owns the step from bytes to nodes; what the nodes mean is in `apply_fields`.  YAML is read by the core
schema of YAML 1.2: `on`, `12:30` and `2027-03-01` are texts there, and a name is a text however it is
spelled.  Tags, merge keys and a key that is given twice are refused.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final

from topics.cli.exits import UNUSABLE, Stop

SUFFIXES: Final = (".json", ".yaml", ".yml")
"""Of the files of a directory that are read."""
NODES_MAX: Final = 1_000_000
"""In one file, with all that aliases repeat."""
DEPTH_MAX: Final = 100
_TAGS: Final = "tag:yaml.org,2002:"
CORE: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)
"""Scalars of the core schema that are no texts: kind, spelling, first characters (YAML 1.2, §10.3.2).
The infinities and NaN are refused: JSON has no form for them."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a file.

    Attributes:
        value: A scalar, a dict of nodes by name, or a list of nodes.
        line: From 1; None in JSON, whose reader does not say.
    """

    value: Any
    line: int | None = None

    @property
    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: each.plain for name, each in self.value.items()}
        if isinstance(self.value, list):
            return [each.plain for each in self.value]
        return self.value


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file, and the file's name as it was given."""

    file: str
    root: Node


def read_documents(paths: tuple[str, ...]) -> list[Document]:
    """The documents of files, of the files of directories in the order of their names, and of
    standard input (`-`).

    Raises:
        Stop: A file cannot be read, or is neither YAML nor JSON; says where.
    """
    found = [document for path in paths for file in _files(path) for document in _read(file)]
    if not found:
        raise Stop(f"{', '.join(paths)}: nothing is declared", UNUSABLE)  # a pipe that broke, maybe
    return found


def _files(path: str) -> list[str]:
    if path == "-" or not os.path.isdir(path):
        return [path]
    found = sorted(each for each in os.listdir(path) if each.endswith(SUFFIXES))
    if not found:
        raise Stop(f"{path} has no file that ends in {', '.join(SUFFIXES)}", UNUSABLE)
    return [os.path.join(path, each) for each in found]


def _read(file: str) -> Iterator[Document]:
    name = "standard input" if file == "-" else file
    try:
        text = _content(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Stop(f"{name} is not UTF-8 (byte {error.start})", UNUSABLE) from None
    is_json = file.endswith(".json") or (file == "-" and text.lstrip().startswith("{"))
    for root in _of_json(name, text) if is_json else _of_yaml(name, text):
        if root.value is not None:  # an empty document
            yield Document(name, root)


def _content(file: str) -> bytes:
    if file == "-":
        if sys.stdin is None:
            raise Stop("standard input is closed", UNUSABLE)
        return sys.stdin.buffer.read()
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise Stop(f"{file}: {error.strerror or error}", UNUSABLE) from None


# ---------------------------------------------------------------------- JSON


def _of_json(name: str, text: str) -> list[Node]:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            names = [key for key, _ in found]
            twice = next(key for key in names if names.count(key) > 1)
            raise Stop(f"{name}: {twice!r} is given twice in one object", UNUSABLE)
        return made

    def refuse(number: str) -> Any:
        raise Stop(f"{name}: {number} is no number of JSON", UNUSABLE)

    try:
        return [_noded(json.loads(text, object_pairs_hook=pairs, parse_constant=refuse))]
    except json.JSONDecodeError as error:
        what = f"{name}:{error.lineno}: no JSON, {error.msg} at column {error.colno}"
        raise Stop(what, UNUSABLE) from None
    except RecursionError:
        raise Stop(f"{name} is nested too deeply", UNUSABLE) from None


def _noded(value: Any) -> Node:
    if isinstance(value, dict):
        return Node({name: _noded(each) for name, each in value.items()})
    if isinstance(value, list):
        return Node([_noded(each) for each in value])
    return Node(value)


# ---------------------------------------------------------------------- YAML


def _of_yaml(name: str, text: str) -> list[Node]:
    yaml = _library()
    try:
        reader = _Reader(name)
        return [reader.read(root) for root in yaml.compose_all(text, _loader()) if root is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        what = error.problem or error.context or "it cannot be read"
        raise Stop(f"{where}: no YAML, {what}", UNUSABLE) from None
    except yaml.YAMLError as error:
        raise Stop(f"{name}: no YAML, {' '.join(str(error).split())}", UNUSABLE) from None
    except RecursionError:
        raise Stop(f"{name} is nested too deeply", UNUSABLE) from None


def _library() -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise Stop("YAML needs the package PyYAML; JSON is read without it", UNUSABLE) from None
    return yaml


@cache
def _loader() -> Any:
    import re

    yaml = _library()

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    for kind, spelling, first in CORE:
        pattern = re.compile(f"^(?:{spelling})$")
        Loader.add_implicit_resolver(_TAGS + kind, pattern, first)
    return Loader


class _Reader:
    """The nodes of one file, from those of the library."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0

    def read(self, node: Any, depth: int = 0) -> Node:
        line = node.start_mark.line + 1
        self._count += 1
        # An alias of what it is in goes on without an end; aliases of aliases grow as fast.
        if depth > DEPTH_MAX or self._count > NODES_MAX:
            raise Stop(f"{self._name}:{line}: nested too deeply, or too large", UNUSABLE)
        kind = node.tag.removeprefix(_TAGS)
        if kind == "map" and isinstance(node.value, list):
            return Node(self._mapping(node, depth), line)
        if kind == "seq":
            return Node([self.read(each, depth + 1) for each in node.value], line)
        if kind not in ("null", "bool", "int", "float", "str"):
            raise Stop(f"{self._name}:{line}: the tag {node.tag} is not supported", UNUSABLE)
        return Node(self._scalar(kind, node.value, line), line)

    def _mapping(self, node: Any, depth: int) -> dict[str, Node]:
        made: dict[str, Node] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key.value, str):
                raise Stop(f"{self._name}:{line}: a name has to be a text", UNUSABLE)
            if key.value in made:
                raise Stop(f"{self._name}:{line}: {key.value!r} is given twice", UNUSABLE)
            if key.value == "<<" and not key.style:
                raise Stop(f"{self._name}:{line}: merge keys (<<) are not supported", UNUSABLE)
            found = self.read(value, depth + 1)
            made[key.value] = Node(found.value, line)  # where a person looks for it
        return made

    def _scalar(self, kind: str, text: str, line: int) -> Any:
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return text.lower() == "true"
            if kind == "int":
                return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            if kind == "float":
                return _finite(text)
        except ValueError:
            what = "number of JSON" if kind == "float" else kind
            raise Stop(f"{self._name}:{line}: {text!r} is no {what}", UNUSABLE) from None
        return text


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return number


# ---------------------------------------------------------------------- writing


def written(document: dict[str, Any], *, as_json: bool, is_ascii: bool) -> str:
    """A document as text that `read_documents` reads as it was.

    Args:
        is_ascii: Every other character is escaped, as for a terminal.
    """
    if as_json:
        return json.dumps(document, indent=2, ensure_ascii=is_ascii) + "\n"
    yaml = _library()
    options = {"sort_keys": False, "allow_unicode": not is_ascii, "width": 100}
    return str(yaml.dump(document, Dumper=_dumper(), **options))


@cache
def _dumper() -> Any:
    import re

    yaml = _library()

    # A text that either version of YAML reads as something else gets quotes.
    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    for kind, spelling, first in CORE:
        Dumper.add_implicit_resolver(_TAGS + kind, re.compile(f"^(?:{spelling})$"), first)
    return Dumper
