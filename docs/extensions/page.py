"""docs/protocol-bytes.md, made from the classes in kstore.protocol and the examples here."""

from __future__ import annotations

from collections.abc import Iterator

from docs.extensions.examples import EXAMPLES, Example
from docs.extensions.layouts import Line, header_lines, hex_lines, layout, lines
from kstore.protocol.headers import RequestHeader, ResponseHeader
from kstore.protocol.registry import APIS, response_header_version
from kstore.protocol.schema import Message

__all__ = ["page"]

CORRELATION_ID = 7
INTRODUCTION = """\
# Protocol extensions in bytes

This page has the layout of every message that kstore extends, and examples in hexadecimal.
[Protocol extensions](protocol-extensions.md) describes the fields. A test decodes and encodes the
examples, with the layouts of this page and with kstore's own codec.

Each layout is for the newest version of the message that has the fields. The table of
[all fields](protocol-extensions.md#all-fields) lists the other versions. Their Kafka fields differ,
but the tags are in the same structs.

This page is generated from the code. `python -m docs.extensions` writes it.

## Types

All numbers are big-endian. A *varint* is an unsigned number in groups of 7 bits, the lowest group
first. If the highest bit of a byte is set, more bytes follow (128 is `80 01`).

| Type | Bytes |
|---|---|
| `bool`, `int8`, `int16`, `int32`, `int64` | 1, 1, 2, 4, 8; two's complement; true is 1 |
| `uuid` | 16 |
| `string`, `bytes`, `records` | varint: length + 1; then UTF-8, bytes, or record batches |
| `int16 string` | int16: length; then UTF-8. Only `ClientId` in the header has it |
| `array` | varint: number of elements + 1; then each element, with the fields below the array |
| `struct` | the fields below it |
| `nullable struct` | int8: 1, or -1 for null; then the struct |
| `nullable` others | null is `00`, and `ff ff` in an `int16 string` |
| `tags` | varint: the number of tagged fields; then each tagged field, in ascending order of tags |
| a tagged field | its tag (varint), the size of its value in bytes (varint), the value |

Every message, every struct, and every header except response header version 0 ends with `tags`,
which is `00` if there are none. This includes structs inside tagged fields. In a layout, the tagged
fields are below `tags`, with tag, name and type. A tagged field with its default value is not sent.
Skip tags that you do not know.

A frame is an int32 with the size of the rest, a header, and the message. All requests on this page
have header version 2. Their responses have header version 1, except the response to ApiVersions,
which has header version 0.

"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Headers\n\n"]
    parts += [_block(layout(RequestHeader, 2)), _block(layout(ResponseHeader, 1))]
    parts.append("Response header version 0 has only `CorrelationId`.\n\n")
    for key in dict.fromkeys(example.api_key for example in EXAMPLES):
        parts.append(f"## {APIS[key].name}\n\nAPI key {key}.\n\n")
        shown: set[tuple[type[Message], int]] = set()
        for example in EXAMPLES:
            if example.api_key == key:
                parts += _example(example, shown)
    return "".join(parts).rstrip("\n") + "\n"


def _example(example: Example, shown: set[tuple[type[Message], int]]) -> Iterator[str]:
    cls = type(example.message)
    if (cls, example.version) not in shown:
        shown.add((cls, example.version))
        yield _block(layout(cls, example.version))
    yield f"{example.words}\n\n{_block(_frame(example))}"


def _frame(example: Example) -> str:
    body = [*_header(example), *lines(example.message, example.version)]
    size = sum(len(line.data) for line in body)
    return hex_lines([Line(size.to_bytes(4), 0, f"Size: int32 {size}"), *body])


def _header(example: Example) -> Iterator[Line]:
    key, version = example.api_key, example.version
    if isinstance(example.message, APIS[key].request):
        yield from header_lines(key, version, CORRELATION_ID)
        return
    found = lines(ResponseHeader(correlation_id=CORRELATION_ID), 1)
    yield next(found)
    if response_header_version(key, version) == 1:
        yield from found


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n\n"
