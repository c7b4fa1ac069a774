"""bench/pipeline/parts.py: CPU seconds by thread and process. Processes of this test stand in for
Spark's JVM.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.pipeline.parts import NAMES, Parts

_SPARK = """
import subprocess, sys, threading, time

def burn():
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass

def named(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write(name)
    burn()
    open_until_read.wait()

open_until_read = threading.Event()
threads = [threading.Thread(target=named, args=[name]) for name in sys.argv[1:]]
for thread in threads:
    thread.start()
subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
worker = subprocess.Popen(
    [sys.executable, "-c", "sum(range(5_000_000)); print(flush=True); input()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
)
worker.stdout.readline()
time.sleep(0.1)
while any(t.is_alive() for t in threads) and time.process_time() < 0.1 * len(threads):
    time.sleep(0.01)
print("ready", flush=True)
input()
open_until_read.set()
worker.communicate(b"\\n")
"""


@pytest.mark.slow
def test_threads_processes_and_those_that_ended_are_told_apart() -> None:
    names = ["Executor task l", "C2 CompilerThre", "GC Thread#0", "dag-scheduler-e"]
    with subprocess.Popen(
        [sys.executable, "-c", _SPARK, *names],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as spark:  # fmt: skip
        assert spark.stdout is not None
        assert spark.stdout.readline() == "ready\n"
        parts = Parts(spark.pid)
        used = parts.seconds()
        spark.communicate("\n")
    assert list(used) == list(NAMES)
    for part in ("tasks", "compiler", "collector", "jvm", "python", "ended"):
        assert used[part] > 0, part
    # The child was waited for by now: nothing that was seen is forgotten.
    assert parts.seconds()["tasks"] == used["tasks"]
    assert parts.seconds()["python"] == used["python"]
