"""Text of others on its way to a terminal, a log, or a person: what would steer the reader is spelled
out.  And URLs, without their passwords.

Owns which characters those are, for every line that this package prints or logs.  They are the controls
of ASCII and of Latin-1 (a terminal obeys U+009B as it does ESC and a bracket), the separators that some
readers take for the end of a line, the marks that reorder the text beside them (Unicode UAX 9) or are
never seen, and lone surrogates, which no encoding has.
"""

import re
from typing import Final

_SEEN: Final = "\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
_HIDDEN: Final = re.compile(f"[\x00-\x1f\x7f-\x9f{_SEEN}\ud800-\udfff\U000e0000-\U000e007f]")
_HIDDEN_IN_JSON: Final = re.compile(
    f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_SEEN}\ud800-\udfff\U000e0000-\U000e007f]"
)
_AUTHORITY: Final = re.compile(r"(?P<before>[^/?#]*//)[^/?#]*@")
_HOST: Final = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.%]*\])(:\d*)?")
_NEXT_URL: Final = re.compile(r",(?=\s*https?://)", re.IGNORECASE)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Text that stays on its line, moves no cursor and reorders nothing."""
    return text if text.isprintable() else _HIDDEN.sub(_escape, text)


def visible_json(text: str) -> str:
    """JSON of the same value that steers nothing: between tokens it has other blanks, and the strings
    have escapes."""
    return _HIDDEN_IN_JSON.sub(_escape_in_json, text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in _SHORT:
        return _SHORT[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _escape_in_json(found: re.Match[str]) -> str:
    # Outside of a string a carriage return is a blank, and within one it cannot stand.
    return " " if found[0] == "\r" else _escape(found)


def without_password(url: str) -> str:
    """A URL, or what was meant to be one, without its user name and password: for everything that is
    printed, logged, stored or handed to another program.  Of several with commas between, each.

    What cannot be parsed loses all that an `@` may have been behind: a password with a `/` in it, which
    should have been escaped, is shown as little as any other.
    """
    urls = _NEXT_URL.split(url)
    if urls[1:] and all(map(_names_host, urls)):
        return ",".join(map(without_password, urls))
    found = _AUTHORITY.match(url)
    if found is not None:
        return found["before"] + url[found.end() :]
    scheme, slashes, rest = url.partition("//")
    if not slashes:
        return url.rpartition("@")[2]
    # An @ in a path is no password's end, where what is before the path is a host and its port.
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return url if _HOST.fullmatch(host) else f"{scheme}//{rest.rpartition('@')[2]}"


def _names_host(url: str) -> bool:
    """Whether it is a whole URL, and no part of one that was cut at a comma of its password."""
    authority = re.split(r"[/?#]", url.partition("//")[2], maxsplit=1)[0]
    return _HOST.fullmatch(authority.rpartition("@")[2]) is not None
