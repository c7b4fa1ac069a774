"""docs/protocol-extensions.md and docs/protocol-bytes.md are true: every field of kstore's is
there, with its versions, type and default; every example is what a codec that knows only the page
reads and writes, and what kstore's own codec reads and writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.extensions.page import page
from kstore.broker.api import API_TABLE
from kstore.broker.state.metadata.features import FEATURES
from kstore.errors import ErrorCode, error_for
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message, Struct, field_type
from tests.documents.page_codec import Layout, Reader, encode, layouts_and_examples

DOCS = Path(__file__).parents[2] / "docs"
RULES = (DOCS / "protocol-extensions.md").read_text(encoding="utf-8")
BYTES = (DOCS / "protocol-bytes.md").read_text(encoding="utf-8")
LAYOUTS, EXAMPLES = layouts_and_examples(BYTES)
REQUEST_HEADER, RESPONSE_HEADER = LAYOUTS["RequestHeader", 2], LAYOUTS["ResponseHeader", 1]
EACH_EXAMPLE = pytest.mark.parametrize(
    ("layout", "text"),
    [
        pytest.param(layout, text, id=f"{number}-{layout.name}")
        for number, (layout, text) in enumerate(EXAMPLES)
    ],
)
BETWEEN_BROKERS = "controller.broker_requests"
ARRAY = 13
LATER_STRUCTS = {("OffsetFetchRequest", "8-9"), ("OffsetFetchResponse", "8+")}
"""Their older versions have a struct of their own, with the same field in the same place."""
AS_IN_THE_TABLE = {
    ("OffsetFetchRequest", "6-7"): "6-9",
    ("HeartbeatRequest", "0+"): "4+",
    ("HeartbeatResponse", "0+"): "4+",
}
"""Versions of a field whose struct is in several messages."""
KINDS = ["bool", "int8", "int16", "", "int32", "", "int64", "", "uuid", "string", "bytes",
         "records", "struct", "array"]  # fmt: skip


def hex_of(text: str) -> bytes:
    """The bytes of an example: its first 47 columns."""
    return bytes.fromhex("".join(line[:47] for line in text.splitlines()))


def table(title: str) -> list[list[str]]:
    """The rows of the table below a title, without its head."""
    section = RULES.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def read(layout: Layout, text: str) -> tuple[Reader, dict[str, Any]]:
    """An example, read by the layouts of the page alone."""
    reader = Reader(hex_of(text))
    size = reader.number("Size", "int32")
    assert size == reader.rest
    if layout.name.endswith("Request"):
        header = reader.struct(REQUEST_HEADER)
        assert header["RequestApiVersion"] == layout.version
        assert header["RequestApiKey"] == message_class(layout).API_KEY
    elif layout.name == "ApiVersionsResponse":
        reader.number("CorrelationId", "int32")
    else:
        reader.struct(RESPONSE_HEADER)
    values = reader.struct(layout)
    assert reader.rest == 0
    return reader, values


def test_the_page_of_bytes_is_up_to_date() -> None:
    """If this fails: python -m docs.extensions."""
    assert page() == BYTES


@EACH_EXAMPLE
def test_an_example_says_what_its_bytes_are_by_the_layouts(layout: Layout, text: str) -> None:
    reader, values = read(layout, text)
    rows = []
    data = b""
    for line in text.splitlines():
        data += bytes.fromhex(line[:47])
        if words := line[50:]:
            rows.append((data, (len(words) - len(words.lstrip())) // 2, words.strip()))
            data = b""
    assert rows == reader.rows
    assert hex_of(text).endswith(encode(layout, values))


@EACH_EXAMPLE
def test_kstores_codec_reads_and_writes_an_example(layout: Layout, text: str) -> None:
    _, values = read(layout, text)
    body = encode(layout, values)
    message = message_class(layout).decode(body, layout.version)
    assert message.encode(layout.version) == body
    assert_same(message, values)


@EACH_EXAMPLE
def test_a_broker_serves_the_version_of_an_example(layout: Layout, text: str) -> None:
    """It may serve fewer than kstore can read."""
    row = API_TABLE[message_class(layout).API_KEY]
    assert row.min_version <= layout.version <= row.max_version


def message_class(layout: Layout) -> type[Message]:
    """kstore's class of a message."""
    [cls] = {
        each for api in APIS.values() for each in (api.request, api.response)
        if each.__name__ == layout.name
    }  # fmt: skip
    return cls


def assert_same(message: Struct, values: dict[str, Any]) -> None:
    """kstore's codec has read what the page's has."""
    assert not message.unknown_tags
    for name, value in values.items():
        attribute = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
        got = getattr(message, attribute)
        if isinstance(value, dict):
            assert_same(got, value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            assert len(got) == len(value)
            for row, expected in zip(got, value, strict=True):
                assert_same(row, expected)
        elif isinstance(value, str):
            assert str(got) == value
        else:
            assert (bytes(got) if isinstance(got, memoryview) else got) == value


def extended(cls: type[Struct], place: str) -> Iterator[tuple[str, str, int, str, str]]:
    """(place, versions, tag, field and type, value if absent) of each of kstore's fields."""
    for name, spec in cls.SPECS.items():
        kind, element, struct = field_type(cls, name)
        if spec.tag >= 10_000:
            wire = "".join(part.capitalize() for part in name.split("_"))
            default = "empty" if spec.factory is not None else str(spec.default).lower()
            words = KINDS[kind] + (f" of {KINDS[element]}" if kind == ARRAY and not struct else "")
            yield place, spec.versions, spec.tag, f"`{wire}` {words}", default
        if struct is not None:
            is_partition = "partition" in name and name != "topic_partitions"
            below = "partition" if is_partition or place == "topic" else "topic"
            yield from extended(struct, below)


def fields_of_kstore() -> set[tuple[str, str, str, int, str, str]]:
    """Those of messages that clients send and get."""
    found = set()
    for api in APIS.values():
        if api.module.startswith(BETWEEN_BROKERS):
            continue
        for cls, place in ((api.request, "request"), (api.response, "response")):
            for where, versions, tag, words, default in extended(cls, place):
                found.add((cls.__name__, versions, where, tag, words, default))
    return {
        (cls, AS_IN_THE_TABLE.get((cls, versions), versions), *rest)
        for cls, versions, *rest in found
        if (cls, versions) not in LATER_STRUCTS
    }  # type: ignore[misc]


def test_every_field_of_kstores_is_in_the_table_and_no_other() -> None:
    shown = {
        (message, versions, place, int(tag), words, absent.partition(":")[0])
        for message, versions, place, tag, words, absent in table("All fields")
    }
    assert shown == fields_of_kstore()


def test_every_message_with_a_field_of_kstores_has_a_layout_and_an_example() -> None:
    fields = {(row[0], row[3], row[4].split("`")[1]) for row in fields_of_kstore()}
    in_layouts = {
        (layout.name, each.tag, each.name)
        for layout in LAYOUTS.values()
        for each in tagged_below(layout)
        if each.tag >= 10_000
    }
    assert in_layouts == fields
    in_examples = {
        (layout.name, int(tag), name)
        for layout, text in EXAMPLES
        for tag, name in re.findall(r" tag (\d{5})\n.* size \d+\n.* (\w+): ", text)
    }
    assert in_examples == fields


def tagged_below(layout: Layout) -> Iterator[Layout]:
    """The tagged fields of a struct and of those in it."""
    yield from layout.tagged
    for each in (*layout.fields, *layout.tagged):
        yield from tagged_below(each)


def test_the_errors_have_their_codes_and_are_retriable_as_said() -> None:
    rows = table("Errors")
    assert len(rows) >= 10
    for code, name, retriable, where, _ in rows:
        bare = name.strip("`")
        assert getattr(ErrorCode, bare) == int(code)
        if bare != "CORRUPT_MESSAGE":  # retriable in Kafka, not with given offsets
            assert error_for(int(code), produce="UseOffset" in where).retriable is (
                retriable == "yes"
            )
    own = {value for name, value in vars(ErrorCode).items() if name.isupper() and value > 20_000}
    assert own <= {int(row[0]) for row in rows}


def test_the_features_that_brokers_list_are_on_the_page() -> None:
    named = set(re.findall(r"^\| `(kstore\.kip\d+)` \|", RULES, re.M))
    assert named == {name for name in FEATURES if name.startswith("kstore.kip")}


@pytest.mark.parametrize("number", ["232", "253", "359", "391"])
def test_the_page_of_each_document_is_linked_and_has_a_picture(number: str) -> None:
    assert f"(documents/kip-{number}.md)" in RULES
    text = (DOCS / "documents" / f"kip-{number}.md").read_text(encoding="utf-8")
    assert f"(kip-{number}.svg)" in text
    anchors = set(re.findall(r"\(\.\./protocol-extensions\.md#([\w-]+)\)", text))
    titles = re.findall(r"^##+ (.+)$", RULES, re.M)
    assert anchors
    assert anchors <= {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
