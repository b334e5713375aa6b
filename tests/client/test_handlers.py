"""What is known of a handler before it is called: the type of its data, and whether a call does the work."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Optional, TypeVar
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest

from topics.client import AsyncHeldJob, HeldJob, Job
from topics.client.handlers import job_type_of, require_awaited, require_plain

D = TypeVar("D")


class Order:
    pass


def plain(job):  # type: ignore[no-untyped-def]
    pass


def of_orders(job: HeldJob[Order]) -> None:
    pass


def of_a_text(job: "HeldJob[Order]") -> None:
    pass


async def awaited(job: AsyncHeldJob[list[Order]]) -> None:
    pass


def of_claimed(job: Job[Order], more: int = 0) -> None:
    pass


def of_any(job: HeldJob[Any]) -> None:
    pass


def of_unnamed(job: HeldJob) -> None:  # type: ignore[type-arg]
    pass


def of_generic(job: HeldJob[D]) -> None:
    pass


def of_other(job: list[Order]) -> None:
    pass


def of_missing(job: "HeldJob[Missing]") -> None:  # type: ignore[name-defined]  # noqa: F821
    pass


def of_missing_bare(job: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
    pass


def after_another(config: dict[str, int], job: HeldJob[Order]) -> None:
    pass


def nothing() -> int:
    return 1


def wrapped(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def around(*args: Any) -> None:
        function(*args)

    return around


class Works:
    def method(self, job: HeldJob[Order]) -> None:
        pass

    @classmethod
    def of_class(cls, job: HeldJob[Order]) -> None:
        pass

    @staticmethod
    def static(job: HeldJob[Order]) -> None:
        pass

    def __call__(self, job: HeldJob[Order]) -> None:
        pass


def of_a_text_within(job: HeldJob["Order"]) -> None:
    pass


def of_a_text_in_a_list(job: HeldJob[list["Order"]]) -> None:
    pass


def of_perhaps(job: HeldJob[Order] | None) -> None:
    pass


def of_perhaps_old(job: Optional["HeldJob[Order]"]) -> None:
    pass


def of_noted(job: Annotated[HeldJob[Order], "a note"]) -> None:
    pass


Bounded = Annotated[int, msgspec.Meta(gt=0)]


def of_bounded(job: "HeldJob[Bounded]") -> None:
    pass


def no_type(job: "HeldJob[Order") -> None:  # type: ignore[valid-type]  # noqa: F722
    pass


def no_attribute(job: "HeldJob[functools.Missing]") -> None:  # type: ignore[name-defined]
    pass


def no_generic(job: "HeldJob[Order[int]]") -> None:  # type: ignore[type-arg]
    pass


def no_attribute_bare(job: "functools.Missing") -> None:  # type: ignore[name-defined]
    pass


def yields(job: Any) -> Iterator[int]:
    yield 1


async def yields_soon(job: Any) -> AsyncIterator[int]:
    yield 1


class Awaits:
    async def __call__(self, job: HeldJob[Order]) -> None:
        pass


NAMED: list[tuple[Callable[..., Any], Any]] = [
    (of_orders, Job[Order]),
    (of_a_text, Job[Order]),
    (awaited, Job[list[Order]]),
    (of_claimed, Job[Order]),
    (Works().method, Job[Order]),
    (Works.of_class, Job[Order]),
    (Works.static, Job[Order]),
    (Works(), Job[Order]),
    (wrapped(of_orders), Job[Order]),
    (functools.partial(of_claimed, more=1), Job[Order]),
    *((each, Job[Order]) for each in (of_a_text_within, of_perhaps, of_perhaps_old, of_noted)),
    (of_a_text_in_a_list, Job[list[Order]]),
    (of_bounded, Job[Bounded]),
]
UNNAMED: list[Callable[..., Any]] = [
    *(
        plain,
        of_any,
        of_unnamed,
        of_generic,
        of_other,
        of_missing_bare,
        no_attribute_bare,
        nothing,
        print,
    ),
    *(lambda job: None, functools.partial(after_another, {}), object()),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("handler", "kind"), NAMED)
def test_it_names_the_data(handler: Callable[..., Any], kind: Any) -> None:
    """Of a function, a method, an object that is called, and of what is wrapped around one."""
    assert job_type_of(handler) == kind


@pytest.mark.parametrize("handler", UNNAMED)
def test_it_names_nothing(handler: Callable[..., Any]) -> None:
    """Then the data are Python values."""
    assert job_type_of(handler) is Job


def test_a_name_that_is_not_there() -> None:
    """Were it passed over, the handler would get other data than it says."""
    with pytest.raises(
        TypeError, match=r"'HeldJob\[Missing\]' of of_missing\(\) cannot be read, as name"
    ):
        job_type_of(of_missing)


@pytest.mark.parametrize("handler", [no_type, no_attribute, no_generic])
def test_a_text_that_is_no_type(handler: Callable[..., Any]) -> None:
    """The message names the handler, whatever Python has against the text."""
    with pytest.raises(TypeError, match=rf"of {handler.__name__}\(\) cannot be read, as"):
        job_type_of(handler)


@pytest.mark.parametrize(
    "handler",
    [awaited, yields, yields_soon, Awaits(), AsyncMock(), functools.partial(awaited)],
)
def test_a_call_that_does_no_work(handler: Callable[..., Any]) -> None:
    """It is refused before a job is claimed, which would be acked undone. (§10.4)"""
    with pytest.raises(TypeError, match="does no work: `async def` is for AsyncClient"):
        require_plain(handler)


@pytest.mark.parametrize("handler", [yields, yields_soon, functools.partial(yields)])
def test_nothing_to_await(handler: Callable[..., Any]) -> None:
    """A generator is no work for an event loop either."""
    with pytest.raises(TypeError, match="does no work"):
        require_awaited(handler)


@pytest.mark.parametrize("handler", [plain, Works(), Mock(), print, functools.partial(plain)])
def test_a_call_that_does_its_work(handler: Callable[..., Any]) -> None:
    """Functions, and what is called like one."""
    require_plain(handler)
    require_awaited(handler)


def test_a_class_of_a_function() -> None:
    """A name of the function around is found where the handler uses it."""

    class Local:
        pass

    def handler(job: "HeldJob[Local]") -> type:
        return Local

    assert job_type_of(handler) == Job[Local]
