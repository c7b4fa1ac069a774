"""How partitions, moments and durations are read from the command line."""

from __future__ import annotations

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from kstore.cli.arguments import (
    parse_datetime_ms,
    parse_duration_ms,
    parse_ids,
    parse_partition,
    parse_partitions,
)
from kstore.types import TopicPartition


@given(st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True), st.integers(0, 2**31 - 1))
def test_a_partition_is_read_as_it_is_written(topic: str, partition: int) -> None:
    assert parse_partition(f"{topic}:{partition}") == TopicPartition(topic, partition)


@pytest.mark.parametrize("text", ["", "orders", ":1", "orders:", "orders:x", "orders:-1", "o:²"])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="TOPIC:PARTITION"):
        parse_partition(text)


def test_partitions_of_a_topic_are_all_or_some() -> None:
    assert parse_partitions("orders") == ("orders", None)
    assert parse_partitions("orders:0,12") == ("orders", [0, 12])
    with pytest.raises(typer.BadParameter):
        parse_ids("1,,2")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000),
        ("1h30m", 5_400_000), ("2w", 1_209_600_000), ("PT5M", 300_000), ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500), ("p2w", 1_209_600_000),
    ],
)  # fmt: skip
def test_lengths_of_time(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "P", "PT", "1x", "h", "-5s", "1h 30m"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0), ("1700000000000", 1_700_000_000_000), ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01", 1000), ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.250Z", 250),
    ],
)  # fmt: skip
def test_moments(text: str, ms: int) -> None:
    assert parse_datetime_ms(text) == ms


def test_what_is_no_moment_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_datetime_ms("yesterday")
