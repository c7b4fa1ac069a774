"""A watch's callback that remembers its events, for tests that wait for one."""

from __future__ import annotations

import threading

from kstore.broker.coordination.store import WatchEvent


class Changes:
    """The events of a watch, to be waited for."""

    def __init__(self) -> None:
        self.seen: list[WatchEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: WatchEvent) -> None:
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def wait_for(self, event: WatchEvent) -> None:
        """Return when the event has arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: event in self.seen, 60), self.seen
