"""Checks whether an LMDB data file may be opened. LMDB maps the file and trusts it: a damaged page
aborts the process with a failed assertion, a truncated file with a bus error. So lmdb's own
verifier first reads the file, without mapping it, and checks every reachable page.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

__all__ = ["find_damage", "move_aside"]

ASIDE = ".damaged."  # not a hyphen: it would be a partition's name
_ASIDE_KEPT = 3
_SMALLEST_FILE = 8192  # LMDB begins with two pages
_META = struct.Struct("=IIQQ48x48xQQ")  # after a page's header: magic to transaction id
_META_AT = 16
_PAGE_SIZE = struct.Struct("=I")
_PAGE_SIZE_AT = _META_AT + 24
# An unreferenced page only costs space; LMDB has left some behind at times.
_HARMLESS = "a leak"
_ATTEMPTS = 5


def find_damage(path: str, *, whole: bool = True) -> str | None:
    """What is wrong with a data file; None if nothing is. A missing file is valid.

    ``whole``: check every page; otherwise only the size and the two root pages. Another process may
    write to the file meanwhile.
    """
    for _ in range(_ATTEMPTS):
        try:
            before = _roots(path)
            problem = _in_roots(path, before) or (_in_pages(path) if whole else None)
            if problem is None or _roots(path) == before:
                return problem
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"it can't be read ({error.strerror})"
    return None  # the writer commits all the time, so it was not affected by what looked wrong here


def _roots(path: str) -> bytes:
    with open(path, "rb") as file:
        head = file.read(_PAGE_SIZE_AT + _PAGE_SIZE.size)
        if len(head) < _PAGE_SIZE_AT + _PAGE_SIZE.size:
            return head
        size = min(_PAGE_SIZE.unpack_from(head, _PAGE_SIZE_AT)[0], 1 << 16)
        second = size + _META_AT + _META.size
        file.seek(0)
        return file.read(second)


def _in_roots(path: str, data: bytes) -> str | None:
    """The two pages are written in turn, so their transactions are consecutive: an older root that
    looks like the newest one would have pages that are no longer its own.
    """
    size = os.path.getsize(path)
    if size < _SMALLEST_FILE:
        return f"it has {size} bytes, an index that was ever used has {_SMALLEST_FILE} or more"
    second = len(data) - _META.size
    ids = [_META.unpack_from(data, at)[-1] for at in (_META_AT, second)]
    if ids != [0, 0] and abs(ids[0] - ids[1]) != 1:
        return (
            f"the pages with its roots are of transactions {ids[0]} and {ids[1]}, not consecutive"
        )
    return None


def _in_pages(path: str) -> str | None:
    from lmdb.verify import VerifyError, verify

    try:
        found: list[str] = verify(path, subdir=False)  # type: ignore[no-untyped-call]
    except (VerifyError, struct.error, IndexError) as error:
        return str(error)
    problems = [each for each in found if _HARMLESS not in each]
    if not problems:
        return None
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"


def move_aside(path: str) -> str:
    """Rename a damaged data file, so that it can be examined, and remove its lock file. Only the
    last few are kept. Returns the new path.
    """
    numbers = sorted(_numbers(path))
    for number in numbers[: 1 - _ASIDE_KEPT]:
        os.unlink(f"{path}{ASIDE}{number}")
    aside = f"{path}{ASIDE}{numbers[-1] + 1 if numbers else 1}"
    os.rename(path, aside)
    with suppress(FileNotFoundError):
        os.unlink(path + "-lock")
    return aside


def _numbers(path: str) -> list[int]:
    folder, name = os.path.split(path)
    endings = (
        each.removeprefix(name + ASIDE) for each in os.listdir(folder) if each.startswith(name)
    )
    return [int(each) for each in endings if each.isdigit()]
