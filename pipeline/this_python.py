"""Have Spark use the Python that this process runs in, and talk to it by Unix sockets.

Spark asks a Python for the data sources there are, and runs its workers with it: the one that
PYSPARK_PYTHON names, else the `python3` of the PATH. A virtual environment that is not activated (a
job that cron, systemd or an IDE starts) is not on the PATH, and the source `kstore` is not found.

kstore-spark-python is that Python without Spark's zips: a process starts in 0.4 CPU seconds instead
of 1.1. pip installs it where it installs `kstore`.
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
"""Set where spark-submit has started the JVM, and it this process."""
SOCKETS = "PYSPARK_UDS_MODE"
"""What Spark 4.1 and newer take spark.python.unix.domain.socket.enabled from where nobody set it.
PySpark reads it here, the JVM in its own environment: both have to see the same."""
NAMES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def this_python() -> str:
    """The path of kstore-spark-python beside this Python; of this Python where it is not there."""
    command = os.path.join(os.path.dirname(sys.executable), COMMAND)
    return command if os.access(command, os.X_OK) else sys.executable


def use_this_python() -> None:
    """Set PYSPARK_PYTHON, unless somebody has. If the PATH leads to this environment, it is set to
    a name without a path: executors on other machines may have their environment elsewhere.

    Warns where a session runs already, which has another Python.
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
    """Have the JVM that PySpark is going to start exchange rows with its workers by Unix sockets,
    which take less CPU than TCP; unless somebody has decided, or the JVM runs already.
    """
    if hasattr(socket, "AF_UNIX") and not _has_jvm():
        os.environ.setdefault(SOCKETS, "true")


def _has_jvm() -> bool:
    """Whether this process belongs to a JVM that runs: what it sets now, that does not see."""
    return _GATEWAY in os.environ or _of_context("_gateway") is not None


def _of_context(name: str) -> object:
    """A field of SparkContext, without importing it."""
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    return getattr(context, name, None)
