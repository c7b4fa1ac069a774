"""Positions in a checkpoint: equal positions have the same text, and other texts are refused."""

from __future__ import annotations

import json

import pytest

from kstore.pipeline.errors import PipelineError
from kstore.pipeline.positions import Position, Positions
from kstore.pipeline.topic_client import Life
from kstore.types import TopicPartition

LIFE = Life(7, 3, "493f0ebd-204c-4317-b4f1-ec1788ba440a")
ROWS = {
    TopicPartition("b", 10): Position(5, LIFE),
    TopicPartition("a", 0): Position(0, Life(), 0),
    TopicPartition("b", 2): Position(9, LIFE, 4),
}


@pytest.mark.parametrize("is_initial", [True, False])
def test_what_is_saved_comes_back(is_initial: bool) -> None:
    saved = json.loads(json.dumps(Positions(ROWS, is_initial=is_initial).to_json()))
    found = Positions.from_json(saved)
    assert found == ROWS
    assert found.is_initial == is_initial


def test_the_text_does_not_depend_on_the_order_in_which_partitions_came() -> None:
    other = dict(reversed(ROWS.items()))
    assert json.dumps(Positions(ROWS).to_json()) == json.dumps(Positions(other).to_json())


def test_positions_of_another_source_are_refused() -> None:
    with pytest.raises(PipelineError, match="new checkpointLocation"):
        Positions.from_json({"topic": {"0": 23}})


def test_another_life_is_told_by_partition_epochs_and_else_by_topic_ids() -> None:
    assert Life(1, 0, "x").is_another(Life(2, 0, "x"))
    assert not Life(1, 0, "x").is_another(Life(1, 5, "x"))
    assert Life(-1, 0, "x").is_another(Life(3, 0, "y"))
    assert not Life(-1, 0, "").is_another(Life(3, 0, "y"))
