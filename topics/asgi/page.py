"""The page at `/`: one document for people, and the headers that it goes out with.

It holds no data and asks for no key: what it shows, its script asks from `/v0` with the key that was
typed in.  The policy names the document's own script and style by their digests and lets in nothing
else, so whatever a record holds stays text, and nothing is fetched from or sent to another host.
"""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Final

DOCUMENT: Final = Path(__file__).with_name("page.html").read_bytes()


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
