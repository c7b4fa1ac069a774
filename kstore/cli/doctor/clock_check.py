"""The check of this machine's clock, which matters on a broker's machine and on a client's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from kstore.cli.doctor.findings import Finding, Limits, Severity

__all__ = ["CLOCK_ABOUT", "clock", "clock_finding", "kernel_clock_state"]

CLOCK_ABOUT = "whether the clock is synchronised"
TIME_ERROR = 5
"""What adjtimex returns while nothing keeps the clock synchronised."""
TIMEX_BYTES = 512
"""More than its struct needs; all zero asks and changes nothing."""


def kernel_clock_state() -> int:
    """What adjtimex says: 0 to 4 for a synchronised clock, -1 where it may not be asked."""
    return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES)))


def clock_finding(state: int) -> Iterator[Finding]:
    """What a state of the clock means."""
    if state == TIME_ERROR:
        yield Finding(
            Severity.WARNING, "clock",
            "the kernel says that its clock is not synchronised (adjtimex)",
            "Retention, timestamps and token lifetimes follow this clock. It may be wrong.",
            "timedatectl set-ntp true (or install chrony)",
        )  # fmt: skip


def clock(_: object, limits: Limits) -> Iterator[Finding]:
    """Whether the kernel says that something keeps the clock right."""
    return clock_finding(kernel_clock_state())
