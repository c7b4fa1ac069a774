"""Options of a read: the names of Spark's Kafka connector in upper or lower case. For each invalid
option, an error says which one it is and what to do.
"""

from __future__ import annotations

import pytest

from kstore.pipeline.errors import PipelineError
from kstore.pipeline.read_options import EARLIEST, LATEST, ReadOptions, read_options
from kstore.types import TopicPartition

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def batch(**more: str) -> ReadOptions:
    return read_options(BASE | more, streaming=False)


def stream(**more: str) -> ReadOptions:
    return read_options(BASE | more, streaming=True)


def test_defaults_are_the_connectors() -> None:
    found = batch()
    assert (found.starting.everywhere, found.ending.everywhere) == (EARLIEST, LATEST)
    assert stream().starting.everywhere == LATEST
    assert found.fail_on_data_loss
    assert not found.include_headers
    assert (found.poll_timeout_ms, found.retries, found.retry_interval_ms) == (120_000, 3, 1000)
    assert found.max_delay_ms == 15 * 60_000
    assert found.min_partitions is found.max_offsets is found.min_offsets is None


def test_names_are_taken_in_any_case() -> None:
    found = stream(STARTINGOFFSETS="Earliest", maxoffsetspertrigger="5", maxTriggerDelay="2m")
    assert (found.starting.everywhere, found.max_offsets) == (EARLIEST, 5)
    assert found.max_delay_ms == 120_000


def test_a_timestamp_for_all_comes_before_timestamps_by_partition_and_these_before_offsets() -> (
    None
):
    by_offset = {"startingOffsets": '{"a": {"0": 1}}'}
    by_time = {"startingOffsetsByTimestamp": '{"a": {"0": 2}}'}
    for_all = {"startingTimestamp": "3"}
    assert batch(**by_offset).starting.by_partition == {TopicPartition("a", 0): 1}
    found = batch(**by_offset, **by_time).starting
    assert (found.is_time, found.by_partition) == (True, {TopicPartition("a", 0): 2})
    found = batch(**by_offset, **by_time, **for_all).starting
    assert (found.is_time, found.everywhere) == (True, 3)


def test_partitions_may_be_assigned_and_patterns_match_whole_names() -> None:
    options = {"kafka.bootstrap.servers": "h:1"}
    found = read_options(options | {"assign": '{"b": [1, 0]}'}, streaming=False).selection
    assert found.partitions == (TopicPartition("b", 1), TopicPartition("b", 0))
    found = read_options(options | {"subscribePattern": "a.*"}, streaming=False).selection
    assert found.matches("ab")
    assert not found.matches("bab")


WRONG = {
    "unknown": ({"startingOffset": "earliest"}, "the nearest is startingOffsets"),
    "two selections": ({"assign": '{"a": [0]}'}, "assign and subscribe were given"),
    "no server": ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
    "no topic": ({"subscribe": " , "}, "has no topics"),
    "word": ({"startingOffsets": "newest"}, "startingOffsets is 'newest'"),
    "no object": ({"startingOffsets": "[1]"}, "not a JSON object"),
    "offset": ({"startingOffsets": '{"a": {"0": -3}}'}, "topic a: .* '0': -3"),
    "flag": ({"failOnDataLoss": "yes"}, "failOnDataLoss is 'yes'. Use true or false"),
    "number": ({"minPartitions": "0"}, "whole number of at least 1"),
    "strategy": ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
    "limits": ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "more than max"),
    "duration": ({"maxTriggerDelay": "soon"}, "15m, 30s or 100ms"),
    "reset": ({"kafka.auto.offset.reset": "latest"}, "set startingOffsets|Set startingOffsets"),
    "deserializer": ({"kafka.value.deserializer": "x"}, "not supported. Values come as bytes"),
    "client": ({"kafka.fetch.max.byte": "1"}, "kafka.* option can't be used"),
    "begins at the end": ({"startingOffsets": "latest"}, "leaves a batch nothing to read"),
    "ends at the beginning": ({"endingOffsets": '{"a": {"0": -2}}'}, "nothing to read"),
    "backwards": (
        {"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": 4}}'},
        "topic a, partition 0: .* 5, .* 4",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    options, message = WRONG[name]
    with pytest.raises(PipelineError, match=message):
        read_options(BASE | options, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(PipelineError, match=f"{name} is for batch queries"):
        stream(**{name: "1"})


def test_a_pattern_that_is_none_is_refused() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "a("}
    with pytest.raises(PipelineError, match="not a pattern"):
        read_options(options, streaming=True)


def test_secrets_are_not_shown() -> None:
    assert "geheim" not in repr(batch(**{"kafka.ssl.key.password": "geheim"}))
