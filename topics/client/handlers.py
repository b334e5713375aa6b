"""What is known of a handler before it is called: the type of the jobs that it takes, and whether a call
does the work at all.

Owns nothing but the questions.  A handler without an annotation, or one whose annotation names no type of
data, takes jobs whose data are Python values.
"""

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from topics.client.held_job import BaseHeldJob, WrongHandler
from topics.client.models import Job

_AROUND: Final = (Union, UnionType, Annotated)
_GENERATORS: Final = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def job_type_of(handler: Callable[..., Any]) -> type[Job[Any]]:
    """`Job[T]` for a handler whose first parameter is annotated `HeldJob[T]`, `AsyncHeldJob[T]` or `Job[T]`.

    Raises:
        TypeError: The annotation is a text that is no type, or a name in it is not defined.
    """
    noted = _job_in(_annotation(handler))
    args = get_args(noted)
    if not args or args[0] is Any or isinstance(args[0], TypeVar):
        return Job
    kind: Any = Job
    return kind[args[0]]  # type: ignore[no-any-return]


def _job_in(noted: Any) -> Any:
    """The `HeldJob[T]` of an annotation, also within `Optional` and `Annotated`; None where there is none."""
    origin = get_origin(noted)
    if isinstance(origin, type) and issubclass(origin, BaseHeldJob | Job):
        return noted
    inner = get_args(noted) if origin in _AROUND else ()
    return next((found for each in inner if (found := _job_in(each)) is not None), None)


def require_plain(handler: Callable[..., Any]) -> None:
    """Raises TypeError: A call of the handler would do nothing, as it is a coroutine or a generator function."""
    _refuse(handler, (inspect.iscoroutinefunction, *_GENERATORS))


def require_awaited(handler: Callable[..., Any]) -> None:
    """Raises TypeError: The handler is a generator function, of which nothing can be awaited."""
    _refuse(handler, _GENERATORS)


def _refuse(handler: Any, kinds: Iterable[Callable[[Any], bool]]) -> None:
    call = getattr(handler, "__call__", None)  # noqa: B004
    if any(is_kind(each) for is_kind in kinds for each in (handler, call)):
        raise _wrong(handler)


def require_done(handler: Callable[..., Any], returned: Any) -> None:
    """Raises TypeError: What a handler returned is work that nobody has done: a coroutine, or a generator."""
    if not (inspect.isawaitable(returned) or _is_generator(returned)):
        return
    if inspect.iscoroutine(returned):
        returned.close()  # else Python warns that it was never awaited
    raise _wrong(handler)


def awaitable_of(handler: Callable[..., Any], job: Any) -> Awaitable[object]:
    """Call a handler with a job.

    Raises:
        TypeError: It returned nothing that can be awaited.
    """
    handling = handler(job)
    if not inspect.isawaitable(handling):
        raise WrongHandler(f"{_name(handler)} is not `async def`, as a handler of AsyncClient is")
    return handling


def _is_generator(returned: object) -> bool:
    return inspect.isgenerator(returned) or inspect.isasyncgen(returned)


def _wrong(handler: Any) -> WrongHandler:
    return WrongHandler(
        f"a call of {_name(handler)} does no work: `async def` is for AsyncClient, and no handler has a `yield`"
    )


def _name(handler: Any) -> str:
    name = getattr(handler, "__qualname__", None)
    return repr(handler) if name is None else f"{name}()"


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
    return _resolved(function, noted) if inspect.isfunction(function) else noted


def _resolved(function: Any, noted: Any) -> Any:
    """The type that an annotation names which is a text, or has one in it."""
    where = {**inspect.getclosurevars(function).nonlocals}
    try:
        names = getattr(function, "__globals__", {})
        hints = typing.get_type_hints(_Noted(noted), names, where, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        if isinstance(noted, str) and "[" not in noted:
            return None  # it names no type of data
        raise TypeError(
            f"the annotation {noted!r} of {_name(function)} cannot be read, as {error}: import the name where "
            "the program runs, or give decode="
        ) from None
    return hints["job"]


class _Noted:
    """An object with one annotation."""

    def __init__(self, noted: Any) -> None:
        self.__annotations__ = {"job": noted}
