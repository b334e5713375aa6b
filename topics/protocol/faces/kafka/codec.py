"""Bytes of a message to its value, and back, by functions that are compiled from its schema.

A function is of one message and version, straight code without a loop over fields; it is compiled when it is asked for
first, in some milliseconds.  A request comes from a stranger: no length is believed before its bytes are there, an
array has no more elements than bytes are left, all arrays of a message have no more than a bound, and what is in
excess of that is `Malformed`.

A response is a list of buffers: stored record batches are referred to and not copied.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from topics.protocol.batches.varints import varint_of
from topics.protocol.faces.kafka.schema import Field, Message, Shape, message
from topics.protocol.model.records import Buffer

ELEMENTS_MAX: Final = 20_000
"""Elements of all arrays in a request."""
_FIXED: Final = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Format and size of types that always have the same."""

Decoder: TypeAlias = Callable[[memoryview, int, int], Any]
"""The value of a message that begins at a place of a buffer; and how many elements its arrays may have."""
Encoder: TypeAlias = Callable[[Any, Callable[[Buffer], None]], None]


class Malformed(Exception):
    """Bytes that are no message: the connection that they came by is closed."""


def decode(name: str, version: int, data: memoryview, at: int = 0) -> Any:
    """The message that stands in `data` from `at` on; bytes behind it are no error, as in Kafka.

    Strings and `bytes` are copied; `records` are views of `data`.

    Raises:
        Malformed: No such message, or one with more than `ELEMENTS_MAX` elements.
    """
    try:
        return decoder(name, version)(data, at, ELEMENTS_MAX)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"{name} version {version}: {error}") from error


def encode(name: str, version: int, value: Any) -> list[Buffer]:
    """The bytes of a message, in order; `records` are buffers, or sequences of buffers."""
    pieces: list[Buffer] = []
    encoder(name, version)(value, pieces.append)
    return pieces


@cache
def decoder(name: str, version: int) -> Decoder:
    """The function behind `decode`."""
    return _Decoding(message(name), version).compiled()


@cache
def encoder(name: str, version: int) -> Encoder:
    """The function behind `encode`."""
    return _Encoding(message(name), version).compiled()


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint of up to 32 bits, and where it ends.

    Raises:
        Malformed: It has more.
        IndexError: The data ends in it.
    """
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise Malformed("a varint of more than five bytes")
    if number >> 32:
        raise Malformed("a varint of more than 32 bits")
    return number, at


def size_of(records: Any) -> int:
    """Bytes of `records`, in one buffer or in several."""
    return len(records) if isinstance(records, bytes | memoryview) else sum(map(len, records))


class _Code:
    """Lines of a function in the making, and the constants that they name."""

    def __init__(self, found: Message, version: int) -> None:
        self.message, self.version = found, version
        self.is_flexible = version >= found.flexible
        self.names: dict[str, Any] = {
            "Malformed": Malformed,
            "varint": varint,
            "varint_of": varint_of,
        }
        self._lines: list[str] = []
        self._depth = 1
        self._pending: list[tuple[str, str]] = []
        self._variables = 0

    def add(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def begin(self, line: str) -> None:
        self.add(line)
        self._depth += 1

    def end(self) -> None:
        self._depth -= 1

    def new(self, word: str) -> str:
        """A name that no variable has yet."""
        self._variables += 1
        return f"{word}{self._variables}"

    def constant(self, word: str, value: Any) -> str:
        for name, known in self.names.items():
            if known is value or (known == value and isinstance(value, bytes)):
                return name
        name = self.new(word)
        self.names[name] = value
        return name

    def packing(self, formats: str) -> struct.Struct:
        key = f"struct {formats}"
        if key not in self.names:
            self.names[key] = struct.Struct(">" + formats)
        packing: struct.Struct = self.names[key]
        return packing

    def made(self, head: str) -> Any:
        source = "\n".join([head, *(self._lines or ["    pass"])])
        exec(compile(source, f"<{self.message.shape.name} {self.version}>", "exec"), self.names)
        return self.names["function"]


class _Decoding(_Code):
    def compiled(self) -> Decoder:
        self.add("end = len(data)")
        self._struct(self.message.shape, "found")
        self.add("return found")
        made: Decoder = self.made("def function(data, at, left):")
        return made

    def _struct(self, shape: Shape, target: str) -> None:
        """Lines that decode a struct into a variable."""
        values = []
        for field in shape.fields:
            if not field.is_in(self.version) or field.is_tagged(self.version):
                values.append(self._absent(field))
                continue
            values.append(self.new("v"))
            self._field(field, values[-1])
        self._flush()
        if self.is_flexible:
            self._tagged(shape, values)
        self.add(f"{target} = {self.constant('T', shape.type)}({', '.join(values)})")

    def _absent(self, field: Field) -> str:
        """What stands for a field that is not there, which is in a variable where it may still come."""
        absent = repr(field.default)
        if field.default is ...:
            absent = "[]" if field.is_array else f"{self.constant('T', field.struct.type)}()"  # type: ignore[union-attr]
        if field.is_tagged(self.version) and field.is_in(self.version):
            target = self.new("v")
            self._flush()
            self.add(f"{target} = {absent}")
            return target
        return absent

    def _tagged(self, shape: Shape, values: list[str]) -> None:
        """Lines for the fields at the end: those that are known get their value, others are passed over."""
        count, tag, size, stop = map(self.new, ("n", "tag", "size", "stop"))
        self.add(f"{count} = data[at]; at += 1")
        self.begin(f"if {count}:")
        self.add(f"if {count} > 127: {count}, at = varint(data, at - 1)")
        self.begin(f"for _ in range({count}):")
        self.add(f"{tag}, at = varint(data, at)")
        self.add(f"{size}, at = varint(data, at)")
        self.add(f"{stop} = at + {size}")
        self.add(f"if {stop} > end: raise Malformed('a tagged field longer than what is left')")
        for field, target in zip(shape.fields, values, strict=True):
            if field.is_in(self.version) and field.is_tagged(self.version):
                self.begin(f"if {tag} == {field.tag}:")
                self._field(field, target)
                self._flush()
                self.add(f"if at != {stop}: raise Malformed('a tagged field of another size')")
                self.end()
        self.add(f"at = {stop}")
        self.end()
        self.end()

    def _flush(self, extra: Sequence[tuple[str, str]] = ()) -> None:
        """One line that reads the fixed fields so far, and what else is given."""
        pending = [*self._pending, *extra]
        self._pending.clear()
        if not pending:
            return
        packing = self.packing("".join(form for form, _ in pending))
        targets = ", ".join(target for _, target in pending)
        self.add(
            f"{targets}, = {self.constant('U', packing.unpack_from)}(data, at); at += {packing.size}"
        )

    def _length(self, form: str, target: str) -> None:
        """Lines that read the length of what follows; -1 is null."""
        if not self.is_flexible:
            self._flush([(form, target)])
            return
        self._flush()
        self.add(f"{target} = data[at] - 1; at += 1")
        self.begin(f"if {target} > 126:")
        self.add(f"{target}, at = varint(data, at - 1); {target} -= 1")
        self.end()

    def _null_or(self, field: Field, length: str, target: str) -> None:
        """Begin the lines of what is not null."""
        self.begin(f"if {length} < 0:")
        if field.is_nullable(self.version):
            self.add(f"{target} = None")
        else:
            self.add(f"raise Malformed('{field.name} is null')")
        self.end()
        self.begin(f"elif {length} > end - at:")
        self.add(f"raise Malformed('{field.name} is longer than what is left')")
        self.end()
        self.begin("else:")

    def _field(self, field: Field, target: str) -> None:
        if field.is_array:
            self._array(field, target)
        elif field.kind in _FIXED:
            self._pending.append((_FIXED[field.kind][0], target))
        elif field.struct is not None:
            self._nested(field, field.struct, target)
        else:
            self._sized(field, target)

    def _nested(self, field: Field, shape: Shape, target: str) -> None:
        if not field.is_nullable(self.version):
            self._flush()
            self._struct(shape, target)
            return
        mark = self.new("n")
        self._flush([("b", mark)])
        self.begin(f"if {mark} < 0:")
        self.add(f"{target} = None")
        self.end()
        self.begin("else:")
        self._struct(shape, target)
        self.end()

    def _sized(self, field: Field, target: str) -> None:
        length = self.new("n")
        self._length("h" if field.kind == "string" else "i", length)
        self._null_or(field, length, target)
        self._slice(field.kind, length, target)
        self.end()

    def _slice(self, kind: str, length: str, target: str) -> None:
        part = f"data[at:at + {length}]"
        made = {"string": f"str({part}, 'utf-8')", "bytes": f"bytes({part})", "records": part}[kind]
        self.add(f"{target} = {made}; at += {length}")

    def _array(self, field: Field, target: str) -> None:
        count = self.new("n")
        self._length("i", count)
        self._null_or(field, count, target)
        self.add(f"left -= {count}")
        self.add("if left < 0: raise Malformed('too many elements')")
        if field.kind in _FIXED:
            form, size = _FIXED[field.kind]
            unpack = self.constant("U", struct.unpack_from)
            each = f"'>' + '{form}' * {count}" if field.kind == "uuid" else f"'>%d{form}' % {count}"
            self.add(f"{target} = list({unpack}({each}, data, at)); at += {size} * {count}")
        else:
            self.add(f"{target} = []")
            self.begin(f"for _ in range({count}):")
            element = self.new("e")
            if field.struct is not None:
                self._struct(field.struct, element)
            else:
                self._element(field, element)
            self.add(f"{target}.append({element})")
            self.end()
        self.end()

    def _element(self, field: Field, target: str) -> None:
        """A string in an array, which is never null."""
        length = self.new("n")
        self._length("h", length)
        self.add(f"if not 0 <= {length} <= end - at: raise Malformed('a string of {field.name}')")
        self._slice(field.kind, length, target)


class _Encoding(_Code):
    def compiled(self) -> Encoder:
        self.names["size_of"] = size_of
        self._struct(self.message.shape, "value")
        made: Encoder = self.made("def function(value, add):")
        return made

    def _struct(self, shape: Shape, source: str) -> None:
        tagged = []
        for field in shape.fields:
            if field.is_in(self.version):
                if field.is_tagged(self.version):
                    tagged.append(field)
                else:
                    self._field(field, f"{source}.{field.name}")
        if not self.is_flexible:
            self._flush()
        elif not tagged:
            self._flush([("b", "0")])
        else:
            self._flush()
            self._tagged(tagged, source)

    def _tagged(self, fields: list[Field], source: str) -> None:
        """Lines for those fields that are not as they are where they are left out."""
        parts, outer, part = map(self.new, ("parts", "add", "part"))
        self.add(f"{parts} = []; {outer} = add")
        for field in sorted(fields, key=lambda each: each.tag):
            absent = repr(field.default)
            if field.default is ...:
                absent = "[]" if field.is_array else f"{self.constant('T', field.struct.type)}()"  # type: ignore[union-attr]
            self.begin(f"if {source}.{field.name} != {absent}:")
            self.add(f"{part} = []; add = {part}.append")
            self._field(field, f"{source}.{field.name}")
            self._flush()
            self.add(f"{part} = b''.join({part})")
            self.add(f"{parts}.append(varint_of({field.tag}) + varint_of(len({part})) + {part})")
            self.end()
        self.add(f"add = {outer}; add(varint_of(len({parts}))); add(b''.join({parts}))")

    def _flush(self, extra: Sequence[tuple[str, str]] = ()) -> None:
        pending = [*self._pending, *extra]
        self._pending.clear()
        if pending:
            packing = self.packing("".join(form for form, _ in pending))
            sources = ", ".join(source for _, source in pending)
            self.add(f"add({self.constant('P', packing.pack)}({sources}))")

    def _length(self, form: str, source: str) -> None:
        if self.is_flexible:
            self._flush()
            self.add(f"add(varint_of({source} + 1))")
        else:
            self._flush([(form, source)])

    def _begin_null_or(self, field: Field, form: str, source: str) -> None:
        """Begin the lines of what is not null, where it may be."""
        if field.is_nullable(self.version):
            self._flush()
            self.begin(f"if {source} is None:")
            self._length(form, "-1")
            self.end()
            self.begin("else:")

    def _end_null_or(self, field: Field) -> None:
        if field.is_nullable(self.version):
            self._flush()
            self.end()

    def _field(self, field: Field, source: str) -> None:
        if field.is_array:
            self._array(field, source)
        elif field.kind in _FIXED:
            self._pending.append((_FIXED[field.kind][0], source))
        elif field.struct is not None:
            self._nested(field, field.struct, source)
        else:
            self._sized(field, source)

    def _nested(self, field: Field, shape: Shape, source: str) -> None:
        value = self.new("v")
        self._flush()
        self.add(f"{value} = {source}")
        if not field.is_nullable(self.version):
            self._struct(shape, value)
            return
        self.begin(f"if {value} is None:")
        self._flush([("b", "-1")])
        self.end()
        self.begin("else:")
        self._pending.append(("b", "1"))
        self._struct(shape, value)
        self.end()

    def _sized(self, field: Field, source: str) -> None:
        form = "h" if field.kind == "string" else "i"
        value = self.new("v")
        self.add(f"{value} = {source}")
        self._begin_null_or(field, form, value)
        if field.kind == "string":
            self.add(f"{value} = {value}.encode()")
        self._length(form, f"size_of({value})" if field.kind == "records" else f"len({value})")
        if field.kind == "records":
            self.begin(f"if isinstance({value}, (bytes, memoryview)):")
            self.add(f"add({value})")
            self.end()
            self.begin("else:")
            self.add(f"for piece in {value}: add(piece)")
            self.end()
        else:
            self.add(f"add({value})")
        self._end_null_or(field)

    def _array(self, field: Field, source: str) -> None:
        value = self.new("v")
        self.add(f"{value} = {source}")
        self._begin_null_or(field, "i", value)
        self._length("i", f"len({value})")
        if field.kind in _FIXED:
            pack = self.constant("P", struct.pack)
            form = _FIXED[field.kind][0]
            self.add(f"add({pack}('>' + '{form}' * len({value}), *{value}))")
        else:
            element = self.new("e")
            self.begin(f"for {element} in {value}:")
            if field.struct is not None:
                self._struct(field.struct, element)
            else:
                self.add(f"{element} = {element}.encode()")
                self._length("h", f"len({element})")
                self.add(f"add({element})")
            self.end()
        self._end_null_or(field)
