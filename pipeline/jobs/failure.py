"""How a job fails: one class whose text is for users. It needs neither Spark nor Arrow."""

from __future__ import annotations

__all__ = ["JobError"]


class JobError(Exception):
    """What a job can't do, which value it is about, and what to do. ``passes``: it may be able to
    later, without anybody doing anything.
    """

    def __init__(self, text: str, *, passes: bool = False) -> None:
        super().__init__(text)
        self.passes = passes
