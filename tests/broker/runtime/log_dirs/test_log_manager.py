"""broker/runtime/log_dirs/log_manager.py: which log dir a new partition goes to."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

from kstore._fast.broker.partition_table import PartitionTable
from kstore.broker.runtime.log_dirs.log_manager import LocalReplicas
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from kstore.config import BrokerConfig


def test_a_new_partition_goes_to_the_log_dir_with_the_fewest(tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    replicas = _replicas()
    replicas.open(paths)
    try:
        _open(replicas, "t", 6)
        assert _counts(replicas) == {"a": 2, "b": 2, "c": 2}
        for index in (0, 3):  # both in the first
            replicas.delete("t", index)
        _open(replicas, "u", 2)
        assert _counts(replicas) == {"a": 2, "b": 2, "c": 2}
        replicas.delete("t", 99)
        _open(replicas, "v", 1)
        assert sum(_counts(replicas).values()) == 7
    finally:
        replicas.close()

    again = _replicas()
    again.open(paths)
    try:
        _open(again, "w", 2)
        assert _counts(again) == {"a": 3, "b": 3, "c": 3}
    finally:
        again.close()


def _replicas() -> LocalReplicas:
    table = PartitionTable(1, lambda call: call())
    return LocalReplicas(BrokerConfig.load(overrides={}), 1, table, print)


def _open(replicas: LocalReplicas, name: str, partitions: int) -> None:
    topic = TopicImage(name, uuid4(), (PartitionImage(1, 0, (1,), (1,)),) * partitions, {})
    entry = replicas.add_topic(topic)
    for index in range(partitions):
        replicas.open_partition(entry, topic, index, replicas.log_config({}))


def _counts(replicas: LocalReplicas) -> dict[str, int]:
    return Counter(
        log_dir.path.rpartition("/")[2] for log_dir in replicas.dirs for _ in log_dir.partitions()
    )
