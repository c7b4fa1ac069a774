"""Garbage collection skips the objects that a worker imported, and collects later ones. Freed
memory is used again. PipelineErrors reach the user without a traceback. A stream's process imports
pyarrow when rows are made.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from kstore.pipeline.errors import PipelineError, message_first
from tests.beside.programs import output_of

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
    spared, again, walked, collected = output_of([sys.executable, "-c", _SCRIPT]).split()
    assert int(spared) > int(walked)
    assert int(again) <= int(spared)
    assert collected == "True"


@message_first
class Reader:
    """The function that Spark calls."""

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


_ROUNDS = """
import resource
from kstore.pipeline.worker_process import keep_memory

if KEEP:
    keep_memory()
for _ in range(20):
    buffers = [letter * (4 << 20) for letter in [b"x"] * 10]
    del buffers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.slow
def test_freed_memory_is_kept() -> None:
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this allocator cannot be told to keep memory")
    given, kept = (_pages_given(keep=keep) for keep in (False, True))
    assert given > kept + 10 * 10 * 4 * 256, "half of the rounds' pages"


def _pages_given(*, keep: bool) -> int:
    """How often the system gives pages to a process that repeatedly uses 40 MB."""
    script = _ROUNDS.replace("KEEP", str(keep))
    return int(output_of([sys.executable, "-c", script]))


_LATER = """
import sys
from kstore.pipeline.worker_process import import_rows_later

import_rows_later()
import pyspark.sql.streaming.python_streaming_source_runner as runner
from kstore.pipeline.stream_reader import StreamReader
from pyspark.sql.types import LongType, StructField, StructType

print([name for name in ("numpy", "pandas", "pyarrow") if name in sys.modules])
schema = StructType([StructField("id", LongType())])
print([b.to_pydict() for b in runner.records_to_arrow_batches(iter([(1,), (2,)]), 9, schema, None)])
import pyspark.sql.worker.plan_data_source_read as module
print(module.__name__, hasattr(module, "__file__"))
"""


@pytest.mark.slow
def test_a_stream_s_process_imports_pyarrow_when_rows_are_made() -> None:
    told = output_of([sys.executable, "-c", _LATER])
    module = "pyspark.sql.worker.plan_data_source_read"
    assert told.splitlines() == ["[]", "[{'id': [1, 2]}]", f"{module} True"]


@pytest.mark.slow
def test_other_names_of_the_module_are_found_too() -> None:
    script = """
from kstore.pipeline.worker_process import import_rows_later

import_rows_later()
from pyspark.sql.worker.plan_data_source_read import main, records_to_arrow_batches
print(main.__module__)
"""
    told = output_of([sys.executable, "-c", script])
    assert told.strip() == "pyspark.sql.worker.plan_data_source_read"


def test_a_module_that_is_run_so_is_the_main_module(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text("import sys; print(sys.modules['__main__'].__spec__.name)")
    command = [sys.executable, "-m", "kstore.pipeline.worker_process", "given"]
    told = output_of(command, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert told.strip() == "given", "a PipelineError's traceback is hidden by this name"
