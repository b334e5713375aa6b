"""The page at `/`: one document for people, and the headers that it goes out with.

It holds no data and needs no key: its modules (`console`) request what they show from `/v0`, with the
key that the user typed in.  The policy lets in files of this origin and nothing else, neither a script
nor a style that stands in the document, so whatever a record holds stays text, and nothing is fetched
from or sent to another host.
"""

from pathlib import Path
from typing import Final

DOCUMENT: Final = (Path(__file__).parent / "page.html").read_bytes()

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
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
