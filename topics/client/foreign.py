"""Classes of other libraries in records: models of pydantic, scalars of numpy, and classes derived from
`str`, `int` and `float`.

Owns what JSON such a value is, and how pydantic reads a type from JSON.  Imports neither library: a
program that has a value or a type of one has imported it.  msgspec calls `json_types` for what it cannot
encode, and `read` for what it cannot decode.
"""

import sys
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, Final, get_args, get_origin

import msgspec

ERRORS_TOLD: Final = 3
"""Of the faults that pydantic finds in one value."""

Hook = Callable[[Any], Any]
"""Makes of a value what JSON has, or raises `TypeError`."""

_json: Final = msgspec.json.Encoder(decimal_format="number").encode
"""A number that no float holds was decoded to a `Decimal`, and becomes the same number again."""


def is_foreign(value: object) -> bool:
    """Whether `json_types` knows a form of the value."""
    return is_model(value) or _is_derived(value) or _is_numpy(value)


def is_model(value: object) -> bool:
    """Whether pydantic writes it: a model, or a dataclass of pydantic."""
    return hasattr(type(value), "__pydantic_serializer__")


def hook_of(default: Hook | None) -> Hook:
    """For msgspec: what converts the parts of a class with fields, as those of a list are converted.

    It raises `TypeError` where a part has no form in JSON and `default` gives none.
    """

    def convert(part: Any) -> Any:
        if is_foreign(part):
            return json_types(part, default)
        if default is None:
            kind = type(part).__name__
            raise TypeError(f"JSON has no form for {kind}: convert it, or give default=")
        return default(part)

    return convert


def json_types(value: Any, default: Hook | None = None) -> Any:
    """The value made of what JSON has.

    Args:
        default: Converts the parts of a model that pydantic does not know, as it converts others.

    Raises:
        TypeError: The value is not foreign.
        ValueError: pydantic cannot write a part of it.
    """
    kind = type(value)
    if is_model(value):
        return _model_types(value, default)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if _is_numpy(value):
        return value.item()
    raise TypeError(f"Encoding objects of type {kind.__name__} is unsupported")


def _model_types(model: Any, default: Hook | None) -> Any:
    """A model as `model_dump(mode="json")` writes it, by its aliases unless its config says otherwise,
    because its aliases are what it is read by.

    A NaN becomes what the config says (`ser_json_inf_nan`).  Where it says nothing, pydantic would
    write null in a part without a type, and the NaN itself in a float: it is refused in both.
    """
    config = _config_of(type(model))
    serializer = type(model).__pydantic_serializer__
    options = {
        "by_alias": config.get("serialize_by_alias", True),
        "fallback": lambda part: _part_of_model(part, default),
    }
    if config.get("ser_json_inf_nan") in ("null", "strings"):
        # Only the text has what the config says.
        return msgspec.json.decode(serializer.to_json(model, **options))
    written = serializer.to_python(model, mode="json", **options)
    if any(leaf is None for leaf in _leaves(written)):
        _refuse_what_is_made_null(written, serializer.to_python(model, warnings=False))
    return written


def _part_of_model(part: Any, default: Hook | None) -> Any:
    """What pydantic writes for a part that it does not know.

    Raises:
        TypeError, ValueError: It has no form, or is not finite.
    """
    convert = hook_of(default)
    if isinstance(part, msgspec.Struct) or hasattr(type(part), "__attrs_attrs__"):
        made = msgspec.to_builtins(part, enc_hook=convert)
    else:
        made = convert(part)
    for leaf in _leaves(made):
        _refuse_if_not_finite(leaf)
    return made


def _refuse_what_is_made_null(written: Any, value: Any) -> None:
    """Raises ValueError: A NaN or an infinity of `value` is null in what was written of it."""
    stack = [(written, value)]
    while stack:
        written, value = stack.pop()
        if written is None:
            _refuse_if_not_finite(value)
        elif isinstance(written, dict) and isinstance(value, dict):
            stack += zip(written.values(), value.values(), strict=False)
        elif isinstance(written, list) and isinstance(value, list | tuple | set | frozenset):
            stack += zip(written, value, strict=False)


def _refuse_if_not_finite(value: Any) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{float.__repr__(value)} is no number of JSON")


def _leaves(value: Any) -> Iterator[Any]:
    """What is no container in a value made of built-in types."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list | tuple):
            stack += value
        else:
            yield value


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
        # A time span counts as an integer there: one of nanoseconds has an int as its item.
        and not isinstance(value, numpy.timedelta64)
        # A long double is more than a float.
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
