"""Whether a job of `kstore pipeline` needs Spark, or this process does it alone (``--engine``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from kstore.cli.arguments import one_of

__all__ = ["Engine", "is_local", "need_spark"]

Engine = Annotated[
    str,
    typer.Option(
        help="spark, local (one process, without Spark), or auto: local for at most two million "
        "offsets of each cluster or archive, unless --master, spark-submit or a URL asks for Spark."
    ),
]
ALONE = "--engine local does it in this process without Spark, in more time"


def is_local(
    engine: str, master: str | None, folders: Sequence[str], offsets: Callable[[], int]
) -> bool:
    """Whether this process does it: if asked to, or if there are few `offsets`. The `folders` are
    read or written. Raises typer.BadParameter where it can't.
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
    # Spark may be told that paths are of another file system.
    elsewhere = urls or (folders and "HADOOP_CONF_DIR" in os.environ)
    if elsewhere or master or "PYSPARK_GATEWAY_PORT" in os.environ:
        return False
    return offsets() <= FEW


def need_spark(folders: Sequence[str] | None) -> None:
    """Raises JobError where Spark or Java is not installed. It says if there is another way, which
    `folders` are read or written by; None: there is no other.
    """
    from kstore.pipeline.jobs.session import require_spark

    require_spark(None if folders is None or _urls(folders) else ALONE)


def _urls(folders: Sequence[str]) -> list[str]:
    from kstore.pipeline.jobs.layout import is_url

    return [folder for folder in folders if is_url(folder)]
