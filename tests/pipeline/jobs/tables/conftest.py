"""What the tests of tables share: a lake for each test."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.kafka_jars import KafkaUnavailableError, iceberg_jars
from tests.pipeline.jobs.tables.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def jars() -> list[Path]:
    try:
        return iceberg_jars()
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def lake(spark: SparkSession, jars: list[Path], tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path / "lake", f"lake_{uuid.uuid4().hex[:8]}")
