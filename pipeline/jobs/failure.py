"""The error of a job; its text is for users. It needs neither Spark nor Arrow."""

from __future__ import annotations

__all__ = ["JobError"]


class JobError(Exception):
    """What a job cannot do, with the value, and what to do about it. ``passes``: the job may
    succeed later without a change.
    """

    def __init__(self, text: str, *, passes: bool = False) -> None:
        super().__init__(text)
        self.passes = passes
