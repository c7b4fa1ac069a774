"""Holds back what Spark's JVM writes while it starts (logging setup, jars, warnings), and shows it
only if the JVM does not start. Later output is passed on.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["quiet_start"]


class _Held:
    """The JVM's stderr, read by a thread."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        self._lines: list[bytes] | None = []
        self._lock = threading.Lock()
        threading.Thread(target=self._pass_on, name="spark-stderr", daemon=True).start()

    def _pass_on(self) -> None:
        with open(self._read, "rb", buffering=0) as pipe:
            while came := pipe.read(65536):
                with self._lock:
                    if self._lines is not None:
                        self._lines.append(came)
                        continue
                _show(came)

    def end(self, *, show: bool) -> None:
        """Pass everything on from now on."""
        with self._lock:
            kept, self._lines = self._lines, None
        if show:
            _show(b"".join(kept or ()))


def _show(text: bytes) -> None:
    sys.stderr.write(text.decode("utf-8", "replace"))
    sys.stderr.flush()


@contextmanager
def quiet_start(confs: Mapping[str, str]) -> Iterator[None]:
    """Start the JVM with these settings, unless it runs; create a session in the block."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        yield
        return
    held = _Held()
    try:
        conf = SparkConf().setAll(list(confs.items()))
        gateway = launch_gateway(conf, {"stderr": held.write})  # type: ignore[no-untyped-call]
        os.close(held.write)
        SparkContext._ensure_initialized(gateway=gateway)
        yield
    except BaseException:
        held.end(show=True)
        raise
    held.end(show=False)
