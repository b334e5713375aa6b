"""What a handler's annotation says: the type of the data that it takes."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from topics.client import AsyncHeldJob, HeldJob, Job
from topics.client.handlers import job_type_of

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
]
UNNAMED: list[Callable[..., Any]] = [
    *(plain, of_any, of_unnamed, of_generic, of_other, of_missing_bare, nothing, print),
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


def test_a_class_of_a_function() -> None:
    """A name of the function around is found where the handler uses it."""

    class Local:
        pass

    def handler(job: "HeldJob[Local]") -> type:
        return Local

    assert job_type_of(handler) == Job[Local]
