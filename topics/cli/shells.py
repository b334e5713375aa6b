"""What bash, zsh and fish ask while a line is typed, and what they are answered.

Owns the step from the words of a line to candidates and back.  A candidate may be a name that a server
made up.  So bash, which puts it into the line as it comes, gets it quoted; zsh and fish quote by
themselves; and none gets a candidate with a character that cannot be seen.  bash also takes a line apart
at `:` and `=`, which names and options have: here the whole line is read, and bash gets the rest of the
word that it asked for.
"""

import os
import re
from typing import Any, ClassVar, Final

import click
import msgspec
from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

_BASH: Final = """\
%(complete_func)s() {
    local response type value
    COMPREPLY=()
    response=$(_TOPICS_LINE="${COMP_LINE:0:COMP_POINT}" _TOPICS_WORD="$2" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null) || return 0
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$response"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_SAFE: Final = re.compile(r"[\w@%+:=,./-]", re.ASCII)
"""What bash takes for itself outside of quotes, in any place of a word but its beginning."""
_BLANKS: Final = " \t\n"
_ENDS: Final = frozenset("|&;()")
"""What ends a command."""


class Word(msgspec.Struct):
    """A word of a line.

    Attributes:
        value: Without its quotes.
        start: Where it begins in the line.
        is_target: It stands behind `<` or `>`.
    """

    value: str
    start: int
    is_target: bool = False


def split(line: str) -> tuple[list[Word], str]:
    """The words of the last command of a line, as bash takes it apart; and the quote that is open at
    its end, if one is.  The last word is the one that is being typed, which may be empty."""
    words: list[Word] = []
    word: Word | None = None
    quote, at, is_target = "", 0, False
    while at < len(line):
        char = line[at]
        if quote:
            if char == quote:
                quote = ""
            elif char == "\\" and quote == '"' and line[at + 1 : at + 2] in ("$", "`", '"', "\\"):
                at += 1
                word = _add(word, line[at], at)
            else:
                word = _add(word, char, at)
        elif char in _BLANKS or char in _ENDS or char in "<>":
            if word is not None:
                words.append(word)
            word = None
            if char in _ENDS:
                words.clear()
            is_target = char in "<>" or (is_target and char in _BLANKS)
        else:
            if word is None:
                word = Word("", at, is_target)
                is_target = False
            if char in "'\"":
                quote = char
            else:
                if char == "\\":
                    at += 1
                word = _add(word, line[at : at + 1], at)
        at += 1
    return [*words, word or Word("", len(line), is_target)], quote


def _add(word: Word | None, char: str, at: int) -> Word:
    found = word or Word("", at)
    found.value += char
    return found


def quoted(text: str, quote: str) -> str | None:
    """Text as it may go on in a line of bash, behind this open quote; None where it cannot."""
    if quote == "'":
        return text.replace("'", "'\\''")
    if quote == '"':
        # Within these quotes, history has no escape.
        return None if "!" in text else re.sub(r'[$`"\\]', r"\\\g<0>", text)
    return "".join(char if _SAFE.fullmatch(char) or char > "\x7f" else "\\" + char for char in text)


class Whole(ShellComplete):
    """Candidates are whole words, with the option before `=`, and can be seen."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        option, equals, _ = incomplete.partition("=")
        before = option + equals if equals and option.startswith("-") else ""
        found = []
        for item in super().get_completions(args, incomplete):
            if item.type == "plain" and not str(item.value).startswith(before):
                item.value = before + str(item.value)
            if str(item.value).isprintable():
                found.append(item)
        return found


class Bash(Whole):
    """bash 4.4 and later."""

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def complete(self) -> str:
        line, asked = os.environ["_TOPICS_LINE"], os.environ["_TOPICS_WORD"]
        words, _ = split(line)
        while len(words) > 1 and re.match(r"\w+\+?=", words[0].value):
            del words[0]  # an assignment before the command
        if len(words) < 2 or any(word.is_target for word in words[-1:]):
            return ""
        # What bash leaves as it is of the word, up to a `:` or `=` outside of quotes.
        kept = line[words[-1].start : len(line) - len(asked) if line.endswith(asked) else len(line)]
        [*_, begun], quote = split(kept)
        args = [word.value for word in words[1:-1] if not word.is_target]
        lines = []
        for item in self.get_completions(args, words[-1].value):
            if item.type != "plain":
                lines.append(f"{item.type},")
            elif item.value.startswith(begun.value):
                rest = quoted(item.value[len(begun.value) :], quote)
                if rest is not None:
                    lines.append(f"plain,{rest}")
        return "\n".join(lines)


class Zsh(Whole, ZshComplete):
    """zsh quotes what it inserts."""


class Fish(Whole, FishComplete):
    """fish quotes what it inserts."""


SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


def register() -> None:
    """Have click answer these shells so."""
    for kind in SHELLS.values():
        add_completion_class(kind)


def script(command: click.Command, shell: str) -> str:
    """What a shell sources."""
    return SHELLS[shell](command, {}, "topics", "_TOPICS_COMPLETE").source()
