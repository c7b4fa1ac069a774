"""What other users of the machine see of this process's command line: secrets are struck out there.

Linux only; elsewhere, and where the kernel does not let it, the command line stays as it was.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

__all__ = ["strike_out"]

ARGUMENTS_START, ARGUMENTS_END = 45, 46
"""Fields 48 and 49 of /proc/self/stat, counted from behind the command's name."""


def strike_out(secrets: Collection[str]) -> bool:
    """Overwrite these words of the command line with asterisks; whether that could be done."""
    words = {secret.encode() for secret in secrets if secret}
    done = False
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        start, end = int(fields[ARGUMENTS_START]), int(fields[ARGUMENTS_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            line = memory.read(end - start)
            for word in sorted(words, key=len, reverse=True):
                line = line.replace(word, b"*" * len(word))
            memory.seek(start)
            done = memory.write(line) == len(line)
    return done
