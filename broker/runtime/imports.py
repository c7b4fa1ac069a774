"""Imports beside the loop: modules that are needed late, and would hold the loop for as long as a
disk, or the interpreter, takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

__all__ = ["import_modules"]


def import_modules(names: Iterable[str]) -> None:
    """Import all of them. Called in a thread."""
    for name in names:
        import_module(name)
