"""Every message class that kstore declares, and hypothesis strategies that fill them at random.

The strategies follow the declarations, so a test over them covers a new message without being
changed.
"""

from __future__ import annotations

import importlib
import pkgutil
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from hypothesis import strategies as st

import kstore.protocol
from kstore.protocol import schema
from kstore.protocol.schema import Message, Struct

INTEGERS = {
    "Int8": (-(2**7), 2**7 - 1),
    "Int16": (-(2**15), 2**15 - 1),
    "UInt16": (0, 2**16 - 1),
    "Int32": (-(2**31), 2**31 - 1),
    "UInt32": (0, 2**32 - 1),
    "Int64": (-(2**63), 2**63 - 1),
}
NAMES = {number: name for name, number in schema.KINDS.items()}
Override = Callable[[str, str], "st.SearchStrategy[Any] | None"]


def as_usual(_struct: str, _name: str) -> None:
    """Overrides nothing."""


def all_messages() -> list[type[Message]]:
    """Every subclass of Message in kstore.protocol by name, also those that no API uses."""
    found: dict[str, type[Message]] = {}
    walked = pkgutil.walk_packages(kstore.protocol.__path__, "kstore.protocol.")
    declaring = [importlib.import_module(info.name) for info in walked]
    for module in declaring:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found[value.__name__] = value
    return [found[name] for name in sorted(found)]


def versions_of(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


def exists(versions: str, version: int) -> bool:
    """Whether a version is in a declaration's range."""
    low, high = schema.parse_versions(versions)
    return low <= version <= high


def is_extension(spec: schema.FieldSpec) -> bool:
    """Whether a field is kstore's own: its tag is a KIP's number times 100 plus n."""
    return spec.tag >= 10000


def fields_of(cls: type[Struct], version: int, *, extensions: bool) -> Iterator[str]:
    """The names of the fields that a structure has in a version."""
    for name, spec in cls.SPECS.items():
        if exists(spec.versions, version) and (extensions or not is_extension(spec)):
            yield name


@cache
def messages(
    cls: type[Struct],
    version: int,
    *,
    extensions: bool = True,
    override: Override = as_usual,
) -> st.SearchStrategy[Any]:
    """Random instances of a structure in a version; fields the version lacks keep their defaults.

    override(structure name, field name) may give another strategy for a field. Strategies are kept,
    because Hypothesis takes longer to prepare one than to draw from it.
    """
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name in fields_of(cls, version, extensions=extensions):
        special = override(cls.__name__, name)
        if special is None:
            special = _values(cls, name, version, extensions, override)
        fields[name] = special
    return st.builds(cls, **fields)


def _values(
    cls: type[Struct], name: str, version: int, extensions: bool, override: Override
) -> st.SearchStrategy[Any]:
    kind, element, struct = schema.field_type(cls, name)
    single = element if kind == schema.KIND_ARRAY else kind
    if struct is not None:
        strategy = messages(struct, version, extensions=extensions, override=override)
    else:
        strategy = _primitives(NAMES[single])
    if kind == schema.KIND_ARRAY:
        strategy = st.lists(strategy, max_size=3)
    if exists(cls.SPECS[name].nullable, version):
        strategy = st.none() | strategy
    return strategy


@cache
def _primitives(kind: str) -> st.SearchStrategy[Any]:
    if kind in INTEGERS:
        return st.integers(*INTEGERS[kind])
    if kind == "Bool":
        return st.booleans()
    if kind == "Float64":
        return st.floats(allow_nan=False)
    if kind == "Uuid":
        return st.just(schema.ZERO_UUID) | st.integers(1, 2**128 - 1).map(
            lambda n: uuid.UUID(int=n)
        )
    if kind == "String":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    return st.binary(max_size=20)
