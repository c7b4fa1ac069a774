"""The Spark session of a job: that of spark-submit, or a new one; small tables for it; and the
messages if Spark or Java is missing. pyspark is imported when a session is requested.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstore.errors import KafkaError
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.quiet import quiet_start
from kstore.pipeline.this_python import this_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "open_session",
    "passing_trouble",
    "require_arrow",
    "require_spark",
    "sentence_of",
    "small_frame",
    "small_table",
]

# Settings that a job needs in any session.
_NEEDED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # With Unix sockets, an idle worker that Spark stops after a minute prints a traceback.
    "spark.python.unix.domain.socket.enabled": "false",
}
_LOUD = {"spark.ui.showConsoleProgress": "true", "spark.log.level": "WARN"}


_LASTING = frozenset({
    "AnalysisException", "ParseException", "IllegalArgumentException", "PySparkTypeError",
    "PySparkValueError", "PySparkAttributeError", "UnsupportedOperationException",
})  # fmt: skip
"""Errors of Spark that a retry does not solve: the job requested something impossible."""

# How Spark's text shows an error of a task.
_OURS = re.compile(r"(?:kstore[\w.]*\.)?(?:PipelineError|JobError): (.+)")


def open_session(
    name: str,
    master: str | None = None,
    confs: Mapping[str, str] | None = None,
    *,
    loud: bool = False,
) -> SparkSession:
    """The active session, or a new one: with spark-submit's master, else `master`, else on all
    cores of this machine. With `loud`, Spark shows its warnings and its progress.

    Raises JobError if Spark or Java is not installed.
    """
    require_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", this_python())
    # pyspark warns of pandas, which no job uses, in this process and in each worker.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    active = SparkSession.getActiveSession()
    if active is None:
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # then spark-submit decides
        given = {"spark.app.name": f"kstore pipeline {name}"}
        given |= {} if submitted else _LOCAL | (_LOUD if loud else {})
        if master or not submitted:
            given["spark.master"] = master or "local[*]"
        given |= confs or {}
        builder = SparkSession.builder
        for key, value in given.items():
            builder = builder.config(key, value)
        try:
            with nullcontext() if loud or submitted else quiet_start(given):
                active = builder.getOrCreate()
        except (PySparkException, OSError, RuntimeError) as error:
            raise JobError(f"Spark does not start: {error}") from error
    for key, value in _NEEDED.items():
        active.conf.set(key, value)
    return active


def small_frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], ddl: str) -> DataFrame:
    """Rows of the driver as a DataFrame with this schema; through Arrow, so that no Python worker
    has to start.
    """
    return spark.createDataFrame(small_table(rows, ddl), ddl)


def small_table(rows: Sequence[Mapping[str, Any]], ddl: str) -> Any:
    """The same as a pyarrow.Table."""
    import pyarrow as pa

    types = {
        "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(),
        "binary": pa.binary(),
    }  # fmt: skip
    fields = [part.replace("`", "").split() for part in ddl.split(",")]
    columns = {name: pa.array([row[name] for row in rows], types[kind]) for name, kind in fields}
    return pa.table(columns)


def require_arrow() -> None:
    """Raise JobError if Arrow, which small jobs need, is not installed."""
    missing = [name for name in ("pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise JobError(
            f"this needs Arrow ({' and '.join(missing)} not installed): pip install "
            "'kstore[spark]', or 'kstore[arrow]' for small topics without --report"
        )


def require_spark(otherwise: str | None = None) -> None:
    """Raise JobError if Spark or Java is not installed. ``otherwise``: what does not need it."""
    otherwise = otherwise or "`kstore replicate` and `kstore verify-order` do not need it"
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise JobError(
            f"this needs Spark ({' and '.join(missing)} not installed): pip install "
            f"'kstore[spark]'. {otherwise}"
        )
    if not _has_java() and "SPARK_REMOTE" not in os.environ:
        raise JobError(f"Spark needs Java 17 or newer: install it, or set JAVA_HOME. {otherwise}")


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    if home:
        return Path(home, "bin", "java").exists()
    return shutil.which("java") is not None


BAD_VALUE = "--bad-records keep"
"""Part of the message about a value that does not match its schema; code depends on it."""


def passing_trouble(error: BaseException, spark: SparkSession) -> str | None:
    """The error's text if a retry may succeed: brokers, a service or Spark's tasks failed, and
    Spark still runs. Otherwise None.
    """
    if isinstance(error, KafkaError):
        return str(error) if error.retriable else None
    if isinstance(error, JobError):
        return str(error) if error.passes else None
    if BAD_VALUE in str(error):
        return None
    name = type(error).__name__
    if not type(error).__module__.startswith(("py4j.", "pyspark.errors.")) or name in _LASTING:
        return None
    try:
        ended = spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 - the JVM is gone, however that shows
        return None
    return None if ended else sentence_of(error)


def sentence_of(error: BaseException) -> str:
    """The message for a user of an error from Spark: kstore's own text if a task has raised one of
    its errors, else Spark's first line.
    """
    text = str(error)
    found = _OURS.search(text)
    if found is not None:
        return found[1].strip()
    condition = getattr(error, "getCondition", lambda: None)()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("[") and "]" in line]
    first = (causes or lines or [type(error).__name__])[0]
    return f"Spark: {first}" if condition is None or condition in first else f"{condition}: {first}"
