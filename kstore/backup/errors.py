"""The error of backups. Its message says what was wrong and what to do."""

from __future__ import annotations

__all__ = ["BackupError"]


class BackupError(Exception):
    """A backup can't be created, read or restored."""
