"""One task of the sink in a separate process: `python -m bench.sink.worker BOOTSTRAP ROWS SIZE`.
Each line of its input is a job in JSON. The answer is a line of JSON with what the task has staged,
and its CPU seconds. The rows are created before the first job, in batches as Spark sends them.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from typing import Any

from bench.sink import former
from bench.sink.answers import as_text
from kstore.pipeline.sink.tasks import Task

__all__ = ["made_rows"]

ARROW_ROWS = 10_000
"""Spark's default for spark.sql.execution.arrow.maxRecordsPerBatch."""
KEYS = 100_000


def made_rows(count: int, size: int) -> list[Any]:
    """Record batches of Arrow with columns key and value. Values in one batch do not repeat."""
    import pyarrow as pa

    draw = random.Random(size)
    values = pa.array([draw.randbytes(size) for _ in range(ARROW_ROWS)], pa.binary())
    found = []
    for start in range(0, count, ARROW_ROWS):
        rows = min(ARROW_ROWS, count - start)
        keys = pa.array([f"key-{draw.randrange(KEYS):06}" for _ in range(rows)], pa.string())
        found.append(pa.RecordBatch.from_arrays([keys, values[:rows]], names=["key", "value"]))
    return found


def _main(bootstrap: str, count: str, size: str) -> None:
    rows = made_rows(int(count), int(size))
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        used = time.process_time()
        settings = former.settings_for(bootstrap, job["topic"], exactly_once=job["way"] != "direct")
        if job["way"] == "former":
            made: Any = former.stage(settings, job["sink"], rows)
        else:
            made = Task(settings, job["sink"], 0, creates=False).write(iter(rows))
        used = time.process_time() - used
        print(json.dumps({"cpu_s": used, "made": as_text(made)}), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
