"""What the append of one record costs its caller, counted in Python frames, and which class can do
it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import kstore
from kstore._fast.log.log_core import Appender
from kstore.log.log import Log


def test_an_append_of_one_record_enters_no_python_frame(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append(b"the first one notes that the log has changed")
        entered: list[str] = []

        def note(frame: FrameType, event: str, _argument: object) -> None:
            if event == "call":
                entered.append(frame.f_code.co_qualname)

        sys.setprofile(note)
        try:
            log.append(b"value")
            log.append(b"value", b"key", 1_000)
            alone = list(entered)
            _ = log.log_end_offset
        finally:
            sys.setprofile(None)
        assert alone == []
        assert entered  # the profiler does see what is Python


def test_an_append_is_synced_by_whoever_can(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, flush="always") as log:
        log.append(b"value")
        assert log.core.durable_offset == 1
        bare = Appender(log.core)
        with pytest.raises(NotImplementedError, match="can sync"):
            bare.append(b"value")


def test_a_log_that_was_not_made_whole_appends_nothing() -> None:
    class Half(Log):
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError, match=r"Half\.__init__ has to call Log\.__init__"):
        Half().append(b"value")
