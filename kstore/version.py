"""The version of the installed kstore. The sources have none: a build takes it from git's tags."""

from __future__ import annotations

from functools import cache

__all__ = ["installed_version"]


@cache
def installed_version() -> str:
    """The version in the metadata of the installed package; "unknown" if kstore runs from sources
    that were not installed. The first call reads files.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kstore")
    except PackageNotFoundError:
        return "unknown"
