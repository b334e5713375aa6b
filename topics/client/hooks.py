"""Functions of a program that a client calls when something happens: `on_retry`, `on_error`, `connection`.

Owns one question, which is asked before the first call: whether calling the function does anything.
"""

from collections.abc import Callable
from typing import Any


def require_hook(name: str, hook: Callable[..., Any] | None) -> None:
    """
    Args:
        name: The option that has the hook, for the message.

    Raises:
        TypeError: It is a coroutine function.  Nothing would await what it returns.
    """
    if hook is None:
        return
    from inspect import iscoroutinefunction

    call = getattr(hook, "__call__", None)  # noqa: B004
    if iscoroutinefunction(hook) or iscoroutinefunction(call):
        raise TypeError(
            f"{name}= is called and not awaited, so an `async def` would do nothing: give a function, "
            "which may start a task (asyncio.create_task)"
        )
