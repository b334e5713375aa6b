"""The pages of the documentation as what a reader does: blocks of code, in their order.

A block is run as it stands. What a test must know beside it stands right above it on the page, in
comments that no reader sees, each a line:

    <!-- skip: WHY -->        it is not run
    <!-- file: NAME -->       it is the content of a file, which is written
    <!-- given: COMMAND -->   what a reader has or has done, in `bash`
    <!-- prints: WORDS -->    the output has these words
    <!-- until: WORDS -->     each of its commands goes on until it has printed them, then comes ^C
    <!-- meanwhile: COMMAND --> what is done again and again until then

A block of a kind that is not code has `skip` or `file`. Those in TypeScript are one module (`typescript`).
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
DIRECTIVES: Final = frozenset({"skip", "file", "given", "prints", "until", "meanwhile"})

_BLOCK: Final = re.compile(r"((?:^<!-- .*? -->\n)*)^```(\w*)\n(.*?)^```$", re.M | re.DOTALL)
_DIRECTIVE: Final = re.compile(r"^<!-- (\w+): (.*?) -->$", re.M)


@dataclass(frozen=True, slots=True)
class Block:
    """One block.

    Attributes:
        kind: What is written behind the three backticks; empty where nothing is.
        line: Of its page, from 1, where its code begins.
        directives: What stands above it, by its word.
    """

    kind: str
    code: str
    line: int
    directives: dict[str, list[str]] = field(default_factory=dict)

    def said(self, word: str) -> str | None:
        """What the first directive of that word says."""
        return next(iter(self.directives.get(word, [])), None)


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        directives: dict[str, list[str]] = {}
        for word, said in _DIRECTIVE.findall(found[1]):
            directives.setdefault(word, []).append(said)
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(found[2], found[3], line, directives)


def find(page: str, begins: str) -> Block:
    """The one block of a page of docs/ that begins so."""
    (found,) = [b for b in blocks(ROOT / "docs" / page) if b.code.startswith(begins)]
    return found


def commands(code: str) -> Iterator[str]:
    """The commands of a script, each whole."""
    command = ""
    for line in code.splitlines():
        command = f"{command}\n{line}" if command else line
        if is_whole(command):
            if command.strip() and not command.lstrip().startswith("#"):
                yield command
            command = ""
    assert not command, command


def is_whole(command: str) -> bool:
    """Whether a shell asks for no further line."""
    if command.endswith("\\"):
        return False
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def transcript(code: str) -> Iterator[tuple[str, str]]:
    """(what is typed, what is shown) of each command of a `console` block."""
    for step in re.split(r"^\$ ", code, flags=re.M)[1:]:
        lines = step.splitlines()
        typed = lines.pop(0)
        while lines and (lines[0].startswith("> ") or not is_whole(typed)):
            typed += "\n" + lines.pop(0).removeprefix("> ")
        yield typed, "\n".join(lines).strip("\n")
