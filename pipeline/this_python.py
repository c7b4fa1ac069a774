"""Makes Spark use the Python of this process, and Unix sockets to communicate with it.

Spark asks a Python for the data sources, and runs its workers with it: the one that PYSPARK_PYTHON
names, else the `python3` of the PATH. A virtual environment that is not activated (for example in a
job that cron, systemd or an IDE starts) is not on the PATH, and Spark does not find the source
`kstore`.

kstore-spark-python is this Python without Spark's zips: a process starts in 0.4 CPU seconds instead
of 1.1. pip installs it next to `kstore`.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import warnings

__all__ = ["this_python", "use_this_python", "use_unix_sockets"]

COMMAND = "kstore-spark-python"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set if spark-submit has started the JVM, which started this process."""
SOCKETS = "PYSPARK_UDS_MODE"
"""The default of spark.python.unix.domain.socket.enabled in Spark 4.1 and newer. PySpark reads it
here, the JVM in its own environment: both must have the same value.
"""
NAMES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def this_python() -> str:
    """The path of kstore-spark-python next to this Python; this Python if it does not exist."""
    command = os.path.join(os.path.dirname(sys.executable), COMMAND)
    return command if os.access(command, os.X_OK) else sys.executable


def use_this_python() -> None:
    """Set PYSPARK_PYTHON, unless it is set. If the PATH leads to this environment, the value is a
    name without a path: the environment may have another path on other machines.

    Warns if a session already runs with another Python.
    """
    if any(name in os.environ for name in NAMES) or not sys.executable:
        return
    python, found = this_python(), shutil.which("python3")
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        if not _has_jvm() and shutil.which(COMMAND) == python:
            os.environ["PYSPARK_PYTHON"] = COMMAND
        return
    os.environ["PYSPARK_PYTHON"] = python
    if _of_context("_active_spark_context") is not None:
        warnings.warn(
            f"a Spark session runs already, with {found or 'no python3'}, which may not find the "
            "data source kstore: import pyspark_kstore before the session is made, or set "
            f"PYSPARK_PYTHON={python}",
            stacklevel=4,
        )


def use_unix_sockets() -> None:
    """Make the JVM that PySpark is going to start exchange rows with its workers through Unix
    sockets, which use less CPU than TCP; unless the user has set it, or the JVM already runs.
    """
    if hasattr(socket, "AF_UNIX") and not _has_jvm():
        os.environ.setdefault(SOCKETS, "true")


def _has_jvm() -> bool:
    """Whether this process belongs to a running JVM, which does not see what is set now."""
    return _GATEWAY in os.environ or _of_context("_gateway") is not None


def _of_context(name: str) -> object:
    """A field of SparkContext, without importing it."""
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    return getattr(context, name, None)
