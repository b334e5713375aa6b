"""What the annotation of a handler says of the jobs that it takes: `def resize(job: HeldJob[Image])`.

Owns nothing but the question.  A handler without an annotation, or one whose annotation names no type of
data, takes jobs whose data are Python values.
"""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

from topics.client.held_job import BaseHeldJob
from topics.client.models import Job


def job_type_of(handler: Callable[..., Any]) -> type[Job[Any]]:
    """`Job[T]` for a handler whose first parameter is annotated `HeldJob[T]`, `AsyncHeldJob[T]` or `Job[T]`.

    Raises:
        TypeError: The annotation is a text, and a name in it is not defined.
    """
    noted = _annotation(handler)
    origin, args = get_origin(noted), get_args(noted)
    is_job = isinstance(origin, type) and issubclass(origin, BaseHeldJob | Job)
    if not is_job or args[0] is Any or isinstance(args[0], TypeVar):
        return Job
    kind: Any = Job
    return kind[args[0]]  # type: ignore[no-any-return]


def _annotation(handler: Callable[..., Any]) -> Any:
    """Of the first parameter; None where there is none."""
    while isinstance(handler, functools.partial):
        if handler.args:
            return None  # its first parameter has a value
        handler = handler.func
    found: Any = handler if inspect.isroutine(handler) else getattr(handler, "__call__", None)  # noqa: B004
    function = inspect.unwrap(getattr(found, "__func__", found))
    notes = dict(getattr(function, "__annotations__", {}))
    notes.pop("return", None)
    if not notes:
        return None
    parameters = list(inspect.signature(function).parameters)[inspect.ismethod(found) :]
    noted = notes.get(parameters[0]) if parameters else None
    return _resolved(function, noted) if isinstance(noted, str) else noted


def _resolved(function: Any, noted: str) -> Any:
    """The type that an annotation given as a text names."""
    where = {**inspect.getclosurevars(function).nonlocals}
    try:
        hints = typing.get_type_hints(_Noted(noted), function.__globals__, where)
    except NameError as error:
        if "[" not in noted:
            return None  # it names no type of data
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"the annotation {noted!r} of {name}() cannot be read, as {error}: import the name where "
            "the program runs, or give decode="
        ) from None
    return hints["job"]


class _Noted:
    """An object with one annotation."""

    def __init__(self, noted: str) -> None:
        self.__annotations__ = {"job": noted}
