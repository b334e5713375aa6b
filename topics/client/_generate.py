"""Writes the blocking modules of the client from the asynchronous ones: `make generate`.

A generated module is its source without `async` and `await`, with the names of `NAMES` and the
phrases of `MODULES` replaced.  So a call, its options and its documentation stand once, in the
asynchronous module, and the blocking one cannot differ by accident.  tests/client/test_generate.py
fails where a module in the repository is not what its source generates.

Pools, producers and workers are not generated.  Their two versions differ in more than these words:
the blocking ones hold locks, meet forks and wait on sockets, the others share one event loop and
are cancelled.  A source for both would hold locks that the loop does not need, or lack those that
threads do.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

HERE: Final = Path(__file__).parent
HEADER: Final = (
    "# Generated from {} by topics/client/_generate.py; do not edit, run `make generate`.\n"
)
ASYNC_ONLY: Final = "# async only"
"""At the end of a statement's first line: the statement has no blocking form and is left out."""

NAMES: Final[Mapping[str, str]] = {
    "StopAsyncIteration": "StopIteration",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aiter": "iter",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
}
"""Names and their blocking form.  Of others, a leading `Async` goes, and the `aio` of a module."""

WRAPPERS: Final = {"Awaitable": 0, "Coroutine": 2}
"""Types that only an asynchronous call gives, by the arguments that stand before its result."""

Phrases: TypeAlias = Mapping[str, str]

MODULES: Final[Mapping[str, Phrases]] = {
    "aio.py": {
        "the API as awaited calls.\n\n`Client` in `sync.py` is generated from this module.": (
            "the API as blocking calls."
        ),
        "for one event loop at a time and any number of its tasks": "for any number of threads",
        "`httpx.MockTransport(handler)`, or\n"
        "            `httpx.ASGITransport(app)` to call an application without a socket.": (
            "`httpx.MockTransport(handler)`."
        ),
        "    # A method with options is a plain function that returns a coroutine.  So a mistyped\n"
        "    # option is raised by the call, as for any function, and not where it is\n"
        "    # awaited.\n\n": "",
        "\n        The values come from an iterable or an asynchronous iterable.": "",
        "Iterable[Any] | AsyncIterable[Any]": "Iterable[Any]",
        "_each(values)": "values",
        "an `AsyncSent`; awaited, it is the record's": "a `Sent`, whose `result()` is the record's",
        "asyncio.sleep": "time.sleep",
        "import asyncio": "import time",
    },
    "aiopool_httpx.py": {
        "with faults_of(httpx.RequestError):\n"
        "            async with self._http.stream(**self._arguments(call, prepared)) as response:\n"
        "                yield response": (
            "with (\n"
            "            faults_of(httpx.RequestError),\n"
            "            self._http.stream(**self._arguments(call, prepared)) as response,\n"
            "        ):\n"
            "            yield response"
        ),
    },
    "aiocounters.py": {},
    "aiofailover.py": {},
    "aiogroups.py": {},
    "aiojobs.py": {},
    "aioqueues.py": {},
    "aiorouters.py": {},
    "aioschedules.py": {},
    "aiosession.py": {},
    "aiotable.py": {", for one task": ", for one thread"},
    "aiowatch.py": {
        "; for one task": "; for one thread",
        "  A wait that is cancelled, say by `asyncio.timeout`, costs the\n"
        "    connection and no item.": "",
    },
}
"""The sources, each with the phrases that the rules for words do not reach."""


def target_of(source: str) -> str:
    """The name of the module that a source generates."""
    return "sync.py" if source == "aio.py" else source.removeprefix("aio")


def generate(source: str) -> str:
    """The text of the blocking module.

    Raises:
        ValueError: A phrase of the table is not in the source.
        CalledProcessError: ruff does not accept what was generated.
    """
    text = _without_async_only((HERE / source).read_text())
    for phrase, blocking in MODULES[source].items():
        if phrase not in text:
            raise ValueError(f"{source} does not contain {phrase!r}")
        text = text.replace(phrase, blocking)
    text = _without_words(_without_wrappers(text))
    return _tidied(HEADER.format(source) + text, target_of(source))


def _without_async_only(text: str) -> str:
    lines = text.splitlines(keepends=True)
    dropped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and lines[node.lineno - 1].rstrip().endswith(ASYNC_ONLY):
            dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return "".join(line for number, line in enumerate(lines, 1) if number not in dropped)


def _without_wrappers(text: str) -> str:
    """The text with the result in place of each `Awaitable[result]` and its like."""
    while (found := next(_wrapped(text), None)) is not None:
        (first, last), inner = found
        text = text[:first] + inner + text[last:]
    return text


def _wrapped(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Where a wrapper begins and ends, and the result in it."""
    lines = text.splitlines(keepends=True)

    def offset(line: int, column_bytes: int) -> int:
        column = len(lines[line - 1].encode()[:column_bytes].decode())
        return sum(map(len, lines[: line - 1])) + column

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            place = WRAPPERS.get(node.value.id)
            if place is not None:
                inner = node.slice.elts[place] if isinstance(node.slice, ast.Tuple) else node.slice
                assert node.end_lineno is not None
                assert node.end_col_offset is not None
                first = offset(node.lineno, node.col_offset)
                last = offset(node.end_lineno, node.end_col_offset)
                yield (first, last), ast.get_source_segment(text, inner) or ""


_WORDS: Final = re.compile(rf"\b({'|'.join(NAMES)})\b")


def _without_words(text: str) -> str:
    """The text without `async` and `await`, and with the names' blocking form."""
    text = re.sub(r"\basync (?=def |with |for |with`|for`)", "", text)
    text = re.sub(r"\bawait ", "", text)
    text = re.sub(r"\b([Aa])n (`?)Async(?=[A-Z])", r"\1 \2", text)
    text = re.sub(r"\b(Async(?=[A-Z])|aio(?=[a-z]))", "", text)
    return _WORDS.sub(lambda word: NAMES[word[0]], text)


def _tidied(text: str, name: str) -> str:
    """The text as ruff formats it, with its imports sorted and the unused ones removed."""
    rules = ["check", "--quiet", "--fix", "--unsafe-fixes", "--select=I,F401,UP028"]
    for command in (rules, ["format", "--quiet"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, f"--stdin-filename={HERE / name}", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def main() -> None:
    for source in MODULES:
        (HERE / target_of(source)).write_text(generate(source))


if __name__ == "__main__":
    main()
