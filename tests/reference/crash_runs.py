"""Run work in a child process, kill it with SIGKILL at a random moment, and collect what it had
acknowledged.

The child is forked, so that it begins to work at once; what it acknowledges goes through a pipe
before anything else is done. Nothing of the child's is cleaned up: that is the point.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
import traceback
from collections.abc import Callable

_ROW = struct.Struct("<qqq")
Acknowledge = Callable[[int, int, int], None]
"""Tell the parent three numbers, which mean what the work says; returns when they are out."""


def killed_run(
    work: Callable[[Acknowledge], None],
    chance: random.Random,
    *,
    least_ms: int = 2,
    most_ms: int = 18,
) -> list[tuple[int, int, int]]:
    """What ``work`` acknowledged before it was killed, some milliseconds after its first sign of
    life.

    Raises AssertionError with the child's traceback if it failed by itself.
    """
    reader, writer = os.pipe()
    failed_reader, failed_writer = os.pipe()
    child = os.fork()
    if child == 0:
        _run_child(work, writer, failed_writer)
    os.close(writer)
    os.close(failed_writer)
    try:
        first = os.read(reader, _ROW.size)
        time.sleep(chance.uniform(least_ms, most_ms) / 1000)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    data = first + _drain(reader)
    failure = _drain(failed_reader).decode()
    assert not failure, failure
    whole = len(data) - len(data) % _ROW.size
    return list(_ROW.iter_unpack(data[:whole]))


def _run_child(work: Callable[[Acknowledge], None], writer: int, failed: int) -> None:
    def acknowledge(first: int, second: int, third: int) -> None:
        os.write(writer, _ROW.pack(first, second, third))

    try:
        work(acknowledge)
    except BaseException:  # noqa: BLE001 (the parent shows it)
        os.write(failed, traceback.format_exc().encode()[-60_000:])
        os.close(writer)
    while True:
        time.sleep(60)


def _drain(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts)
