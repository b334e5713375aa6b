"""The page at `/`: one document for people, and the headers that it goes out with.

It holds no data and needs no key: its script requests what it shows from `/v0`, with the key that
the user typed in.  The policy names the document's own script and style by their digests and lets
in nothing else, so whatever a record holds stays text, and nothing is fetched from or sent to
another host.
"""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).parent


def _assemble() -> bytes:
    """The document with its scripts inlined: one answer, and nothing else to fetch."""

    def inline(match: re.Match[bytes]) -> bytes:
        script = (_DIRECTORY / match[1].decode()).read_bytes()
        assert b"</script" not in script
        return b"<script>%b</script>" % script

    return re.sub(
        rb'<script src="(\w+\.js)"></script>', inline, (_DIRECTORY / "page.html").read_bytes()
    )


DOCUMENT: Final = _assemble()


def _digests(tag: bytes) -> str:
    """The sources of a policy that stand for the document's blocks of one tag."""
    blocks = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), DOCUMENT, re.S)
    assert blocks, tag
    return " ".join(f"'sha256-{b64encode(sha256(block).digest()).decode()}'" for block in blocks)


POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"script-src {_digests(b'script')}",
        f"style-src {_digests(b'style')}",
        "connect-src 'self'",
        "img-src data:",  # the icon, which is in the document
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Browsers that know it then refuse text as markup, wherever a script would try.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", POLICY.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
