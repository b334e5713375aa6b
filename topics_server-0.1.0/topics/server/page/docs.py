"""The API to read and to try, at `/v0/docs`: Swagger UI over `/v0/openapi.json`.

Everything comes from this origin.  Swagger UI is another project's, in `swagger/` with its licence and
version, unchanged.  Its files are megabytes: a thread reads and compresses them, once, for whoever asks
first.
"""

import gzip
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).parent

VERSION: Final = "5.35.0"
"""Of Swagger UI."""

FILES: Final[Mapping[str, bytes]] = {
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
    "swagger-ui.css": b"text/css; charset=utf-8",
}
"""What the page fetches below `/v0/docs/`, with its media type."""

DOCUMENT: Final = (_DIRECTORY / "docs.html").read_bytes()


def _script() -> str:
    """The source of a policy that stands for the document's own script."""
    (block,) = re.findall(rb"<script>(.*?)</script>", DOCUMENT, re.S)
    return f"'sha256-{b64encode(sha256(block).digest()).decode()}'"


POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"script-src 'self' {_script()}",
        "style-src 'self' 'unsafe-inline'",  # Swagger UI sets style attributes
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", POLICY.encode()),
    (b"cache-control", b"no-cache"),
    *_ALWAYS,
)


def file_headers(name: str) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of one of `FILES`."""
    return ((b"content-type", FILES[name]), (b"cache-control", b"max-age=3600"), *_ALWAYS)


@lru_cache(maxsize=2 * len(FILES))
def read_file(name: str, *, zipped: bool) -> bytes:
    """The bytes of one of `FILES`.  Waits for a disk."""
    text = (_DIRECTORY / "swagger" / name).read_bytes()
    return gzip.compress(text, compresslevel=6) if zipped else text
