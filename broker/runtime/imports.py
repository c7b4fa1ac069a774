"""Imports modules in a thread. On the loop, a late import would block all requests while the disk
and the interpreter work.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

__all__ = ["import_modules"]


def import_modules(names: Iterable[str]) -> None:
    """Import all of them. Called in a thread."""
    for name in names:
        import_module(name)
