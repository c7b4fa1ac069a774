"""Appends on the condition that the log ends where the caller expects: of several, one succeeds."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kstore
from kstore.log import Log, UnexpectedOffsetError


def test_the_end_must_be_the_expected_one(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        assert log.append(b"a", expected_offset=0) == 0
        with pytest.raises(UnexpectedOffsetError, match=r"ends at 1, not at .* 0") as caught:
            log.append(b"b", expected_offset=0)
        assert (caught.value.expected_offset, caught.value.log_end_offset) == (0, 1)
        with pytest.raises(UnexpectedOffsetError):
            log.append_many([b"b", b"c"], expected_offset=2)
        with pytest.raises(UnexpectedOffsetError):
            log.append(b"b", headers=[("h", b"v")], expected_offset=5)
        assert log.append_many([b"b", b"c"], expected_offset=1).last_offset == 2
        assert log.append(b"d", headers=[("h", b"v")], expected_offset=3) == 3
        assert [record.value for record in log.records()] == [b"a", b"b", b"c", b"d"]


def test_a_log_that_was_cut_is_expected_to_end_there(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append(b"a")
        log.append(b"b")
        log.truncate(1)
        assert log.append(b"c", expected_offset=1) == 1


@pytest.mark.parametrize("shared", [False, True])
def test_a_counter_that_threads_and_openings_raise_misses_no_step(
    tmp_path: Path, shared: bool
) -> None:
    """Read the last record, add one, append: the loser of each race reads again."""
    logs = [kstore.open_log(tmp_path, shared=shared) for _ in range(3 if shared else 1)]
    logs[0].append(b"0")
    lost: list[int] = []

    def work(log: Log) -> None:
        for _ in range(50):
            while True:
                end = log.log_end_offset
                (last,) = log.records(end - 1, end)
                try:
                    log.append(b"%d" % (int(last.value or b"") + 1), expected_offset=end)
                except UnexpectedOffsetError as error:
                    lost.append(error.log_end_offset - end)
                else:
                    break

    threads = [threading.Thread(target=work, args=(log,)) for log in logs * (2 if shared else 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = [int(record.value or b"") for record in logs[0].records()]
    for log in logs:
        log.close()
    assert all(behind > 0 for behind in lost)
    assert values == list(range(len(threads) * 50 + 1))
