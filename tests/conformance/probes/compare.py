"""Normalizes the answers of two brokers for comparison: nested dicts and lists. Values that may
differ between brokers are replaced, and rows of other probes are left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kstore.protocol.metadata.api_versions import ApiVersionsResponse
from kstore.protocol.schema import ZERO_UUID, Struct


class Difference(NamedTuple):
    """A difference between two answers: the path to the field, and the value of each broker."""

    case: str
    version: int
    path: str
    kafka: Any
    kstore: Any
    versions: str = ""  # versions with the same difference

    def __str__(self) -> str:
        """One line, without the numbers that distinguish names between versions."""
        path = _without_numbers(self.path)
        said = [_without_numbers(repr(answer)) for answer in (self.kafka, self.kstore)]
        where = f"{self.case} v{self.versions or self.version}: {path}"
        return f"{where}: Kafka {said[0]}, kstore {said[1]}"


_OWN_NAME = re.compile(r"\b(p[dm])-\d+-v\d+(?:-\d+)?|\b(probe(?:-[a-z]+)+)-\d+\b")


def _without_numbers(text: str) -> str:
    return _OWN_NAME.sub(r"\1\2", text)


def together(found: list[Difference]) -> list[Difference]:
    """Merge equal differences of a case at several versions into one that names the versions."""
    rows: dict[str, list[Difference]] = {}
    for difference in found:
        rows.setdefault(str(difference._replace(version=0)), []).append(difference)
    return [
        same[0]._replace(versions=_ranges(sorted({row.version for row in same})))
        for same in rows.values()
    ]


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def plain(value: Any, field: str = "", *, ours: Callable[[str], bool] = lambda _: True) -> Any:
    """An answer without values that may differ; rows that are not `ours` are left out."""
    if isinstance(value, ApiVersionsResponse):
        value = _without_tables(value)
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name), name, ours=ours) for name in value.SPECS} | {
            "unknown_tags": sorted(value.unknown_tags or ())
        }
    if isinstance(value, list):
        if field == "partitions" and all(isinstance(item, int) for item in value):
            return sorted(value)  # a set
        rows = [row for row in value if ours(_label(row)) and not _is_own_setting(row, field)]
        return _by_label([plain(row, field, ours=ours) for row in rows])
    return _REPLACED[field](value) if field in _REPLACED else _bytes_as_text(value)


def _without_tables(answer: ApiVersionsResponse) -> ApiVersionsResponse:
    """probe.py compares the versions once. Omitted features and kstore's own fields are not
    compared.
    """
    if answer.error_code == 0:
        answer.api_keys = []
    own = ("kstore.", "share.")
    for features in (answer.supported_features, answer.finalized_features):
        features[:] = [row for row in features if not row.name.startswith(own)]
    return answer


# The fields that identify a row of an array, the best first: the order of rows is not compared.
_LABELS = (
    "name", "api_key", "topic", "topic_name", "group_id", "transactional_id", "resource_name",
    "partition_index", "partition", "index", "key", "member_id",
)  # fmt: skip


def _is_own_setting(row: Any, field: str) -> bool:
    return field == "configs" and _label(row).startswith("kstore.")


def _label(row: Any) -> str:
    for label in _LABELS:
        value = getattr(row, label, None)
        if isinstance(value, str) and value:
            return value
    return ""


def _by_label(rows: list[Any]) -> Any:
    """Put rows that have a name under it."""
    for label in _LABELS:
        if rows and all(isinstance(row, dict) and row.get(label) is not None for row in rows):
            named: dict[str, Any] = {}
            for row in rows:
                key = str(row[label])
                while key in named:
                    key += " again"
                named[key] = row
            return named
    return sorted(rows, key=repr) if rows and isinstance(rows[0], dict) else rows


def _bytes_as_text(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:12]}" if data else "0 bytes"
    return value


def _unless(*plain_values: Any) -> Callable[[Any], Any]:
    return lambda value: value if value in plain_values else "<some>"


# As Java's UUID and Kafka's Uuid are written.
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|^[\w-]{22}$")


def _without_uuid(value: Any) -> Any:
    return _UUID.sub("<uuid>", value or "")


# Fields that each broker fills in its own way.
_REPLACED: dict[str, Callable[[Any], Any]] = {
    "throttle_time_ms": lambda value: 0,
    "host": _unless(""),
    "port": _unless(-1, 0),
    "cluster_id": _unless(None),
    "topic_id": lambda value: value if value == ZERO_UUID else "<some>",
    "session_id": _unless(0),
    "producer_id": _unless(-1),
    "error_message": _unless(None),
    "acknowledge_error_message": _unless(None),
    "batch_index_error_message": _unless(None),
    "status_detail": _unless(""),
    "member_id": _without_uuid,
    "leader": lambda value: _without_uuid(value) if isinstance(value, str) else value,
    "log_append_time_ms": _unless(-1),
    "client_host": lambda value: "<host>",
    "finalized_features_epoch": _unless(-1),
    "client_instance_id": _unless(ZERO_UUID),
    "subscription_id": _unless(0),
    "log_dir": _unless(""),
    "total_bytes": _unless(-1),
    "usable_bytes": _unless(-1),
    "start_timestamp": _unless(-1),
    "last_timestamp": _unless(-1),
    "transaction_start_time_ms": _unless(-1),
}


UNSET = -1


def differences(kafka: Any, kstore: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every difference between two normalized answers."""
    if isinstance(kafka, dict) and isinstance(kstore, dict):
        for name in sorted(kafka.keys() | kstore.keys()):
            theirs, ours = kafka.get(name), kstore.get(name)
            if name not in kafka and ours == UNSET:
                continue  # a field of kstore, newer than the recorded answers
            yield from differences(theirs, ours, f"{path}.{name}".lstrip("."))
    elif isinstance(kafka, list) and isinstance(kstore, list) and len(kafka) == len(kstore):
        for index, pair in enumerate(zip(kafka, kstore, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif kafka != kstore:
        yield path, kafka, kstore
