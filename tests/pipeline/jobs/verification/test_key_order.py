"""The order of records per key in a copy with other offsets: what is compared, and what is
reported.
"""

from __future__ import annotations

from typing import Any

import pytest

from kstore.clients.core.order_check import OrderChecker
from kstore.pipeline.jobs.session import sentence_of
from kstore.pipeline.jobs.verification.key_order import match_key, order_findings


def rows(partition: int, *contents: int) -> list[tuple[Any, ...]]:
    """The records of one key with these contents, in order."""
    return [("t", 1, 0, partition, 10 * n, content, b"k") for n, content in enumerate(contents)]


def told(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> list[str]:
    """The findings in words."""
    checker = OrderChecker(by_partition=True)
    extra = match_key("t", left, right, checker)
    found = [f"{f.kind} at {f.start}" for f in extra]
    return found + [f.detail for f in order_findings("t", checker.report(), "right")]


K = "key 'k of partition 0'"


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ((1, 2, 3, 1), []),
        ((1, 2, 1, 3), [f"{K}: 2 arrived after 3 at t-0 offset 30"]),
        ((1, 2, 2, 3, 1), [f"{K}: 1 arrived again at t-0 offset 20"]),
        ((1, 3, 1), [f"{K}: 1 did not arrive"]),
        ((1, 2, 3), [f"{K}: 3 did not arrive"]),
        ((1, 2, 9, 3, 1), ["extra at 20"]),
        ((), [f"{K}: 0 to 3 did not arrive"]),
    ],
)
def test_what_differs_from_the_left_s_order_is_told(
    right: tuple[int, ...], expected: list[str]
) -> None:
    assert told(rows(0, 1, 2, 3, 1), rows(0, *right)) == expected


def test_a_key_in_two_partitions_may_be_merged_in_any_way() -> None:
    left = rows(0, 1, 2) + rows(1, 5, 6)
    assert told(left, rows(0, 5, 1, 6, 2)) == []
    assert told(left, rows(0, 6, 1, 5, 2)) == [
        "key 'k of partition 1': 0 arrived after 1 at t-0 offset 20"
    ]


def test_of_an_error_of_a_task_only_our_sentence_is_told() -> None:
    text = (
        "Job aborted: Traceback (most recent call last):\n  File x\n"
        "kstore.pipeline.errors.PipelineError: topic t, partition 1, offset 5: gone. Do this.\n\n"
        "\tat org.apache.spark.api"
    )
    assert sentence_of(RuntimeError(text)) == "topic t, partition 1, offset 5: gone. Do this."
    assert sentence_of(RuntimeError("a\n[SOME_CLASS] why\nat x")) == "Spark: [SOME_CLASS] why"
