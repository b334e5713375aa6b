"""The settings that a server process reads, whichever HTTP server runs in it.

Knows nothing of where they come from, nor of the rules for their values.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class ProcessSettings(Protocol):
    """What a process needs for its socket, its log and its data."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def port_file(self) -> Path | None: ...
    @property
    def data_dir(self) -> Path: ...
    @property
    def log_format(self) -> str: ...
    @property
    def api_keys(self) -> str | None: ...
    @property
    def api_keys_file(self) -> Path | None: ...
    @property
    def notes(self) -> Sequence[str]: ...
