"""Where the extras of the distribution come from: the one place that a release changes.

The distribution is not on an index yet, so a message names what works from a checkout.  The pages say
`pip install '.[EXTRA]'`, in the checkout, and README.md ("Extras") what that means.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = "topics-server"
IS_PUBLISHED: Final = False
"""Whether an index has it.  A release that puts it there makes this true."""

_ROOT: Final = Path(__file__).parents[1]


class MissingExtra(ModuleNotFoundError):
    """A package of an extra is not installed; the message says how it is.

    Attributes:
        reason: What Python said.
    """

    reason: str = ""


def install(extra: str) -> str:
    """What installs an extra: a command, and in which place it is typed where that matters."""
    if IS_PUBLISHED:
        return f"pip install {shlex.quote(f'{NAME}[{extra}]')}"
    if (_ROOT / "pyproject.toml").exists():
        return f"pip install -e {shlex.quote(f'{_ROOT}[{extra}]')}"
    return f"pip install '.[{extra}]' in the checkout of topics"


@contextmanager
def needs(extra: str, *, of: str) -> Iterator[None]:
    """Imports of what an extra brings.

    Args:
        of: The module that imports it, for the message.

    Raises:
        MissingExtra: A package is not installed, and it is none of ours.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "topics":
            raise
        what = f"{of} needs {install(extra)} ({error})"
        missing = MissingExtra(what, name=error.name, path=error.path)
        missing.reason = str(error)
        raise missing from None
