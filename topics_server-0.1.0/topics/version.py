"""The version, for those parts that do not know the package's face."""

from typing import Final

VERSION: Final = "0.1.0"
