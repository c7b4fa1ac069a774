"""Creates, opens and checks files and folders that only their owner may access. Symbolic links are
not followed. A file that others may read or write is made private again.

The rule for folders is OpenSSH's: others are all users but the process's user and root. A group
counts as the user's own if it has the user's name and no other member (umask 002).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

__all__ = [
    "PRIVATE_FILE", "PRIVATE_FOLDER", "UnsafeFileError", "check_folder", "make_private",
    "make_private_folder", "open_private", "others_write", "refuse_link",
]  # fmt: skip

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


class UnsafeFileError(PermissionError):
    """A file or folder that others can change, or may have created; the message says what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EPERM, sentence)

    def __str__(self) -> str:
        return self.strerror or ""


def open_private(path: str, flags: int) -> int:
    """Open a regular file; its descriptor. If ``flags`` create the file, it gets mode 0600.

    Raises UnsafeFileError for a symbolic link, and if it is not a regular file.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_link(path)
        raise
    try:
        _tighten(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_private(path: str) -> None:
    """Call this before a library opens a file by its name. Raises UnsafeFileError for a symbolic
    link; an existing file gets mode 0600. This function does not open the file, because closing it
    would release LMDB's locks.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    _tighten(path, found)


def make_private_folder(path: str) -> None:
    """Create a folder of mode 0700, or give that mode to an existing one. Raises UnsafeFileError
    for a symbolic link.
    """
    refuse_link(path)
    os.makedirs(path, PRIVATE_FOLDER, exist_ok=True)
    _tighten(path, os.stat(path), stat.S_ISDIR, PRIVATE_FOLDER)


def refuse_link(path: str) -> None:
    """Raise UnsafeFileError if the path is a symbolic link."""
    if os.path.islink(path):
        raise UnsafeFileError(
            f"{path} is a symbolic link to {os.readlink(path)!r}, which may point to another "
            "user's file: check the target, and remove the link"
        )


def _tighten(
    path: str,
    found: os.stat_result,
    is_right: Callable[[int], bool] = stat.S_ISREG,
    private: int = PRIVATE_FILE,
) -> None:
    if stat.S_ISLNK(found.st_mode):
        refuse_link(path)
    if not is_right(found.st_mode):
        raise UnsafeFileError(f"{path} is not of the expected type: move it away")
    mode = stat.S_IMODE(found.st_mode)
    if not mode & 0o077:
        return
    try:
        os.chmod(path, private)
    except PermissionError:
        raise UnsafeFileError(
            f"{path} has mode {mode:04o} and belongs to user {found.st_uid}, so it can't be made "
            f"private: as that user, chmod {private:o} {path}"
        ) from None


def others_write(path: str) -> str | None:
    """A sentence about how others may write to a folder, and how to prevent it; None if they may
    not.
    """
    found = os.stat(path)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in {0, os.geteuid()}:
        return f"{path} belongs to user {found.st_uid}: chown {os.geteuid()} {path}"
    of_others = mode & stat.S_IWOTH
    if of_others or (mode & stat.S_IWGRP and not _is_own_group(found.st_gid)):
        who = "everybody" if of_others else f"group {found.st_gid}"
        return f"{path} has mode {mode:04o}, so {who} may write to it: chmod 700 {path}"
    return None


def check_folder(path: str, holds: str) -> str | None:
    """Raise UnsafeFileError for a folder that others may write to. Returns a warning if others may
    read it, else None. ``holds`` names its content.
    """
    problem = others_write(path)
    if problem is not None:
        raise UnsafeFileError(f"{holds} can't be stored where others may write: {problem}")
    found = os.stat(path)
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o007 or (mode & 0o070 and not _is_own_group(found.st_gid)):
        return f"{path} has mode {mode:04o}, so others may look into it: chmod 700 {path}"
    return None


def _is_own_group(gid: int) -> bool:
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and all(member == user for member in group.gr_mem)
