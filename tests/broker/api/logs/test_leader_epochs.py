"""The end of a leader epoch, while records of that epoch wait for the disk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.api.logs.leader_epochs import handle_offset_for_leader_epoch
from kstore.errors import ErrorCode
from tests.plain_messages import Ask

END, EPOCH = 7, 3
ENDS = {1: (1, 4), 2: (2, END), EPOCH: (EPOCH, END)}


def asked(epoch: int, queued: int) -> tuple[int, int, int]:
    """The answer of a leader in epoch 3 that has records of epochs 1 and 2: error, epoch, end."""
    partition = SimpleNamespace(
        online=True, leader_epoch=EPOCH, partition_epoch=-1, log_end_offset=END,
        appends_queued=queued, end_offset_for_epoch=ENDS.__getitem__, failed=False,
    )  # fmt: skip
    broker: Any = SimpleNamespace(table=SimpleNamespace(partition=lambda *_: partition))
    rows = [{"partition": 0, "leader_epoch": epoch}]
    request = Ask.OffsetForLeaderEpoch(topics=[{"topic": "t", "partitions": rows}])
    answer: Any = handle_offset_for_leader_epoch(broker, request, None)  # type: ignore[arg-type]
    ((row,),) = (topic.partitions for topic in answer.topics)
    return row.error_code, row.leader_epoch, row.end_offset


def test_the_end_of_a_past_epoch_is_unknown_while_its_records_wait_for_the_disk() -> None:
    assert asked(2, queued=1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)
    assert asked(2, queued=0) == (ErrorCode.NONE, 2, END)


@pytest.mark.parametrize("epoch", [1, EPOCH])
def test_other_ends_do_not_wait_for_records(epoch: int) -> None:
    """Of an epoch that another one follows here, and of the leader's own, which has not ended."""
    assert asked(epoch, queued=1) == (ErrorCode.NONE, *ENDS[epoch])
