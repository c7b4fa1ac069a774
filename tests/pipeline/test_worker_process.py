"""What a worker imported is spared by garbage collection once; what comes later is collected."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import gc
import weakref

from kstore.pipeline.worker_process import spare_imports


class Cycle:
    pass


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


def test_imports_are_spared_once_and_later_garbage_is_collected():
    told = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    ).stdout
    spared, again, walked, collected = told.split()
    assert int(spared) > int(walked)
    assert int(again) <= int(spared)
    assert collected == "True"
