"""What a task has staged, as JSON: the worker's answer to the bench."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from bench.sink.former import Range
from kstore.pipeline.sink.written import StagedRun, Written

__all__ = ["as_text", "from_text"]


def as_text(made: Range | Written) -> str:
    """The message of either design to the commit."""
    if isinstance(made, Range):
        return json.dumps(list(made))
    fields: dict[str, Any] = {"sink": made.sink, "version": made.version, "attempt": made.attempt}
    fields["staged"] = [[*target, asdict(run)] for target, run in made.staged.items()]
    return json.dumps(fields)


def from_text(text: str) -> Range | Written:
    """The message that was given to `as_text`."""
    fields = json.loads(text)
    if isinstance(fields, list):
        return Range(*fields)
    rows = fields.pop("staged")
    return Written(
        **fields, staged={(topic, index): StagedRun(**run) for topic, index, run in rows}
    )
