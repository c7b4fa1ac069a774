"""Waits until a file in a directory changes (inotify): to follow another process's log."""

from typing import Self

class Watch:
    """Watches the files of one directory. Raises OSError if inotify is not available."""

    fd: int
    """The descriptor (readable after a change), -1 when closed."""
    path: str
    """The directory."""
    def __new__(cls, path: str) -> Self: ...
    def drain(self) -> bool:
        """Discard earlier changes; returns whether there were any."""
    def wait(self, timeout_ms: int) -> bool:
        """Wait without the GIL, at most ``timeout_ms`` (negative: no limit); returns whether there
        was a change.
        """
    def close(self) -> None:
        """Close the descriptor; calling it again has no effect."""
