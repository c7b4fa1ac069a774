"""What the commands of `kstore pipeline` share: their Spark session, output and errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from kstore.cli.arguments import key_values
from kstore.cli.failure import guarded
from kstore.cli.progress import HowFar, Progress
from kstore.cli.waiting import waiting_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kstore.pipeline.jobs.replicate import CopyProgress, ReplicateOptions

__all__ = [
    "Confs",
    "Master",
    "Running",
    "SparkOutput",
    "Tasks",
    "job",
    "rounds",
    "spark_command",
]

P = ParamSpec("P")
PAUSE_S = 1.0
FIRST_ANSWER_MS = 10_000

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark's master, such as spark://host:7077; by default all cores of this machine."
    ),
]
Confs = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]
SparkOutput = Annotated[
    bool,
    typer.Option("--spark-output", help="Show Spark's warnings and its progress bar."),
]
Tasks = Annotated[
    int, typer.Option(min=0, help="The approximate number of tasks; 0: depends on Spark's cores.")
]


def spark_command(function: Callable[P, None]) -> Callable[P, None]:
    """A command that needs Spark. Without Spark, it fails with a message before it imports its own
    modules.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from kstore.pipeline.jobs.session import require_spark

        require_spark()
        function(*args, **kwargs)

    return guarded(run)


class Running:
    """A running job: its Spark session and its output."""

    def __init__(self, spark: SparkSession | None, json: bool) -> None:
        self.spark_or_none = spark
        self.json = json
        self._progress = Progress(json)

    @property
    def spark(self) -> SparkSession:
        """The Spark session of a job that has one."""
        assert self.spark_or_none is not None
        return self.spark_or_none

    def print(self, text: str) -> None:
        """Report what happens: a line on stderr, or an event in JSON."""
        if self.json:
            self._event("said", {"text": text})
        else:
            self._progress.print(text)

    def row(self, data: Mapping[str, Any]) -> None:
        """Print one result, only in JSON: text output has only the sum."""
        if self.json:
            self._event("row", data)

    def progress(self, found: CopyProgress) -> None:
        """Report the progress."""
        row = {"partitions": found.partitions, "offsets": found.offsets, "lag": found.lag}
        self._progress.show(HowFar(found.offsets - found.lag, found.lag, "offsets"), row)

    def done(self, data: Mapping[str, Any], sentence: str) -> None:
        """Print the final result on stdout."""
        self._progress.end()
        if self.json:
            self._event("done", data)
        else:
            print(sentence, flush=True)

    def _event(self, kind: str, data: Mapping[str, Any]) -> None:
        self._progress.event(kind, {"seconds": round(self._progress.seconds, 3)} | dict(data))


@contextmanager
def job(
    name: str,
    master: str | None,
    confs: list[str] | None,
    json: bool,
    *clusters: Mapping[str, Any],
    loud: bool = False,
) -> Iterator[Running]:
    """A Spark session for one job, stopped with it. It starts when the clusters (settings of
    consumers) answer, because the start takes long. Errors of Spark become JobError.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from kstore.pipeline.jobs.failure import JobError
    from kstore.pipeline.jobs.session import open_session, sentence_of

    given = key_values(confs, "spark.executor.memory=2g")
    for settings in clusters:
        _answers(settings)
    is_own = SparkSession.getActiveSession() is None
    with waiting_for("Spark to start"):
        spark = open_session(name, master, given, loud=loud)
    try:
        yield Running(spark, json)
    except PySparkException as error:
        raise JobError(sentence_of(error)) from error
    except Exception as error:
        if type(error).__module__.startswith("py4j"):
            raise JobError(sentence_of(error)) from error
        raise
    finally:
        if is_own:
            spark.stop()


def _answers(settings: Mapping[str, Any]) -> None:
    """Raise KafkaError if no broker of a cluster answers."""
    from kstore.clients import Consumer

    with Consumer(settings) as consumer:
        consumer.topics(timeout_ms=FIRST_ANSWER_MS)


def rounds(running: Running, options: ReplicateOptions, *, follow: bool) -> list[str]:
    """Replicate once, or repeatedly; returns the partitions that failed in the last round."""
    from kstore.pipeline.jobs.replicate import replicate

    while True:
        found = replicate(running.spark, options, running.print, running.progress)
        for text in (*found.losses, *found.problems):
            running.print(text)
        row = {
            "partitions": found.partitions,
            "failed": len(found.problems),
            "records": found.records,
            "bytes": found.bytes,
            "group_offsets": found.group_offsets,
        }
        running.done(
            row,
            f"{found.records} records, {found.bytes / 1e6:.1f} MB in {found.partitions} partitions,"
            f" {found.group_offsets} group offsets, {len(found.problems)} failed",
        )
        if not follow or found.problems:
            return found.problems
        time.sleep(PAUSE_S)
