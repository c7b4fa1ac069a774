"""A disk that is full when logs are made: a sentence in place of a bare OSError, nothing half made,
and the next try works.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import kstore
from kstore.env import SystemEnv
from kstore.log.cursors.group_offsets import OFFSETS_TOPIC
from kstore.log.errors import DiskFullError
from tests.log.segments.hooked_files import HookedFiles

CALLS = ("mkdir", "write_file", "create")


class FullDisk(HookedFiles):
    """Full from the given call on, for what is made of a topic."""

    def __init__(self, call: str, after: int, topic: str) -> None:
        self.call, self.left, self.topic = call, after, topic

    def before(self, call: str, path: str) -> None:
        if call == "write_file" and self.left == 0:
            Path(path + ".tmp").touch()  # a full disk makes files, and writes nothing to them
        if call == self.call and self.topic in path:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("after", [0, 1, 30])
def test_cursors_that_become_groups_are_tried_again(tmp_path: Path, call: str, after: int) -> None:
    fs = FullDisk(call, after, OFFSETS_TOPIC)
    with kstore.open_log(tmp_path, env=SystemEnv(fs=fs)) as log:
        log.append(b"x")
        log.append(b"y")
        cursor = log.cursor("mine")
        assert [record.value for record in cursor.poll()] == [b"x", b"y"]
        assert cursor.commit(1) == 1
        offsets = log.log_dir.committed_offsets
        for _ in range(2):
            with pytest.raises(DiskFullError, match="free some space and try again"):
                offsets.give_to_groups()
            assert cursor.committed == 1
        fs.call = "none"
        assert offsets.give_to_groups() == 1
        assert cursor.committed == 1
        made = [tp for tp in log.log_dir.partitions() if tp.topic == OFFSETS_TOPIC]
        assert len(made) == 50
        assert None not in [log.log_dir.topic_id(tp) for tp in made]
    with kstore.open_log(tmp_path) as log:
        assert log.cursor("mine").committed == 1
        assert [record.value for record in log.records()] == [b"x", b"y"]


def test_a_commit_of_a_cursor_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with kstore.open_log(tmp_path) as log:
        log.append_many([b"x", b"y"])
        cursor = log.cursor("mine")
        cursor.commit(1)
        with monkeypatch.context() as patched:
            for broken in (full, lambda *_: 7):  # nothing, or a part of it, is written
                patched.setattr(os, "pwrite", broken)
                with pytest.raises(DiskFullError, match="free some space and try again"):
                    cursor.commit(2)
                assert cursor.committed == 1
        assert cursor.commit(2) == 2


@pytest.mark.parametrize("call", CALLS)
def test_a_log_that_could_not_be_made_leaves_nothing_behind(tmp_path: Path, call: str) -> None:
    fs = FullDisk(call, 0, "orders")
    with kstore.open_log_dir(tmp_path, env=SystemEnv(fs=fs)) as log_dir:
        with pytest.raises(DiskFullError, match="orders-0 failed"):
            log_dir.log("orders")
        assert not list(tmp_path.glob("orders-0/*.tmp"))
        fs.call = "none"
        assert log_dir.log("orders").append(b"x") == 0
        assert log_dir.topic_id(log_dir.partitions()[0]) is not None
