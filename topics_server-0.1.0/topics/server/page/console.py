"""The files of the page at `/`: its modules and its style, below `/v0/console/`.

Owns which files there are.  They are ours, as they stand in `console/`: nothing builds them.  A thread
reads and compresses each once, for whoever asks first.
"""

import gzip
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).parent / "console"
_KINDS: Final = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8"}

FILES: Final[Mapping[str, bytes]] = {
    path.name: _KINDS[path.suffix] for path in sorted(_DIRECTORY.iterdir()) if path.suffix in _KINDS
}
"""What the page fetches, with its media type."""


def file_headers(name: str) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of one of `FILES`: asked for again at each visit, so that no module meets one of another
    version."""
    return (
        (b"content-type", FILES[name]),
        (b"cache-control", b"no-cache"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )


@lru_cache(maxsize=64)
def read_file(name: str, *, zipped: bool) -> bytes:
    """The bytes of one of `FILES`.  Waits for a disk."""
    text = (_DIRECTORY / name).read_bytes()
    return gzip.compress(text, compresslevel=6) if zipped else text
