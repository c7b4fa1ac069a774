"""What a sink's worker answers comes back as it was."""

from __future__ import annotations

import pytest

from bench.sink.answers import as_text, from_text
from bench.sink.former import Range
from kstore.pipeline.sink.written import StagedRun, Written


@pytest.mark.parametrize(
    "made",
    [
        Range(1, 20, 300),
        Written("name", 2),
        Written("name", 2, "a-1", {("t", 0): StagedRun(1, [3, 5], [2, 4]), ("u", 7): StagedRun(2)}),
    ],
)
def test_both_designs_messages_come_back(made: Range | Written) -> None:
    assert from_text(as_text(made)) == made
