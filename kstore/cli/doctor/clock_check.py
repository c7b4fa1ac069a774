"""The check of this machine's clock, which matters on a broker's machine and on a client's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from kstore.cli.doctor.findings import Finding, Limits, Severity

__all__ = ["CLOCK_ABOUT", "clock", "clock_finding", "kernel_clock_state"]

CLOCK_ABOUT = "whether the clock is synchronised"
TIME_ERROR = 5
"""What adjtimex returns if nothing keeps the clock synchronised."""
TIMEX_BYTES = 512
"""Larger than its struct. All zero reads without a change."""


def kernel_clock_state() -> int:
    """What adjtimex returns: 0 to 4 for a synchronised clock, -1 if it is not permitted."""
    return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES)))


def clock_finding(state: int) -> Iterator[Finding]:
    """The meaning of a state of the clock."""
    if state == TIME_ERROR:
        yield Finding(
            Severity.WARNING, "clock",
            "the kernel says that its clock is not synchronised (adjtimex)",
            "Retention, timestamps and token lifetimes follow this clock. It may be wrong.",
            "timedatectl set-ntp true (or install chrony)",
        )  # fmt: skip


def clock(_: object, limits: Limits) -> Iterator[Finding]:
    """Whether the kernel reports that the clock is synchronised."""
    return clock_finding(kernel_clock_state())
