"""The compiled part of kstore, in rooms by layer: record, protocol, log, broker, then network,
replication and clients. It never waits on the loop's thread for another thread and makes no Python
object per record.

May import: nothing of kstore.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType


class _OneLibrary:
    """Finds the modules of a wheel, which are all in one shared library. It is not used if each
    module has a file. Python loads any module from a library that exports PyInit_NAME.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds ``kstore._fast.ROOM.NAME``, after all of Python's own finders."""
        if not name.startswith(f"{__name__}.") or name.count(".") != 3:
            return None
        loader = ExtensionFileLoader(name, self._path)
        return spec_from_file_location(name, self._path, loader=loader)


for _path in (os.path.join(__path__[0], f"modules{suffix}") for suffix in EXTENSION_SUFFIXES):
    if os.path.exists(_path):
        sys.meta_path.append(_OneLibrary(_path))
        break
