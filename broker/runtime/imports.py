"""Imports in a thread: late imports that would block the loop for as long as the disk, or the
interpreter, takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

__all__ = ["import_modules"]


def import_modules(names: Iterable[str]) -> None:
    """Import all of them. Called in a thread."""
    for name in names:
        import_module(name)
