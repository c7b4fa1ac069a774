"""How a job fails: one class whose text is for users. It needs neither Spark nor Arrow."""

from __future__ import annotations

__all__ = ["JobError"]


class JobError(Exception):
    """What a job can't do, which value it is about, and what to do."""
