"""Classes of other libraries in records: models of pydantic, scalars of numpy, and classes derived from
`str`, `int` and `float`.

Owns what JSON such a value is, and how pydantic reads a type from JSON.  Imports neither library: a
program that has a value or a type of one has imported it.  msgspec calls `json_types` for what it cannot
encode, and `read` for what it cannot decode.
"""

import sys
from typing import Any, Final, get_args, get_origin

import msgspec

ERRORS_TOLD: Final = 3
"""Of the faults that pydantic finds in one value."""

_json: Final = msgspec.json.Encoder(decimal_format="number").encode
"""A number that no float holds was decoded to a `Decimal`, and becomes the same number again."""


def is_foreign(value: object) -> bool:
    """Whether `json_types` knows a form of the value."""
    return is_model(value) or _is_derived(value) or _is_numpy(value)


def is_model(value: object) -> bool:
    """Whether pydantic writes it: a model, or a dataclass of pydantic."""
    return hasattr(type(value), "__pydantic_serializer__")


def json_types(value: Any) -> Any:
    """The value made of what JSON has.

    A model is written as `model_dump(mode="json")` does, by its aliases unless its config says
    otherwise, because its aliases are what it is read by.

    Raises:
        TypeError: The value is not foreign.
        ValueError: pydantic cannot write a part of it.
    """
    kind = type(value)
    if is_model(value):
        by_alias = _config_of(kind).get("serialize_by_alias", True)
        return kind.__pydantic_serializer__.to_python(value, mode="json", by_alias=by_alias)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if _is_numpy(value):
        return value.item()
    raise TypeError(f"Encoding objects of type {kind.__name__} is unsupported")


def _config_of(kind: Any) -> Any:
    # A model has the first, a dataclass of pydantic the second.
    return getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}


def _is_derived(value: object) -> bool:
    return isinstance(value, str | int | float) and type(value) not in (str, int, float, bool)


def _is_numpy(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None
        and isinstance(value, numpy.bool_ | numpy.integer | numpy.floating)
        # A time span counts as an integer there, and a long double is more than a float.
        and type(value.item()) in (bool, int, float)
    )


# ------------------------------------------------------------------ reading


def readable(kind: Any) -> Any:
    """The type for a decoder of msgspec that reads `kind`.

    The argument of `Record[...]`, and of every other Struct, is replaced where pydantic has to read it:
    by a class that msgspec does not know and gives to `read`.
    """
    if "pydantic" not in sys.modules:
        return kind
    origin = get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        return origin[tuple(map(readable, get_args(kind)))]  # type: ignore[index]
    return _read_by_pydantic(kind) if _holds_model(kind) else kind


class _StandIn(type):
    """A class in the place of a type that pydantic reads."""

    def __instancecheck__(cls, value: object) -> bool:
        """msgspec asks whether `read` gave a value of the type, which pydantic has seen to."""
        return True


def _holds_model(kind: Any) -> bool:
    return _is_model_class(kind) or any(map(_holds_model, get_args(kind)))


def _is_model_class(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def _read_by_pydantic(kind: Any) -> Any:
    """A class that stands for the type; the type itself where pydantic does not know a part of it."""
    from pydantic import PydanticUserError, TypeAdapter

    try:
        validator = TypeAdapter(kind).validator
    except PydanticUserError:
        return kind
    name = kind.__name__ if _is_model_class(kind) else str(kind)
    return _StandIn(name, (), {"__pydantic_validator__": validator})


def read(kind: Any, value: Any) -> Any:
    """The value of a type that msgspec does not know; the value itself where pydantic does not either,
    which msgspec refuses.

    Raises:
        ValueError: It does not fit; the message has the place of each fault.
    """
    validator = getattr(kind, "__pydantic_validator__", None)
    if validator is None:
        return value
    from pydantic_core import ValidationError

    try:
        # As JSON, because a strict model takes a time or a tuple from JSON and from no Python value.
        return validator.validate_json(_json(value))
    except ValidationError as error:
        raise ValueError(f"{kind.__name__}: {_told(error)}") from None


def _told(error: Any) -> str:
    """The faults in one line, each with its place."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    told = [_fault(each) for each in faults[:ERRORS_TOLD]]
    left = len(faults) - len(told)
    return "; ".join(told) + (f"; {left} more" if left else "")


def _fault(fault: Any) -> str:
    place = ".".join(map(str, fault["loc"]))
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])
