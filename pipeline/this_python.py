"""Have Spark use the Python that this process runs in, and talk to it by Unix sockets.

Spark asks a Python for the data sources there are, and runs its workers with it: the one that
PYSPARK_PYTHON names, else the `python3` of the PATH. A virtual environment that is not activated (a
job that cron, systemd or an IDE starts) is not on the PATH, and the source `kstore` is not found.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import warnings

__all__ = ["use_this_python", "use_unix_sockets"]

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started the JVM, and it this process."""
SOCKETS = "PYSPARK_UDS_MODE"
"""What Spark 4.1 and newer take spark.python.unix.domain.socket.enabled from where nobody set it.
PySpark reads it here, the JVM in its own environment: both have to see the same."""
NAMES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def use_this_python() -> None:
    """Set PYSPARK_PYTHON, unless somebody has, or the PATH leads to this environment anyway. Warns
    where a session runs already, which has another one.
    """
    if any(name in os.environ for name in NAMES) or not sys.executable:
        return
    found = shutil.which("python3")
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    if getattr(context, "_active_spark_context", None) is not None:
        warnings.warn(
            f"a Spark session runs already, with {found or 'no python3'}, which may not find the "
            "data source kstore: import kstore.pipeline before the session is made, or set "
            f"PYSPARK_PYTHON={sys.executable}",
            stacklevel=3,
        )


def use_unix_sockets() -> None:
    """Have the JVM that PySpark is going to start exchange rows with its workers by Unix sockets,
    which take less CPU than TCP; unless somebody has decided, or the JVM runs already.
    """
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    has_begun = _GATEWAY in os.environ or getattr(context, "_gateway", None) is not None
    if hasattr(socket, "AF_UNIX") and not has_begun:
        os.environ.setdefault(SOCKETS, "true")
