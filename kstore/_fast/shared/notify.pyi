"""Sleep until a file in a directory changes (inotify): to follow another process's log."""

from typing import Self

class Watch:
    """Watches the files of one directory. Raises OSError where inotify is not to be had."""

    fd: int
    """The descriptor (readable when something happened), -1 when closed."""
    path: str
    """The directory."""
    def __new__(cls, path: str) -> Self: ...
    def drain(self) -> bool:
        """Forgets what happened so far; whether anything did."""
    def wait(self, timeout_ms: int) -> bool:
        """Waits without the GIL, at most ``timeout_ms`` (negative: for ever); whether it woke."""
    def close(self) -> None:
        """Closes the descriptor; a second call does nothing."""
