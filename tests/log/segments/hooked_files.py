"""Files with something done at each call, which may fail, wait, or kill the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstore._fast.log.segment_file import SegmentFile
from kstore.env import SystemFileSystem


class HookedFiles(SystemFileSystem):
    """Has `before` and `after` called with the name of a call and its path. Of segment files these
    are create, open, append, read, sync and truncate. What `before` raises is the call's error.
    """

    only = ""
    """Segment files without this in their path are as they always are."""

    def before(self, call: str, path: str) -> None:
        """Nothing."""

    def after(self, call: str, path: str) -> None:
        """Nothing."""

    def open_segment(
        self, factory: Callable[..., Any], path: str, *, writable: bool, create: bool
    ) -> Any:
        """A file whose calls count, too."""
        if self.only not in path:
            return super().open_segment(factory, path, writable=writable, create=create)
        call = "create" if create else "open"
        self.before(call, path)
        file = _HookedFile(path, writable=writable, create=create)
        file.files = self
        self.after(call, path)
        return file

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self.before("mkdir", path)
        super().mkdir(path, mode)

    def write_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self.before("write_file", path)
        super().write_file(path, content, durable=durable)

    def unlink(self, path: str) -> None:
        self.before("unlink", path)
        super().unlink(path)
        self.after("unlink", path)

    def replace(self, source: str, target: str) -> None:
        self.before("replace", source)
        super().replace(source, target)


class _HookedFile(SegmentFile):
    files: HookedFiles

    def append(self, data: Any) -> int:
        self.files.before("append", self.path)
        return super().append(data)

    def read(self, size: int, position: int) -> bytes:
        self.files.before("read", self.path)
        return super().read(size, position)

    def sync(self) -> int:
        self.files.before("sync", self.path)
        return super().sync()

    def truncate(self, size_bytes: int) -> int:
        self.files.before("truncate", self.path)
        done = super().truncate(size_bytes)
        self.files.after("truncate", self.path)
        return done
