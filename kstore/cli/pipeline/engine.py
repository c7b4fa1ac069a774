"""Decides whether a job of `kstore pipeline` needs Spark or runs in this process (``--engine``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from kstore.cli.arguments import one_of

__all__ = ["Engine", "is_local", "need_spark"]

Engine = Annotated[
    str,
    typer.Option(
        help="spark, local (one process, without Spark), or auto: local for at most two million "
        "offsets of each cluster or archive, unless --master, --conf, spark-submit, a URL or "
        "Spark's own configuration asks for Spark."
    ),
]
_MEANT = ("spark.master", "spark.remote", "spark.hadoop.")
"""Prefixes of settings that say where Spark runs, or which file system a path belongs to."""
ALONE = "--engine local does it in this process without Spark, in more time"


def is_local(
    engine: str,
    master: str | None,
    conf: Sequence[str] | None,
    folders: Sequence[str],
    offsets: Callable[[], int],
) -> bool:
    """Whether the job runs in this process: if requested, or if there are few `offsets` and no
    Spark settings. `folders` are the paths that it reads or writes. Raises typer.BadParameter if it
    can't.
    """
    from kstore.pipeline.jobs.archive import FEW

    one_of("--engine", engine, "auto", "local", "spark")
    urls = _urls(folders)
    if engine == "local" and urls:
        raise typer.BadParameter(
            f"--engine local reads and writes folders of this machine, not {urls[0]}"
        )
    if engine != "auto":
        return engine == "local"
    if urls or master or conf or _spark_is_set_up(folders):
        return False
    return offsets() <= FEW


def _spark_is_set_up(folders: Sequence[str]) -> bool:
    """Whether the environment or a file says where Spark runs, or that the paths of `folders` may
    be of another file system.
    """
    if any(name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")):
        return True
    if "SPARK_CONF_DIR" in os.environ or (folders and "HADOOP_CONF_DIR" in os.environ):
        return True
    base = os.environ.get("SPARK_HOME") or _installed_spark()
    return base is not None and _has_settings(Path(base, "conf"))


def _installed_spark() -> str | None:
    """The folder of pyspark, which it takes for SPARK_HOME if that is not set."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else os.path.dirname(found.origin)


def _has_settings(folder: Path) -> bool:
    """Whether Spark's configuration folder sets a master or a file system. A file that can't be
    read may do so.
    """
    if (folder / "core-site.xml").exists():
        return True
    try:
        text = (folder / "spark-defaults.conf").read_text(errors="replace")
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return any(line.strip().startswith(_MEANT) for line in text.splitlines())


def need_spark(folders: Sequence[str] | None) -> None:
    """Raise JobError if Spark or Java is not installed. The message names --engine local if the job
    can run that way with its `folders`; None: it can't.
    """
    from kstore.pipeline.jobs.session import require_spark

    require_spark(None if folders is None or _urls(folders) else ALONE)


def _urls(folders: Sequence[str]) -> list[str]:
    from kstore.pipeline.jobs.layout import is_url

    return [folder for folder in folders if is_url(folder)]
