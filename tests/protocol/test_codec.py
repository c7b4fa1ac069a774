"""The codec's rules, each on a small message declared here: wire forms of every type, bounds,
defaults, tagged fields, and what is refused.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kstore._fast.protocol.encoder import encode_pieces
from kstore.errors import ProtocolError
from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    UInt16,
    UInt32,
    Uuid,
    field,
)


class Inner(Struct):
    """A structure of one number, and a second one from version 1 on."""

    number: Int32 = field("0+", default=0)
    later: Int16 = field("1+", default=-1)


class Everything(Message, versions="0-1", flexible="1+"):
    """Every type once; version 1 is flexible."""

    flag: Bool = field("0+", default=False)
    tiny: Int8 = field("0+", default=0)
    small: Int16 = field("0+", default=0)
    port: UInt16 = field("0+", default=0)
    number: Int32 = field("0+", default=0)
    count: UInt32 = field("0+", default=0)
    large: Int64 = field("0+", default=0)
    real: Float64 = field("0+", default=0.0)
    ident: Uuid = field("0+", default=ZERO_UUID)
    text: String = field("0+", default="")
    blob: Bytes | None = field("0+", default=b"", nullable="0+")
    batch: Records | None = field("0+", default=None, nullable="0+")
    one: Inner = field("0+", default_factory=Inner)
    maybe: Inner | None = field("0+", default=None, nullable="0+")
    many: list[Inner] = field("0+", default=[])
    numbers: list[Int32] | None = field("0+", default=[], nullable="0+")


class Names(Message, versions="0-1", flexible="1+"):
    """An array that may be null, of strings that may not."""

    names: list[String] | None = field("0+", default=[], nullable="0+")


class Tagged(Message, versions="0-2", flexible="1+"):
    """Tagged fields, one field that cannot be dropped and one that can."""

    name: String = field("0+", default="")
    strict: Int32 = field("1+", default=7)
    loose: Int32 = field("1+", default=7, ignorable=True)
    note: String | None = field("1+", default=None, nullable="1+", tag=1)
    items: list[Inner] = field("1+", default=[], tag=0)
    once: Int64 = field("2+", default=-1, tag=200, ignorable=True)
    some: Inner | None = field("2+", default_factory=Inner, nullable="2+", tag=3, ignorable=True)


FULL = Everything(
    flag=True,
    tiny=-2,
    small=-3,
    port=65535,
    number=-5,
    count=0xFFFFFFFF,
    large=-(2**63),
    real=1.5,
    ident=uuid.UUID(int=1),
    text="é",
    blob=None,
    batch=b"rec",
    one=Inner(number=1),
    maybe=Inner(number=2),
    many=[Inner(number=3), Inner(number=4)],
    numbers=None,
)


def test_version_0_has_fixed_lengths_and_version_1_varint_lengths() -> None:
    fixed = (
        "01 fe fffd ffff fffffffb ffffffff 8000000000000000 3ff8000000000000"
        "00000000000000000000000000000001"
    )
    legacy = (
        "0002c3a9 ffffffff 00000003726563 00000001 01 00000002 00000002 00000003 00000004 ffffffff"
    )
    compact = (
        "03c3a9 00 04726563 00000001ffff00 01 00000002ffff00 03 00000003ffff00 00000004ffff00 00 00"
    )
    assert FULL.encode(0) == bytes.fromhex(fixed + legacy)
    assert FULL.encode(1) == bytes.fromhex(fixed + compact)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_was_encoded_is_decoded_from_any_buffer(version: int, kind: type) -> None:
    assert Everything.decode(kind(FULL.encode(version)), version) == FULL


def test_records_are_a_view_of_a_bytes_frame_and_a_copy_of_any_other() -> None:
    raw = FULL.encode(1)
    view = Everything.decode(raw, 1).batch
    assert isinstance(view, memoryview)
    assert view.obj is raw
    changeable = bytearray(raw)
    copied = Everything.decode(changeable, 1)
    changeable[:] = bytes(len(raw))
    assert copied.batch == b"rec"


@pytest.mark.parametrize("sizes", [(1, 2, 3), (3, 9000, 1), (9000, 0, 9000)])
def test_records_in_parts_are_one_field(sizes: tuple[int, ...]) -> None:
    parts: Any = tuple(bytes([n]) * size for n, size in enumerate(sizes))
    message, whole = Everything(batch=parts), Everything(batch=b"".join(parts))
    assert message.encode(1) == whole.encode(1)
    plan = Everything.plan_for(1)
    pieces = encode_pieces(plan, message, plan, Everything())
    assert b"".join(pieces) == b"".join(encode_pieces(plan, whole, plan, Everything()))
    assert all(any(piece is part for piece in pieces) for part in parts if len(part) == 9000)


def test_a_field_the_version_lacks_gets_its_default() -> None:
    message = Everything.decode(Everything(one=Inner(number=9)).encode(0), 0)
    assert message.one == Inner(number=9, later=-1)


def test_default_lists_are_not_shared() -> None:
    first, second = Everything(), Everything()
    first.many.append(Inner())
    assert second.many == []


def test_a_strict_field_is_refused_in_a_version_without_it_and_an_ignorable_one_dropped() -> None:
    assert Tagged(name="a", loose=1).encode(0) == b"\x00\x01a"
    with pytest.raises(ProtocolError, match=r"Tagged\.strict: version 0 has no such field"):
        Tagged(name="a", strict=1).encode(0)
    with pytest.raises(ProtocolError, match=r"Tagged\.note"):
        Tagged(note="x").encode(0)


def test_tagged_fields_are_written_in_order_of_tag_and_only_when_not_default() -> None:
    assert Tagged(name="").encode(2) == bytes.fromhex("01 00000007 00000007 00")
    message = Tagged(note="n", items=[Inner()], once=3)
    assert message.encode(2) == bytes.fromhex(
        "01 00000007 00000007 0300 08 02 00000000ffff0001 02 026ec801 08 0000000000000003"
    )
    assert Tagged.decode(message.encode(2), 2) == message


@pytest.mark.parametrize(
    ("some", "tags"),
    [
        (Inner(), "00"),
        (None, "01 03 01 00"),
        (Inner(number=5), "01 03 08 01 00000005ffff00"),
    ],
)
def test_a_tagged_structure_that_may_be_null_is_written_as_java_writes_it(
    some: Inner | None, tags: str
) -> None:
    message = Tagged(some=some)
    assert message.encode(2) == bytes.fromhex("01 00000007 00000007" + tags)
    assert Tagged.decode(message.encode(2), 2) == message


def test_unknown_tags_are_kept_and_written_back_in_order() -> None:
    newer = Tagged(note="n", once=3).encode(2)
    older = Tagged.decode(newer, 1)
    assert older.unknown_tags == {200: (3).to_bytes(8, "big")}
    assert older.encode(1) == newer
    assert older != Tagged(note="n")


@pytest.mark.parametrize("size", [127, 128, 20000])
def test_a_long_tagged_value_has_its_size_in_front(size: int) -> None:
    message = Tagged(note="x" * size)
    assert Tagged.decode(message.encode(1), 1) == message


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        ("", r"Tagged\.name: its length is truncated"),
        ("00", r"Tagged\.name: is null"),
        ("05 61", r"Tagged\.name: length 4 is more than the 1 bytes left"),
        ("ffffffffff7f", r"Tagged\.name: its length"),
        ("01 00000007 000007", r"Tagged\.loose: needs 4 more bytes"),
        ("01 00000007 00000007", "Tagged: its tagged fields are truncated"),
        ("01 00000007 00000007 ffff03", "Tagged: 65535 tagged fields do not fit"),
        ("01 00000007 00000007 01 05 09 00", "Tagged: tag 5 has 9 bytes, but 1 are left"),
        ("01 00000007 00000007 01 01 03 0261 00", r"Tagged\.note: tag 1 has 1 bytes too many"),
        ("01 00000007 00000007 01 00 05 ffffffff07", r"Tagged\.items: length"),
        ("01 00000007 00000007 00 00", "Tagged version 1 ends at byte 10 of 11"),
    ],
)
def test_bytes_that_are_no_message_name_the_field_and_the_trouble(raw: str, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        Tagged.decode(bytes.fromhex(raw), 1)


def test_a_string_that_is_not_utf_8_has_replacement_characters_as_in_kafka() -> None:
    message = Tagged.decode(bytes.fromhex("03 61ff 00000007 00000007 00"), 1)
    assert message.name == "a\ufffd"


@pytest.mark.parametrize(("version", "raw"), [(0, "00000001 ffff"), (1, "02 00 00")])
def test_an_element_of_an_array_is_never_null(version: int, raw: str) -> None:
    with pytest.raises(ProtocolError, match=r"Names\.names: is null"):
        Names.decode(bytes.fromhex(raw), version)
    with pytest.raises(ProtocolError, match=r"Names\.names: None is not allowed"):
        Names(names=[None]).encode(version)  # type: ignore[list-item]
    assert Names.decode(Names(names=None).encode(version), version) == Names(names=None)


def test_every_negative_length_is_null_as_in_kafka() -> None:
    with pytest.raises(ProtocolError, match=r"Tagged\.name: is null"):
        Tagged.decode(b"\xff\xfe", 0)
    with pytest.raises(ProtocolError, match=r"Tagged\.name: is null"):
        Tagged.decode(b"\xff\xff", 0)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"tiny": 128}, r"Everything\.tiny: 128 does not fit in int8"),
        ({"count": -1}, r"Everything\.count: -1 does not fit in uint32"),
        ({"large": 2**63}, r"Everything\.large: cannot be encoded"),
        ({"text": None}, r"Everything\.text: None is not allowed"),
        ({"text": "\ud800"}, r"Everything\.text: cannot be encoded"),
        ({"text": "x" * 40000}, r"Everything\.text: length 40000 is more than 32767"),
        ({"number": "1"}, r"Everything\.number: cannot be encoded"),
        ({"many": None}, r"Everything\.many: None is not allowed"),
        ({"many": "ab"}, r"Everything\.many: cannot be encoded: expected a list"),
        ({"many": [1]}, r"Everything\.many: cannot be encoded: expected Inner, got int"),
        ({"one": None}, r"Everything\.one: cannot be encoded"),
        ({"ident": "x"}, r"Everything\.ident: cannot be encoded"),
        ({"blob": 5}, r"Everything\.blob: cannot be encoded"),
    ],
)
def test_a_value_that_does_not_fit_names_the_field(values: dict[str, object], what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        Everything(**values).encode(0)  # type: ignore[arg-type]


def test_unknown_versions_fields_and_offsets_are_refused() -> None:
    with pytest.raises(ProtocolError, match="Tagged has versions 0 to 2, not 3"):
        Tagged().encode(3)
    with pytest.raises(TypeError, match="Tagged has no field colour"):
        Tagged(colour=1)  # type: ignore[call-arg]
    with pytest.raises(ProtocolError, match="offset 9 lies outside"):
        Tagged.decode_prefix(b"", 0, 9)


def test_trailing_bytes_are_read_past_only_when_asked() -> None:
    raw = Tagged(name="a").encode(0) + b"more"
    with pytest.raises(ProtocolError, match="ends at byte 3 of 7"):
        Tagged.decode(raw, 0)
    assert Tagged.decode(raw, 0, allow_trailing=True).name == "a"
    assert Tagged.decode_prefix(b"xx" + raw, 0, 2) == (Tagged(name="a"), 5)


def test_repr_shows_fields_and_cuts_long_bytes() -> None:
    assert repr(Inner(number=1)) == "Inner(number=1, later=-1)"
    assert "batch=<1000 bytes>" in repr(Everything(batch=bytes(1000)))
