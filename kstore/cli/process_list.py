"""Hides secrets of this process's command line from other users of the machine.

Linux only. On other systems, and if the kernel does not permit it, the command line does not
change.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from contextlib import suppress

__all__ = ["hide_secrets", "strike_out"]

SECRET_WORDS = ("password", "jaas", "secret", "token", "store.key", "credential")
"""A setting with one of these in its name may be a secret, whether kstore knows it or not."""

ARGUMENTS_START, ARGUMENTS_END = 45, 46
"""Fields 48 and 49 of /proc/self/stat, counted from the end of the command's name."""


def hide_secrets(overrides: Mapping[str, str]) -> None:
    """Overwrite the secrets among the settings of the command line, and warn of each: others could
    read them until now, and can read them in the shell's history.
    """
    found = {
        name: value
        for name, value in overrides.items()
        if value and any(word in name.lower() for word in SECRET_WORDS)
    }
    for name in found:
        print(
            f"kstore: {name} is a secret, and --override shows it in the list of processes and the "
            "shell's history: put it into the properties file (mode 600) or the environment",
            file=sys.stderr,
        )
    if found:
        strike_out(found.values())


def strike_out(secrets: Collection[str]) -> bool:
    """Overwrite these words of the command line with asterisks; returns whether that was
    possible.
    """
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
