"""The version of the installed kstore. The sources have none: a build takes it from git's tags.

importlib.metadata would tell it as well, with 40 modules, 3 MB, and 15 ms or more. A broker needs
it on its loop, when it calls the first other broker and when its metrics are read, so the usual
place is looked at first, without that package.
"""

from __future__ import annotations

import os
import sys
from functools import cache

__all__ = ["installed_version"]

NAME = "kstore"
FOLDER_END = ".dist-info"
FIELD = "Version: "


@cache
def installed_version() -> str:
    """The version in the metadata of the installed package; "unknown" if kstore runs from sources
    that were not installed. The first call reads files.
    """
    return _from_folders() or _from_metadata()


def _from_folders() -> str:
    """What the first folder of `sys.path` that has the package's metadata says; else ""."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue  # an archive, or a folder that is not there
        for name in names:
            if name.startswith(f"{NAME}-") and name.endswith(FOLDER_END):
                return _version_in(os.path.join(folder, name, "METADATA"))
    return ""


def _version_in(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.startswith(FIELD):
                    return line.removeprefix(FIELD).strip()
    except OSError:
        pass  # the slow way knows other files
    return ""


def _from_metadata() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(NAME)
    except PackageNotFoundError:
        return "unknown"
