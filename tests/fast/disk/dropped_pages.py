"""Files whose pages a test has the system forget."""

from __future__ import annotations

import os

import pytest

from kstore._fast.disk.page_cache import is_resident


def drop_pages(path: str) -> None:
    """Have the system forget a file's pages; skips where it does not, or does not say so."""
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    found = is_resident(descriptor, 0, os.fstat(descriptor).st_size)
    os.close(descriptor)
    if found is not False:
        pytest.skip("this system does not say what is in the page cache, or drops nothing")
