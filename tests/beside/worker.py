"""A thread that works during a test until it is stopped."""

from __future__ import annotations

import threading
from typing import Self


class Worker(threading.Thread):
    """Works until it is stopped, or until the end of its `with`, which raises its error."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as problem:  # noqa: BLE001 (raised by finish)
            self.problem = problem

    def work(self) -> None:
        raise NotImplementedError

    def finish(self, timeout_s: float = 120) -> None:
        """Stop, and raise the error that ended the work early."""
        self.stopping.set()
        self.join(timeout_s)
        assert not self.is_alive(), f"{self.name} does not end"
        if self.problem is not None:
            raise self.problem

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
