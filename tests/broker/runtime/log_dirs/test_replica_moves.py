"""broker/runtime/log_dirs/replica_moves.py: where a partition is while it moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kstore.broker.runtime.log_dirs.replica_moves import ReplicaMove, ReplicaMoves
from kstore.types import TopicPartition


def test_a_partition_is_in_its_old_log_dir_until_the_move_is_finished() -> None:
    """Its log is swapped before the folders are: it would be in the new log dir twice, and clients
    that keep one row would take it for a copy that is not finished.
    """
    key = TopicPartition("t", 0)
    unused: Any = None
    old: Any = SimpleNamespace(log_dir=SimpleNamespace(name="old"))
    new: Any = SimpleNamespace(log_dir=SimpleNamespace(name="new"))
    partition: Any = SimpleNamespace(log=old)
    moves = ReplicaMoves(unused, unused, unused)
    assert moves.home_of(key, old) is old.log_dir
    move = ReplicaMove(key, partition, new.log_dir)
    moves._moves[key] = move, unused
    assert moves.home_of(key, old) is old.log_dir
    move.future = partition.log = new
    assert moves.home_of(key, new) is old.log_dir
    del moves._moves[key]
    assert moves.home_of(key, new) is new.log_dir
