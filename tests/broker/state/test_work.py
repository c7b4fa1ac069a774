"""broker/state/work.py: work in pieces, and who drives it."""

from __future__ import annotations

import pytest

from kstore.broker.state.work import RunningWork, Work, whole


def counting(pieces: int) -> Work[str]:
    for _ in range(pieces):
        yield
    return f"{pieces} pieces"


@pytest.mark.parametrize("pieces", [0, 1, 5])
def test_each_call_does_a_piece_and_the_last_one_says_so(pieces: int) -> None:
    running = RunningWork(counting(pieces))
    assert [running.go_on() for _ in range(pieces + 1)] == [False] * pieces + [True]
    assert running.result == whole(counting(pieces)) == f"{pieces} pieces"


def test_what_the_work_raises_comes_to_who_drives_it() -> None:
    def failing() -> Work[None]:
        yield
        raise ValueError("no")

    running = RunningWork(failing())
    assert not running.go_on()
    with pytest.raises(ValueError, match="no"):
        running.go_on()
    with pytest.raises(ValueError, match="no"):
        whole(failing())
