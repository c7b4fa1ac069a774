"""Files whose pages a test has the system forget."""

from __future__ import annotations

import os
import time

import pytest

from kstore._fast.disk.page_cache import is_resident

TRIES = 100


def forget(descriptor: int) -> bool:
    """Have the system forget a file's pages; whether it says that it has. One call can leave pages
    that another thread or processor is working with.
    """
    for _ in range(TRIES):
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        found = is_resident(descriptor, 0, os.fstat(descriptor).st_size)
        if found is not True:
            return found is False
        time.sleep(0.01)
    return False


def drop_pages(path: str) -> None:
    """The same; skips where the system does not, or does not say so."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        if not forget(descriptor):
            pytest.skip("this system does not say what is in the page cache, or drops nothing")
    finally:
        os.close(descriptor)
