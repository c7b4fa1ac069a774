"""Micro benchmarks with pytest-benchmark: `python -m bench micro`, or `pytest bench/test_micro.py`
to work on one of them. They measure how long one call takes, and assert nothing about time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.record import build_batch, decode

VALUES = [random.Random(1).randbytes(100) for _ in range(1000)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Any]:
    """An empty log that is not synced."""
    with kstore.open_log(tmp_path) as opened:
        yield opened


@pytest.fixture
def filled(log: Any) -> Any:
    """A log of 100,000 records in batches of 100."""
    for start in range(0, 100_000, 100):
        log.append_many(VALUES[start % 1000 : start % 1000 + 100])
    return log


def test_append_one_record_of_100_bytes(benchmark: Any, log: Any) -> None:
    benchmark(log.append, VALUES[0])
    assert log.log_end_offset > 0


def test_append_1000_records_of_100_bytes(benchmark: Any, log: Any) -> None:
    info = benchmark.pedantic(log.append_many, (VALUES,), rounds=200, warmup_rounds=5)
    assert info.last_offset == log.log_end_offset - 1


def test_append_one_synced_record_of_100_bytes(benchmark: Any, tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, flush="always") as log:
        benchmark.pedantic(log.append, (VALUES[0],), rounds=100, warmup_rounds=2)
        assert log.log_end_offset == 102


def test_read_one_batch_at_a_random_offset(benchmark: Any, filled: Any) -> None:
    offsets = random.Random(2)
    found = benchmark(lambda: filled.read(offsets.randrange(100_000), 1))
    assert len(found)


def test_read_and_decode_1_mb(benchmark: Any, filled: Any) -> None:
    found = benchmark(lambda: [record.value for record in filled.read(0, 1 << 20)])
    assert found[0] == VALUES[0]


def test_build_a_batch_of_1000_records(benchmark: Any) -> None:
    rows = [(None, value) for value in VALUES]
    assert len(benchmark(build_batch, rows)) > 100_000


def test_decode_a_batch_of_1000_records(benchmark: Any) -> None:
    batch = bytes(build_batch([(None, value) for value in VALUES]))
    found = benchmark(lambda: [record.value for record in decode(batch)])
    assert found == VALUES
