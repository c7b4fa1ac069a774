"""How a Kafka message is declared: as a typed class whose fields have versions, defaults and tags.

A class is schema, type and documentation at once. Its plan for a version is compiled on first use,
not on import; `_fast/codec` executes plans. No message is declared here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, dataclass_transform, overload
from uuid import UUID

from kstore._fast.protocol import codec, encoder
from kstore._fast.protocol.plan import FieldPlan, Plan, initialize, same_fields
from kstore.errors import ProtocolError

__all__ = [
    "ZERO_UUID",
    "Bool",
    "Bytes",
    "FieldSpec",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Records",
    "String",
    "Struct",
    "UInt16",
    "UInt32",
    "Uuid",
    "VersionRange",
    "field",
]

T = TypeVar("T")
VersionRange: TypeAlias = "tuple[int, int]"

# The names of wire types in annotations. Their Python types say what a field contains.
Bool: TypeAlias = bool
Int8: TypeAlias = int
Int16: TypeAlias = int
UInt16: TypeAlias = int
Int32: TypeAlias = int
UInt32: TypeAlias = int
Int64: TypeAlias = int
Float64: TypeAlias = float
Uuid: TypeAlias = UUID
String: TypeAlias = str
Bytes: TypeAlias = bytes
Records: TypeAlias = bytes | bytearray | memoryview

# In the order of plan.pxd's WireKind.
KINDS = {
    "Bool": 0,
    "Int8": 1,
    "Int16": 2,
    "UInt16": 3,
    "Int32": 4,
    "UInt32": 5,
    "Int64": 6,
    "Float64": 7,
    "Uuid": 8,
    "String": 9,
    "Bytes": 10,
    "Records": 11,
}
KIND_STRUCT = 12
KIND_ARRAY = 13

ZERO_UUID = UUID(int=0)
LAST_VERSION = 32767
NO_VERSION = (0, -1)


class FieldSpec:
    """The arguments of `field`; see there."""

    __slots__ = (
        "default",
        "factory",
        "flexible",
        "ignorable",
        "nullable",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(
        self,
        versions: str,
        default: Any,
        factory: Callable[[], Any] | None,
        nullable: str,
        tag: int,
        tagged: str,
        ignorable: bool,
        flexible: bool,
    ) -> None:
        self.versions = versions
        self.default = default
        self.factory = factory
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable
        self.flexible = flexible


@overload
def field(
    versions: str,
    *,
    default: T,
    nullable: str = "",
    tag: int = -1,
    tagged: str = "",
    ignorable: bool = False,
    flexible: bool = True,
) -> T: ...


@overload
def field(
    versions: str,
    *,
    default_factory: Callable[[], T],
    nullable: str = "",
    tag: int = -1,
    tagged: str = "",
    ignorable: bool = False,
    flexible: bool = True,
) -> T: ...


def field(
    versions: str,
    *,
    default: Any = None,
    default_factory: Callable[[], Any] | None = None,
    nullable: str = "",
    tag: int = -1,
    tagged: str = "",
    ignorable: bool = False,
    flexible: bool = True,
) -> Any:
    """Declare a field: in which versions ("3+", "0-12") it exists, is nullable, and is tagged.

    `tag` alone means tagged in all its versions. `ignorable`: a value other than the default may be
    dropped in versions without the field; otherwise encoding refuses it. `flexible=False` keeps the
    field's old format in flexible versions. A `default` of [] is created for each message.
    """
    if type(default) is list:
        default_factory = list
    return FieldSpec(versions, default, default_factory, nullable, tag, tagged, ignorable, flexible)


@cache
def parse_versions(text: str) -> VersionRange:
    """The range of "3+", "0-12", "4" or "" (none), both ends included."""
    if not text:
        return NO_VERSION
    low, dash, high = text.partition("-")
    if low.endswith("+"):
        return int(low[:-1]), LAST_VERSION
    return int(low), int(high) if dash else int(low)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Makes the fields of a class body its slots, and keeps their specs for the plans."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructMeta:
        """Called for each class statement; does as little as possible, because it runs on
        import.
        """
        specs = {key: value for key, value in namespace.items() if type(value) is FieldSpec}
        for key in specs:
            del namespace[key]
        namespace["__slots__"] = tuple(specs)
        namespace["SPECS"] = specs
        namespace["_plans"] = {}
        namespace["_init_fields"] = None
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=StructMeta):
    """A structure inside messages. Equal if the class and all fields are equal; not hashable."""

    __slots__: ClassVar[tuple[str, ...]]
    SPECS: ClassVar[dict[str, FieldSpec]]
    _plans: ClassVar[dict[int, Plan]]
    _init_fields: ClassVar[list[FieldPlan] | None]

    # Tagged fields that the declaration does not know; they are encoded again unchanged.
    unknown_tags: dict[int, bytes] | None = field("", default=None)

    def __init__(self, **values: Any) -> None:
        fields = type(self)._init_fields
        initialize(self, _all_fields(type(self)) if fields is None else fields, values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return same_fields(self, other, type(self).__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = [f"{name}={_shown(getattr(self, name))}" for name in self.SPECS]
        if self.unknown_tags:
            values.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(values)})"

    def replaced(self, **changes: Any) -> Self:
        """A copy with these fields changed. It shares its lists with this one; pass a new list to
        avoid that. Unknown tagged fields are not copied.
        """
        return type(self)(**{name: getattr(self, name) for name in self.SPECS} | changes)

    @classmethod
    def plan(cls, version: int, flexible: bool) -> Plan:
        """The plan of this structure inside a message of the given version."""
        plan = cls._plans.get(version)
        if plan is None:
            plan = cls._plans[version] = _compile(cls, version, flexible)
        return plan


class Message(Struct):
    """A message: a structure with versions, which is encoded as a whole.

    Declared as `class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+")`; keys and
    values of coordinators' records have a record type instead of an API key.
    """

    API_KEY: ClassVar[int] = -1
    RECORD_TYPE: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FLEXIBLE_FROM: ClassVar[int] = LAST_VERSION

    def __init_subclass__(
        cls, *, versions: str, flexible: str = "", api_key: int = -1, record_type: int = -1
    ) -> None:
        cls.API_KEY = api_key
        cls.RECORD_TYPE = record_type
        cls.MIN_VERSION, cls.MAX_VERSION = parse_versions(versions)
        if flexible:
            cls.FLEXIBLE_FROM = parse_versions(flexible)[0]

    @classmethod
    def plan_for(cls, version: int) -> Plan:
        """The plan of a version. Raises ProtocolError if the message has no such version."""
        plan = cls._plans.get(version)
        if plan is None:
            if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
                raise ProtocolError(
                    f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, "
                    f"not {version}"
                )
            plan = cls.plan(version, version >= cls.FLEXIBLE_FROM)
        return plan

    @classmethod
    def decode(
        cls,
        buffer: bytes | bytearray | memoryview,
        version: int,
        *,
        offset: int = 0,
        allow_trailing: bool = False,
        max_elements: int = -1,
    ) -> Self:
        """The message that begins at offset and, unless allow_trailing, ends with the buffer.

        Records fields are views of the buffer if it is a bytes object, else copies. Raises
        ProtocolError, and allocates no more than the bytes can contain, nor more than
        ``max_elements`` elements of arrays (-1: unlimited).
        """
        message, end = codec.decode_prefix(cls.plan_for(version), buffer, offset, max_elements)
        if end != len(buffer) and not allow_trailing:
            raise ProtocolError(
                f"{cls.__name__} version {version} ends at byte {end} of {len(buffer)}"
            )
        return message  # type: ignore[no-any-return]

    @classmethod
    def decode_prefix(
        cls, buffer: bytes | bytearray | memoryview, version: int, offset: int = 0
    ) -> tuple[Self, int]:
        """As decode; also returns the offset after the message. More bytes may follow."""
        return codec.decode_prefix(cls.plan_for(version), buffer, offset)

    def encode(self, version: int) -> bytes:
        """The message's bytes. Raises ProtocolError for a value that the version can't express."""
        return encoder.encode(self.plan_for(version), self)


def _shown(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > 32:
        return f"<{len(value)} bytes>"
    return repr(bytes(value)) if isinstance(value, memoryview) else repr(value)


def _contains(versions: VersionRange, version: int) -> bool:
    return versions[0] <= version <= versions[1]


def field_type(cls: type[Struct], name: str) -> tuple[int, int, type[Struct] | None]:
    """(kind, element kind or 0, struct class or None) of a field, from its annotation."""
    text = cls.__annotations__[name].removesuffix(" | None")
    element = 0
    is_array = text.startswith("list[")
    if is_array:
        text = text[5:-1]
    if text in KINDS:
        kind, struct = KINDS[text], None
    else:
        kind, struct = KIND_STRUCT, getattr(sys.modules[cls.__module__], text)
    if is_array:
        kind, element = KIND_ARRAY, kind
    return kind, element, struct


def _field_plan(cls: type[Struct], name: str, version: int, flexible: bool) -> FieldPlan:
    spec = cls.SPECS[name]
    kind, element, struct = field_type(cls, name)
    present = _contains(parse_versions(spec.versions), version)
    return FieldPlan(
        name,
        f"{cls.__name__}.{name}",
        kind,
        element,
        _contains(parse_versions(spec.nullable), version),
        flexible and spec.flexible,
        struct.plan(version, flexible) if struct is not None and present else None,
        spec.default,
        spec.factory,
        spec.tag,
    )


def _is_tagged(spec: FieldSpec, version: int) -> bool:
    return spec.tag >= 0 and _contains(parse_versions(spec.tagged or spec.versions), version)


def _compile(cls: type[Struct], version: int, flexible: bool) -> Plan:
    fields: list[FieldPlan] = []
    tagged: list[FieldPlan] = []
    absent: list[FieldPlan] = []
    strict: list[FieldPlan] = []
    for name, spec in cls.SPECS.items():
        if not _contains(parse_versions(spec.versions), version):
            plan = _absent_plan(cls, name)
            absent.append(plan)
            if not spec.ignorable:
                strict.append(plan)
        elif _is_tagged(spec, version):
            tagged.append(_field_plan(cls, name, version, flexible))
        else:
            fields.append(_field_plan(cls, name, version, flexible))
    tagged.sort(key=lambda plan: plan.tag)
    return Plan(cls, version, flexible, fields, tagged, absent, strict)


def _absent_plan(cls: type[Struct], name: str) -> FieldPlan:
    """A field that exists only for its default and is never encoded: a struct counts as an opaque
    value.
    """
    spec = cls.SPECS[name]
    kind, element, _ = field_type(cls, name)
    wire_kind = KINDS["Bytes"] if kind == KIND_STRUCT else kind
    where = f"{cls.__name__}.{name}"
    return FieldPlan(
        name, where, wire_kind, element, True, False, None, spec.default, spec.factory, -1
    )


def _all_fields(cls: type[Struct]) -> list[FieldPlan]:
    cls._init_fields = [_absent_plan(cls, name) for name in cls.SPECS]
    return cls._init_fields
