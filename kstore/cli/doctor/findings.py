"""What a check is and what it finds. Only data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["Check", "Finding", "Limits", "NotChecked", "Severity", "counted"]

T = TypeVar("T")


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 partition, 2,000 partitions."""
    return f"{number:,} {noun}" + "s" * (number != 1)


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Something does not work, or records can be lost now."""
    WARNING = "warning"
    """It works now. It will fail later, or it costs more than necessary."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem."""

    severity: Severity
    subject: str
    """The subject: a topic, a broker, a folder, a setting."""
    evidence: str
    """What was measured or read."""
    meaning: str
    """The consequence."""
    fix: str
    """A command, or the change to make."""

    def row(self, check: str) -> dict[str, Any]:
        """The finding as an object of `--json`."""
        return {"check": check} | asdict(self)


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A check that could not run, and why."""

    check: str
    reason: str


class Check(NamedTuple, Generic[T]):
    """A row of a table of checks. ``find`` yields nothing if all is well."""

    name: str
    about: str
    """What it checks, in a few words."""
    find: Callable[[T, Limits], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The values from which on something is a finding."""

    free_percent: float = 15.0
    """Less free space is a warning, less than a third of it an error."""
    lag_records: int = 10_000
    transaction_ms: int = 300_000
    """A transaction that has been open for longer."""
    hanging_ms: int | None = None
    """A transaction that no coordinator knows, and that has not been written to for longer; None:
    the brokers' transaction.max.timeout.ms.
    """
    sync_ms: float = 100.0
    """The median of several forced writes of 4 KB."""
    open_files: int = 10_000
    memory_maps: int = 65_530
    future_ms: int = 3_600_000
    """A record whose timestamp is farther ahead of this machine's clock."""
    certificate_days: float = 14.0
    """A certificate that expires sooner."""
    clock_ms: int = 2_000
    """A broker's clock that is farther ahead of this machine's."""
