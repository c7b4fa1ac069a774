"""A disk that forgets and fails: the log's file system over real files in a directory, with a power
switch.

It keeps what an fdatasync or an fsync of the directory has made durable, beside what was merely
written. ``power_cut`` puts the directory into a state that a real disk could show after the plug
was pulled: durable bytes are all there, of the unsynced tail any prefix (or garbage) is. Errors and
short writes come on demand. LMDB's files are not covered: for them a power cut means that the
environment is gone.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from typing import Any, TypeVar

from kstore._fast.log.segment_file import SegmentFile
from kstore.env import SystemFileSystem

F = TypeVar("F")


class Fault:
    """What shall happen at one of the next calls: fail with an errno, after writing some bytes."""

    def __init__(self, call: str, number: int, after: int = 0, written_bytes: int = 0) -> None:
        self.call = call
        self.number = number
        self.after = after
        self.written_bytes = written_bytes

    def raise_now(self, path: str) -> None:
        """The failure itself."""
        raise OSError(self.number, os.strerror(self.number), path)


class FaultyFile(SegmentFile):
    """A segment file whose unsynced bytes its file system remembers."""

    def attach(self, fs: FaultyFileSystem, path: str) -> FaultyFile:
        """Make the file system known; its name in it changes with renames."""
        self._fs = fs
        self._inode = os.fstat(self.fd).st_ino
        size = os.fstat(self.fd).st_size
        fs.files.setdefault(self._inode, DurableFile(os.pread(self.fd, size, 0)))
        return self

    def append(self, data: Any) -> int:
        """As the original, or a fault: a full disk writes a part before it says so."""
        fault = self._fs.due("append")
        if fault is not None:
            if fault.written_bytes:
                part = bytes(data)[: fault.written_bytes]
                before = self.size_bytes
                os.pwrite(self.fd, part, before)
                os.ftruncate(self.fd, before)
            fault.raise_now(self.path)
        return super().append(data)

    def read(self, size: int, position: int) -> bytes:
        """As the original, or a fault."""
        fault = self._fs.due("read")
        if fault is not None:
            fault.raise_now(self.path)
        return super().read(size, position)

    def sync(self) -> int:
        """As the original, and remember; or a fault, after which nothing more is durable."""
        fault = self._fs.due("sync")
        if fault is not None:
            fault.raise_now(self.path)
        done = super().sync()
        size = os.fstat(self.fd).st_size
        content = os.pread(self.fd, size, 0)
        self._fs.files.setdefault(self._inode, DurableFile(b"")).content = content
        return done

    def truncate(self, size_bytes: int) -> int:
        """As the original, or a fault. Like a real one, a cut is durable only after a sync."""
        fault = self._fs.due("truncate")
        if fault is not None:
            fault.raise_now(self.path)
        return super().truncate(size_bytes)


class DurableFile:
    """What of a file is surely on disk."""

    def __init__(self, content: bytes) -> None:
        self.content = content


class FaultyFileSystem(SystemFileSystem):
    """One directory tree on the faulty disk."""

    def __init__(self, root: str, seed: int = 0) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.files: dict[int, DurableFile] = {}
        self.names: dict[str, set[str]] = {}
        self.faults: list[Fault] = []
        self.calls: dict[str, int] = {}

    def fail(self, call: str, number: int, *, after: int = 0, written_bytes: int = 0) -> None:
        """Let one coming call fail: append, read, sync, truncate, replace, unlink, open."""
        self.faults.append(Fault(call, number, after, written_bytes))

    def due(self, call: str) -> Fault | None:
        """The fault that this call meets, if any."""
        self.calls[call] = self.calls.get(call, 0) + 1
        for fault in self.faults:
            if fault.call == call:
                if fault.after == 0:
                    self.faults.remove(fault)
                    return fault
                fault.after -= 1
                return None
        return None

    def _check(self, call: str, path: str) -> None:
        fault = self.due(call)
        if fault is not None:
            fault.raise_now(path)

    def open_segment(
        self, factory: Callable[..., F], path: str, *, writable: bool, create: bool
    ) -> F:
        """A FaultyFile in place of the log's own."""
        self._check("open", path)
        file = FaultyFile(path, writable=writable, create=create)
        return file.attach(self, path)  # type: ignore[return-value]

    def replace(self, source: str, target: str) -> None:
        """Rename; durable only after the directory was synced."""
        self._check("replace", source)
        self._forget(target)
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove; durable only after the directory was synced."""
        self._check("unlink", path)
        self._forget(path)
        super().unlink(path)

    def _forget(self, path: str) -> None:
        """Its inode may soon be another file's."""
        if os.path.exists(path):
            self.files.pop(os.stat(path).st_ino, None)

    def fsync_dir(self, path: str) -> None:
        """Remember the directory's names as durable."""
        self._check("fsync_dir", path)
        self.names[os.path.realpath(path)] = set(os.listdir(path))

    def write_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Small files are durable when written, as the real one makes them."""
        self._check("write_file", path)
        super().write_file(path, content, durable=durable)
        self.files[os.stat(path).st_ino] = DurableFile(content)

    def power_cut(self, target: str, *, index_survives: bool = False, torn: str = "any") -> str:
        """Copy the tree to ``target`` as the disk may hold it after the cut; returns ``target``.

        ``torn``: how much of each unsynced tail survives: "none", "all", or "any" prefix, at times
        with the last bytes replaced by zeros (a file's size may reach the disk before its data).
        """
        for directory, _, entries in os.walk(self.root):
            place = os.path.join(target, os.path.relpath(directory, self.root))
            os.makedirs(place, exist_ok=True)
            for name in entries:
                source = os.path.join(directory, name)
                if name.endswith(".mdb"):
                    if index_survives:
                        shutil.copyfile(source, os.path.join(place, name))
                    continue
                if name.endswith(".log") and self._name_is_lost(directory, name, torn):
                    continue
                with open(os.path.join(place, name), "wb") as file:
                    file.write(self._survivor(source, torn))
        return target

    def _name_is_lost(self, directory: str, name: str, torn: str) -> bool:
        """A new file is durable only after its directory was synced."""
        if torn == "all" or name in self.names.get(os.path.realpath(directory), ()):
            return False
        return torn == "none" or self.random.random() < 0.5

    def _survivor(self, path: str, torn: str) -> bytes:
        with open(path, "rb") as file:
            written = file.read()
        known = self.files.get(os.stat(path).st_ino)
        if known is None or torn == "all":
            return written
        durable = known.content
        if not written.startswith(durable):
            # It was cut and not synced since: either state may be on disk.
            return self.random.choice((written, durable)) if torn == "any" else durable
        tail = len(written) - len(durable)
        if torn == "none" or tail == 0:
            return durable
        keep = self.random.randint(0, tail)
        survivor = written[: len(durable) + keep]
        if self.random.random() < 0.3:
            zeros = self.random.randint(0, keep)
            survivor = survivor[: len(survivor) - zeros] + b"\0" * zeros
        return survivor
