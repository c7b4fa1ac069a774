"""A log's settings from Kafka's topic configs, and what the rarer ones do."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import kstore
from kstore._fast.record.builder import build_batch
from kstore.config.broker_configs import BROKER_CONFIGS
from kstore.config.topic_configs import TOPIC_CONFIGS
from kstore.log.settings import LogConfig

LIMITS = [str(sign * 2**power - less) for power in range(64) for sign in (-1, 1) for less in (0, 1)]


def test_dotted_names_and_text_become_typed_fields() -> None:
    config = LogConfig.from_topic_configs(
        {"segment.ms": "5", "cleanup.policy": "compact, delete", "preallocate": "TRUE", "x": "y"}
    )
    assert config == LogConfig(segment_ms=5, cleanup_policy=("compact", "delete"), preallocate=True)


def test_the_internal_segment_size_wins() -> None:
    config = LogConfig.from_topic_configs(
        {"segment.bytes": "1048576", "internal.segment.bytes": "500"}
    )
    assert config.segment_bytes == 500


@pytest.mark.parametrize(
    ("kind", "level"), [("gzip", 1), ("lz4", 2), ("zstd", -5), ("snappy", -1), ("producer", -1)]
)
def test_the_level_is_that_of_the_codec(kind: str, level: int) -> None:
    config = LogConfig(
        compression_type=kind,
        compression_gzip_level=1,
        compression_lz4_level=2,
        compression_zstd_level=-5,
    )
    assert config.compression_level == level


def test_a_cleanup_policy_can_be_any_items() -> None:
    for given in (["compact"], {"compact"}, iter(["compact"])):
        config = LogConfig(cleanup_policy=given)  # type: ignore[arg-type]
        assert config.compacts
        assert not config.deletes
        assert hash(config) == hash(LogConfig(cleanup_policy=("compact",)))


def test_an_empty_cleanup_policy_deletes_nothing(tmp_path: Path) -> None:
    settings = {"segment_bytes": 500, "retention_bytes": 0, "retention_ms": 0}
    with kstore.open_log(tmp_path / "kept", cleanup_policy=(), **settings) as log:
        for _ in range(10):
            log.append(b"x" * 300, timestamp=1)
        log.enforce_retention()
        assert log.log_start_offset == 0
    with kstore.open_log(tmp_path / "deleted", **settings) as log:
        for _ in range(10):
            log.append(b"x" * 300, timestamp=1)
        log.enforce_retention()
        assert log.log_start_offset > 0


def test_jitter_lets_logs_begin_new_segments_at_different_times(tmp_path: Path) -> None:
    """Records a millisecond apart: with a jitter as large as segment.ms, few logs roll together."""
    firsts = []
    with kstore.open_log_dir(tmp_path) as folder:
        config = LogConfig(segment_ms=1000, segment_jitter_ms=1000)
        for partition in range(8):
            log = folder.log("t", partition, config=config)
            for time_ms in range(1100):
                log.append(b"x", timestamp=time_ms)
            firsts.append(log.segments[1].base_offset)
    assert len(set(firsts)) > 4
    assert all(0 < first <= 1001 for first in firsts)


def test_a_producers_state_is_kept_as_long_as_it_is_set(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as folder:
        folder.retention_check_ms = 0
        log = folder.log("t")
        old = folder.now_ms() - 5000
        log.append_batches(
            build_batch([b"x"], timestamp=old, producer_id=7, producer_epoch=0, base_sequence=0)
        )
        folder.producer_expiration_ms = 60_000
        folder.maintenance.tick()
        assert len(log.core.producers) == 1
        folder.producer_expiration_ms = 1000
        folder.maintenance.tick()
        assert len(log.core.producers) == 0


@pytest.mark.parametrize("field", [field.name for field in fields(LogConfig)])
def test_whatever_a_broker_accepts_a_log_accepts(field: str) -> None:
    """Topic configs, and the broker configs that are their defaults, at their limits."""
    row = TOPIC_CONFIGS[field.replace("_", ".")]
    rows = [(row, 1)] + [(BROKER_CONFIGS[name], factor) for name, factor in row.synonyms]
    for each, factor in rows:
        for text in [*LIMITS, *each.choices]:
            if each.complaint(text) is None:
                value = each.parse(text, each.name)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    value *= factor
                LogConfig.from_topic_configs({row.name: row.format(value)})
