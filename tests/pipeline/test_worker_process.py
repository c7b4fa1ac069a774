"""What a worker imported is spared by garbage collection; what comes later is collected. Its
PipelineErrors reach the user without a traceback.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest

from kstore.pipeline.errors import PipelineError, message_first

_SCRIPT = """
import gc
import weakref

from kstore.pipeline.worker_process import spare_imports


class Cycle:
    pass


spare_imports()
later = [[] for _ in range(100)]
spare_imports()
spared = gc.get_freeze_count()
cycle = Cycle()
cycle.itself = cycle
seen = weakref.ref(cycle)
del cycle
spare_imports()
again = gc.get_freeze_count()
gc.collect()
print(spared, again, len(gc.get_objects()), seen() is None)
"""


def test_imports_are_spared_by_two_tasks_and_later_garbage_is_collected():
    told = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    ).stdout
    spared, again, walked, collected = told.split()
    assert int(spared) > int(walked)
    assert int(again) <= int(spared)
    assert collected == "True"


@message_first
class Reader:
    """What Spark calls."""

    def partitions(self, error: Exception) -> None:
        """Fails."""
        raise error

    def read(self, error: Exception) -> Iterator[int]:
        """Fails after the first row."""
        yield 1
        raise error


@pytest.mark.parametrize(
    ("main", "error", "hides"),
    [
        ("pyspark.daemon", PipelineError("gone"), True),
        ("pyspark.daemon", ValueError("a bug"), False),
        ("pytest.__main__", PipelineError("gone"), False),
    ],
)
@pytest.mark.parametrize("name", ["partitions", "read"])
def test_only_a_worker_s_pipeline_error_hides_the_traceback(
    monkeypatch: pytest.MonkeyPatch, main: str, error: Exception, hides: bool, name: str
) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(main, None))
    with pytest.raises(type(error)):
        list(getattr(Reader(), name)(error))
    assert os.environ["SPARK_HIDE_TRACEBACK"] == ("1" if hides else "")
