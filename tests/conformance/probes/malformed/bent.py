"""Requests with generated errors: every field of every API with boundary values, null, unknown
names, empty and repeated arrays. Also frames that are not requests: cut at each boundary, with
extra bytes, with too large counts, with lengths that point outside, with unknown tags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kstore.errors import ProtocolError
from kstore.protocol.registry import (
    APIS,
    decode_response,
    request_header_version,
)
from kstore.protocol.schema import Message
from tests.conformance import wire
from tests.conformance.probes.compare import Difference, differences, plain
from tests.conformance.probes.malformed.encoding import (
    Part,
    borders,
    size_of,
    tree,
)
from tests.conformance.probes.peer import CORRELATION_ID, Peer
from tests.conformance.probes.recorded.answers import Answers, as_recorded
from tests.conformance.probes.seeds import NOT_BENT, Unit, prepare, seed
from tests.reference.record_batch import uvarint

# If one broker does not answer within the first timeout, the other is not expected to. If one did
# answer, both are given up after the second.
SHORT_S, LONG_S = 1.0, 15.0


# Fields whose values make Kafka's answer depend on its speed or on earlier requests. After a batch
# that only one broker appended, the offsets of all later ones differ.
_NOT_DOUBLED = ("topic_data", "topic_data[0].partition_data")
_LEFT_OUT = {"timeout_ms": (1, 2), "validate_only": (0,)}


class Bend(NamedTuple):
    """One change of one part: its replacement, and what happens to its children."""

    label: str
    data: bytes | None = None  # None: unchanged
    content: bytes | None = None  # of a string or bytes
    copies: int = 1  # of the children


_NUMBERS = {
    "Bool": (">b", (0, 1, 2, -1)),
    "Int8": (">b", (-128, -1, 0, 1, 2, 3, 4, 5, 8, 16, 32, 127)),
    "Int16": (">h", (-32768, -2, -1, 0, 1, 2, 32767)),
    "UInt16": (">H", (0, 1, 65535)),
    "Int32": (">i", (-(1 << 31), -2, -1, 0, 1, 2, (1 << 31) - 1)),
    "UInt32": (">I", (0, 1, (1 << 32) - 1)),
    "Int64": (">q", (-(1 << 63), -2, -1, 0, 1, 2, (1 << 63) - 1)),
    "Float64": (">d", (float("nan"), float("inf"), -1.0, 0.0, 1e308)),
}
_UUIDS = {"zero": 0, "metadata's": 1, "unknown": 0x1111_2222_3333_4444 << 64}


def _bends(part: Part, name: str) -> Iterator[Bend]:
    if part.kind in _NUMBERS:
        layout, values = _NUMBERS[part.kind]
        for value in values:
            data = struct.pack(layout, value)
            left_out = _LEFT_OUT.get(part.path.rpartition(".")[2], ())
            if data != part.data and value not in left_out:
                yield Bend(f"= {value}", data)
    elif part.kind == "Uuid":
        for label, number in _UUIDS.items():
            yield Bend(f"= {label} id", number.to_bytes(16, "big"))
    elif part.kind in ("String", "Bytes", "Records"):
        yield Bend("= null", size_of(-1, compact=part.compact, wide=part.kind != "String"), b"")
        for label, content in _contents(part, name):
            size = size_of(len(content), compact=part.compact, wide=part.kind != "String")
            yield Bend(f"= {label}", size, content)
    elif part.kind == "Array":
        count = len(part.children)
        yield Bend("= null", size_of(-1, compact=part.compact, wide=True), copies=0)
        if count:
            yield Bend("= []", size_of(0, compact=part.compact, wide=True), copies=0)
            if part.path not in _NOT_DOUBLED:
                yield Bend("doubled", size_of(2 * count, compact=part.compact, wide=True), copies=2)
    elif part.kind == "Struct" and part.data:
        yield Bend("= null", b"\xff", copies=0)


def _contents(part: Part, name: str) -> Iterator[tuple[str, bytes]]:
    yield "''", b""
    if part.kind == "String":
        yield "an absent name", f"{name}-absent".encode()
        yield "a bad name", f"{name} bad/ü".encode()
        yield "a long name", f"{name}-".encode().ljust(300, b"x")
        yield "no UTF-8", name.encode() + b"\xff\xfe"
    else:
        yield "three bytes", b"\x00\xff\x03"


def _huge(part: Part, name: str) -> Iterator[Bend]:
    """Counts and lengths that point outside the frame, and negative ones."""
    if part.kind in ("Array", "String", "Bytes", "Records"):
        if part.compact:
            for length in (1 << 20, (1 << 31) - 2, (1 << 32) - 1):
                yield Bend(f"claims {length}", uvarint(length), None)
            yield Bend("claims an endless varint", b"\xff" * 10, None)
        else:
            layout = ">h" if part.kind == "String" else ">i"
            for length in (-2, 32_000 if part.kind == "String" else 1 << 20, -32768):
                yield Bend(f"claims {length}", struct.pack(layout, length), None)
            if part.kind != "String":
                yield Bend("claims 2147483647", struct.pack(">i", (1 << 31) - 1), None)
    elif part.kind == "Tags":
        yield Bend("claims 100 tags", uvarint(100), None)


def _bent(part: Part, bend: Bend, root: Part) -> bytes:
    if bend.data is not None:
        part.data = bend.data
    if bend.content is not None:
        part.children = [Part("", "Content", bend.content)]
    part.children = part.children * bend.copies
    return root.to_bytes()


Maker = Callable[[Unit], bytes]


def _changed(changes: Callable[[Part, str], Iterator[Bend]], number: int, index: int) -> Maker:
    """The request with one of the changes of part `number` of its tree."""

    def make(unit: Unit) -> bytes:
        root = tree(seed(unit), unit.version)
        part = list(root.walk())[number]
        return _bent(part, list(changes(part, unit.fresh))[index], root)

    return make


def _tagged(tags: bytes) -> Maker:
    """The request with its last tags replaced by these bytes."""

    def make(unit: Unit) -> bytes:
        root = tree(seed(unit), unit.version)
        last = root.children[-1]
        last.children, last.data = [], tags
        return root.to_bytes()

    return make


_TAGS = {
    "with an unknown tag": b"\x01\xcf\x0f\x03abc",
    "with an unknown tag in the private range": b"\x01\xf8\xf2\x01\x03abc",
    "with an empty unknown tag": b"\x01\xcf\x0f\x00",
    "with a tag twice": b"\x02\xcf\x0f\x01a\xcf\x0f\x01b",
    "with tags out of order": b"\x02\xcf\x0f\x01a\xce\x0f\x01b",
    "with a tag that is longer than the frame": b"\x01\xcf\x0f\x7fabc",
    "with a tag without its size": b"\x01\xcf\x0f",
}


def _cut(at: int, plus: bytes = b"") -> Maker:
    def make(unit: Unit) -> bytes:
        whole = tree(seed(unit), unit.version).to_bytes()
        return whole[:at] + plus if at >= 0 else whole + plus

    return make


def _makers(unit: Unit, *, frames: bool) -> Iterator[tuple[str, Maker]]:
    """Every invalid request of an API at a version, with a description of the error."""
    root = tree(seed(unit), unit.version)
    parts = list(root.walk())
    yield "as it should be", _cut(-1)
    for changes in (_bends, _huge) if frames else (_bends,):
        for number, part in enumerate(parts):
            for index, bend in enumerate(changes(part, "")):
                yield f"{part.path} {bend.label}", _changed(changes, number, index)
    if not frames:
        return
    if parts[-1].kind == "Tags" and not root.children[-1].children:
        for label, tags in _TAGS.items():
            yield label, _tagged(tags)
    for at, path in borders(root).items():
        yield f"cut before {path}", _cut(at)
    yield "with a byte behind", _cut(-1, b"\x00")
    yield "with nine bytes behind", _cut(-1, b"\xff" * 9)


Seen = Callable[[Message], Message]


class _Side:
    """One broker in a unit: sends raw requests and receives the answers."""

    def __init__(self, unit: Unit, seen: Seen) -> None:
        self.unit = unit
        self._seen = seen
        prepare(unit)
        asked = (unit.api_key, unit.version)
        self.header = struct.pack(">hhih", *asked, CORRELATION_ID, 5) + b"probe"
        if request_header_version(*asked) == 2:
            self.header += b"\x00"

    def send(self, number: int, make: Maker) -> None:
        self.unit.number = number
        frame = self.header + make(self.unit)
        peer = self.unit.peer
        try:
            peer.connect().sendall(struct.pack(">i", len(frame)) + frame)
        except OSError:  # closed between two requests
            peer.reset()
            peer.connect().sendall(struct.pack(">i", len(frame)) + frame)

    def take(self, patience_s: float) -> Any:
        """The normalized answer, or a description of what came instead."""
        unit = self.unit
        connection = unit.peer.connect()
        connection.settimeout(patience_s)
        try:
            frame = wire.read_frame(connection)
            connection.settimeout(LONG_S)
        except TimeoutError:
            return "no answer"
        except OSError:
            unit.peer.reset()
            return "closed"
        try:
            _, answer = decode_response(frame, APIS[unit.api_key].response, unit.version)
        except ProtocolError as error:
            unit.peer.reset()
            return f"not understood: {error}"
        return as_recorded(plain(self._seen(answer), ours=unit.owns))

    def reset(self) -> None:
        self.unit.peer.reset()


class _RecordedSide:
    """The same for recorded answers."""

    def __init__(self, said: list[Any]) -> None:
        self._said = said
        self._number = 0

    def send(self, number: int, make: Maker) -> None:
        """Sends nothing: the answer with this number is read next."""
        self._number = number

    def take(self, patience_s: float) -> Any:
        return self._said[self._number]

    def reset(self) -> None:
        """There is no connection to close."""


def _as_one(case: str, version: int, found: list[tuple[str, Any, Any]]) -> Difference:
    """Merge all differences of one answer into one."""
    if len(found) == 1:
        return Difference(case, version, *found[0])
    paths = ", ".join(path.rpartition(".")[2] for path, _, _ in found)
    theirs, ours = ([row[side] for row in found] for side in (1, 2))
    return Difference(case, version, paths, theirs, ours)


def probe_unit(
    kafka: Peer | Answers, kstore: Peer, api_key: int, version: int, *, frames: bool
) -> Iterator[Difference]:
    """Send every invalid request of an API at a version to both brokers."""
    unit = Unit(kstore, api_key, version)
    yield from ask_both(kafka, unit, f"bent {APIS[api_key].name}", _makers(unit, frames=frames))


def ask_both(
    kafka: Peer | Answers,
    unit: Unit,
    name: str,
    requests: Iterable[tuple[str, Maker]],
    seen: Seen = lambda answer: answer,
) -> Iterator[Difference]:
    """Send the requests to both brokers, one after the other. ``unit`` belongs to kstore. ``seen``
    says what part of an answer is compared.
    """
    version = unit.version
    key = f"{name} v{version}"
    unit.peer.reset()
    ours = _Side(unit, seen)
    makers = list(requests)
    theirs: _Side | _RecordedSide
    noted: list[Any] = []
    if isinstance(kafka, Answers):
        theirs = _RecordedSide(kafka.said(key))
    else:
        kafka.reset()
        theirs = _Side(unit.of(kafka), seen)
        kafka.noted[key] = noted
    for number, (label, make) in enumerate(makers):
        said = _both_answers(theirs, ours, number, make)
        noted.append(said[0])
        found = list(differences(*said))
        if found:
            yield _as_one(f"{name}, {label}", version, found)
    for side in (theirs, ours):
        side.reset()


def _both_answers(
    theirs: _Side | _RecordedSide, ours: _Side, number: int, make: Maker
) -> list[Any]:
    sides = (theirs, ours)
    for side in sides:
        side.send(number, make)
    said = [side.take(SHORT_S) for side in sides]
    if said[0] != said[1]:
        said = [
            side.take(LONG_S) if what == "no answer" else what
            for side, what in zip(sides, said, strict=True)
        ]
    if "no answer" in said:
        for side in sides:
            side.reset()
    return said


def units(kafka: Peer | Answers, kstore: Peer, *, every_version: bool) -> list[tuple[int, int]]:
    """The APIs and versions that both brokers serve. By default only the versions at which the form
    of an API changes most: the first, the last, and both sides of the first flexible one.
    """
    found = []
    for key, api in APIS.items():
        if key in NOT_BENT or key not in kafka.versions or key not in kstore.versions:
            continue
        low = max(kafka.versions[key][0], kstore.versions[key][0], api.min_version)
        high = min(kafka.versions[key][1], kstore.versions[key][1], api.max_version)
        chosen = {low, high}
        if low < api.flexible_from <= high:
            chosen |= {api.flexible_from - 1, api.flexible_from}
        found += [
            (key, version)
            for version in (range(low, high + 1) if every_version else sorted(chosen))
        ]
    return found


def wrong_versions(kafka: Peer | Answers) -> Iterator[tuple[str, bytes]]:
    """A request of each API at unsupported versions, and of unknown APIs."""
    for key in (*sorted(kafka.versions), -1, 93, 9999, 25300, 32767):
        low, high = kafka.versions.get(key, (0, 0))
        for version in {-1, low - 1, high + 1, 32767}:
            for header in (1, 2):
                frame = struct.pack(">hhih", key, version, 1, 5) + b"probe" + b"\x00" * (header - 1)
                body = b"\x00" * 8
                yield (
                    f"API {key} at version {version} with header {header}",
                    struct.pack(">i", len(frame + body)) + frame + body,
                )
