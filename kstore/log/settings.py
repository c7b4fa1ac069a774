"""A log's settings: Kafka's topic configs in snake_case, with Kafka's defaults. FlushPolicy says
when appended records are on disk. This module reads no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Never

from kstore.items import check_bool, check_int, check_items, check_number

__all__ = ["FlushPolicy", "LogConfig"]

_DAY_MS = 86_400_000
_UNLIMITED = 2**63 - 1
_MAX_INT = 2**31 - 1
_RANGES: dict[str, tuple[int, int]] = {
    "segment_bytes": (14, _MAX_INT),
    "segment_index_bytes": (4, _MAX_INT),
    "index_interval_bytes": (0, _MAX_INT),
    "retention_ms": (-1, _UNLIMITED),
    "retention_bytes": (-1, _UNLIMITED),
    "max_compaction_lag_ms": (1, _UNLIMITED),
    "min_cleanable_dirty_ratio": (0, 1),
    "max_message_bytes": (0, _MAX_INT),
    "flush_messages": (1, _UNLIMITED),
    "compression_gzip_level": (-1, 9),
    "compression_lz4_level": (1, 17),
    "compression_zstd_level": (-131_072, 22),
    "min_insync_replicas": (1, _MAX_INT),
}
"""The least and largest values, as in Kafka, except that segments may be small. For all others 0
and 2^63 - 1.
"""
_WORDS = {
    "cleanup_policy": ("delete", "compact"),
    "compression_type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message_timestamp_type": ("CreateTime", "LogAppendTime"),
}


class FlushPolicy(Enum):
    """When an append is on disk: when the system writes it (OS), within an interval, or before
    ``append`` returns (ALWAYS).
    """

    OS = "os"
    INTERVAL = "interval"
    ALWAYS = "always"

    @classmethod
    def _missing_(cls, value: object) -> Never:
        raise ValueError(f"flush is {value!r}: use {', '.join(row.value for row in cls)}")


@dataclass(frozen=True)
class LogConfig:
    """The settings of a log: Kafka's topic configs with underscores, such as ``segment_bytes`` for
    ``segment.bytes``. Sizes are in bytes, times in ms. No limit is -1 for ``retention_ms`` and
    ``retention_bytes``, and the largest number, 2^63 - 1, for others. Defaults and meanings are
    Kafka's.

    Raises TypeError for a value of another type, such as text for a number, and ValueError for a
    value that is out of range.
    """

    segment_bytes: int = 2**30
    segment_ms: int = 7 * _DAY_MS
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _UNLIMITED
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = _UNLIMITED
    message_timestamp_after_max_ms: int = 3_600_000
    flush_messages: int = _UNLIMITED
    flush_ms: int = _UNLIMITED
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    segment_jitter_ms: int = 0
    min_insync_replicas: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.cleanup_policy, str):
            names = tuple(name.strip() for name in self.cleanup_policy.split(",") if name.strip())
            object.__setattr__(self, "cleanup_policy", names)
        for name, default in _DEFAULTS:
            value = getattr(self, name)
            if isinstance(default, bool):
                check_bool(name, value)
            elif isinstance(default, (int, float)):
                check = check_int if isinstance(default, int) else check_number
                check(name, value, *_RANGES.get(name, (0, _UNLIMITED)))
            elif isinstance(default, tuple):
                check_items(name, value, "delete and compact")
                words = tuple(value)
                for word in words:
                    _check_word(name, word)
                object.__setattr__(self, name, words)
            else:
                _check_word(name, value)

    @property
    def compacts(self) -> bool:
        """True if the cleanup policy includes compact."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True if the cleanup policy includes delete."""
        return "delete" in self.cleanup_policy

    @property
    def compression_level(self) -> int:
        """The level for the codec in ``compression_type``; -1 is the codec's default."""
        return int(getattr(self, f"compression_{self.compression_type}_level", -1))

    def with_changes(self, **changes: Any) -> LogConfig:
        """A copy with some settings changed. Raises TypeError for an unknown name or a wrong type,
        and ValueError for a value that is out of range.
        """
        unknown = set(changes) - {field.name for field in fields(self)}
        if unknown:
            raise TypeError(f"{sorted(unknown)} are not topic configs of a log: see LogConfig")
        return replace(self, **changes)

    @classmethod
    def from_topic_configs(cls, configs: Mapping[str, Any]) -> LogConfig:
        """Build from Kafka's dotted names; values are text or already typed. Other names are
        ignored. Raises ValueError for an invalid value.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = configs.get(field.name.replace("_", "."))
            if value is not None:
                values[field.name] = _typed(field.name, field.default, value)
        if configs.get("internal.segment.bytes") is not None:  # without segment.bytes' lower bound
            values["segment_bytes"] = int(configs["internal.segment.bytes"])
        return cls(**values)


_DEFAULTS = [(field.name, field.default) for field in fields(LogConfig)]


def _check_word(name: str, value: object) -> None:
    if value not in _WORDS[name]:
        raise ValueError(f"{name} has {value!r}: use {', '.join(_WORDS[name])}")


def _typed(name: str, default: Any, value: Any) -> Any:
    if isinstance(default, tuple):
        names = value.split(",") if isinstance(value, str) else value
        return tuple(part.strip() for part in names if part.strip())
    if not isinstance(value, str):
        return value
    if isinstance(default, bool):
        return value.strip().lower() == "true"
    if isinstance(default, str):
        return value.strip()
    try:
        return type(default)(value)
    except ValueError:
        dotted = name.replace("_", ".")
        raise ValueError(f"{dotted} is {value!r}: a number is needed") from None
