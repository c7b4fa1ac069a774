"""A row of the tables of differences."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Difference"]


class Difference(NamedTuple):
    """One difference that a user can see, as a row of the page. Each text may use Markdown."""

    what: str
    """The API, the setting or the feature."""
    kafka: str
    """What Apache Kafka 4.3.1 does; in spark.py, what Spark's connector for Kafka does."""
    kstore: str
    """What kstore does."""
    why: str
    """The reason, or "not built yet"."""
