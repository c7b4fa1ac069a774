"""The Spark sink on a standalone cluster, for minutes or hours: a query copies a topic that keeps
growing, while executors, their Python workers, the driver and brokers are killed (kill -9) at
random moments. In the end every record that was acknowledged is in the target, and none twice.

    python -m tests.soak.sink --minutes 60
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kstore.clients import AdminClient
from kstore.errors import KafkaError
from kstore.testing.spark_cluster import SparkCluster
from kstore.types import TopicPartition
from tests.beside.topic_records import values_of
from tests.beside.waiting import until
from tests.conformance.kstore_cluster import PARTITIONS, THREE_REPLICAS, KstoreCluster
from tests.pipeline.own_processes import OwnProcesses
from tests.soak.clients import SteadyProducer

SOURCE, TARGET = "source", "target"
QUERY = [sys.executable, "-m", "tests.soak.killed_query"]
DRIVER = "org.apache.spark.deploy.SparkSubmit"
IN_EXECUTORS = {"executor": "CoarseGrainedExecutorBackend", "python worker": "pyspark.daemon"}
KINDS = ("executor", "executor", "python worker", "driver", "broker", "broker")
ROWS, ROWS_AT_THE_END = 500, 20_000
MOST_IN_A_ROW = 4
"""Kills without a micro-batch that is written meanwhile."""
START_S, END_S = 300.0, 900.0
FATAL = "the staged rows are gone", "deleted and created again", "records were lost"


@dataclass
class SinkReport:
    """What was killed, and what the topics hold."""

    killed: Counter[str] = field(default_factory=Counter)
    applications: int = 0
    micro_batches: int = 0
    acknowledged: int = 0
    records: int = 0
    missing: list[bytes] = field(default_factory=list)
    doubled: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether each record is there once."""
        return not (self.missing or self.doubled or self.problems)


def sink_soak(
    folder: Path, seconds: float, seed: int, tell: Callable[[str], None], *, kill_every_s: float
) -> SinkReport:
    """Run for this time, then until the query has copied everything; ``tell`` gets lines of
    progress.
    """
    with (
        KstoreCluster(folder / "brokers", overrides=THREE_REPLICAS) as brokers,
        SparkCluster(folder / "spark", workers=2, memory="512m") as spark,
    ):
        return _Soak(brokers, spark, folder, random.Random(seed), tell).run(seconds, kill_every_s)


class _Soak:
    def __init__(
        self,
        brokers: KstoreCluster,
        spark: SparkCluster,
        folder: Path,
        rng: random.Random,
        tell: Callable[[str], None],
    ) -> None:
        self._brokers, self._spark, self._folder = brokers, spark, folder
        self._rng, self._tell = rng, tell
        self._bootstrap = brokers.bootstrap
        self._log = folder / "application.log"
        self._report = SinkReport()
        self._application: OwnProcesses | None = None
        self._seen_by_last = 0
        """Micro-batches that were written when a driver was last killed."""

    def run(self, seconds: float, kill_every_s: float) -> SinkReport:
        report = self._report
        for topic in (SOURCE, TARGET):
            self._brokers.create_topic(topic, PARTITIONS, 3)
        producer = SteadyProducer("p", self._bootstrap, SOURCE, PARTITIONS)
        producer.start()
        try:
            self._start(follow=True)
            until(self.micro_batches, "the first micro-batch", START_S, 0.5)
            self._disturb(time.monotonic() + seconds, kill_every_s)
            producer.finish()
            self._end()
        finally:
            if self._application is not None:
                self._application.end()
        report.acknowledged = sum(n + 1 for n in producer.acknowledged.values())
        report.micro_batches = self.micro_batches()
        report.problems += [f"not acknowledged: {each}" for each in producer.failed]
        source, target = (values_of(self._bootstrap, topic) for topic in (SOURCE, TARGET))
        last = {f"p-{where}".encode(): number for where, number in producer.acknowledged.items()}
        judge(report, source, target, last)
        return report

    # ---- the application ----

    def _start(self, *, follow: bool) -> None:
        if self._application is not None:
            self._application.end()
        arguments = {
            "bootstrap": self._bootstrap, "source": SOURCE, "target": TARGET,
            "folder": str(self._folder), "master": self._spark.url, "follow": follow,
            "rows": ROWS if follow else ROWS_AT_THE_END,
        }  # fmt: skip
        self._report.applications += 1
        self._application = OwnProcesses([*QUERY, json.dumps(arguments)], self._log)

    def _look(self) -> None:
        """Start it again, if it has ended; it does where Spark has lost what it needs."""
        if self._application.process.poll() is None:
            return
        said = self._log.read_text(errors="replace")
        for text in FATAL:
            if text in said:
                self._report.problems.append(f"the application said: {text}")
        self._tell("the application ended by itself: it is started again")
        self._start(follow=True)

    def _end(self) -> None:
        """Copy all that is left, without any disturbance."""
        deadline = time.monotonic() + END_S
        self._start(follow=False)
        while (code := self._application.process.poll()) != 0:
            if time.monotonic() > deadline:
                tail = self._log.read_text(errors="replace")[-3000:]
                raise AssertionError(f"the query does not end: {tail}")
            if code is not None:
                self._start(follow=False)
            time.sleep(0.5)

    def micro_batches(self) -> int:
        """How many are written, by the journals of the sink."""
        done = 0
        with AdminClient(self._bootstrap, default_api_timeout_ms=15_000) as admin:
            for topic in admin.list_topics(internal=True):
                if topic.startswith("__kstore_sink_"):
                    journal = TopicPartition(topic, 0)
                    done += admin.list_offsets({journal: "latest"})[journal].offset // 2
        return done

    # ---- the faults ----

    def _disturb(self, deadline: float, every_s: float) -> None:
        in_a_row, seen = 0, self.micro_batches()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, every_s * self._rng.uniform(0.3, 1.7)))
            self._look()
            if in_a_row == MOST_IN_A_ROW:
                self._await_progress(seen)
                in_a_row, seen = 0, self.micro_batches()
            kind = self._rng.choice(KINDS)
            try:
                if not self._kill(kind):
                    continue
            except KafkaError as error:  # no broker answers in time: a leader is being elected
                self._tell(f"put off: {error}")
                continue
            self._report.killed[kind] += 1
            in_a_row += 1
            with suppress(KafkaError):
                told = ", ".join(f"{n} {what}s" for what, n in self._report.killed.items())
                self._tell(f"{left:5.0f} s left: killed {told}; {self.micro_batches()} written")

    def _await_progress(self, seen: int) -> None:
        """Let the query write: who kills faster than executors start proves nothing."""

        def has_come() -> bool:
            self._look()
            return self.micro_batches() > seen

        until(has_come, f"a micro-batch after {MOST_IN_A_ROW} kills", START_S, 0.5)

    def _kill(self, kind: str) -> bool:
        assert self._application is not None
        if kind == "broker":
            node = self._rng.choice(list(self._brokers.brokers))
            self._brokers.fault(node, "kill", self._rng.uniform(0.0, 4.0))
            until(lambda: self._brokers.all_in_sync(TARGET), "all in sync again", 120)
            return True
        if kind == "driver":
            if self.micro_batches() <= self._seen_by_last:
                return False  # this one has not written yet
            self._seen_by_last = self.micro_batches()
            killed = self._application.kill(DRIVER)
            if killed:
                self._start(follow=True)
            return bool(killed)
        pids = self._in_executors(IN_EXECUTORS[kind])
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(pids), signal.SIGKILL)
                return True
        return False

    def _in_executors(self, what: str) -> list[int]:
        """Processes in the folders of this cluster's workers with this in their command line."""
        own = str(self._spark.folder)
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    place = os.readlink(folder / "cwd")
                    if place.startswith(own) and what.encode() in (folder / "cmdline").read_bytes():
                        found.append(int(folder.name))
        return sorted(found)


def judge(
    report: SinkReport, source: list[bytes], target: list[bytes], acknowledged: dict[bytes, int]
) -> None:
    """All that the source has is in the target once, and the source has what was acknowledged: of
    each name in front, all numbers up to the given one.
    """
    begins = {value[: value.rindex(b"-")] for value in source}
    for name, last in acknowledged.items():
        for number in range(last + 1):
            record = name + b"-%d" % number
            if record not in begins:
                report.problems.append(f"{record!r} was acknowledged, and the source lacks it")
    wanted, found = Counter(source), Counter(target)
    report.records = wanted.total()
    report.missing = sorted((wanted - found).elements())
    report.doubled = sorted((found - wanted).elements())


def main(arguments: list[str]) -> int:
    """Run; 1 if a record is missing or doubled."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.sink",
        description="Run the Spark sink on a standalone cluster, kill executors, drivers and "
        "brokers at random, and check that every record is written once.",
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the kills")
    parser.add_argument("--kill-every", type=float, default=10, metavar="S", help="seconds")
    parser.add_argument("--folder", help="keep all data and logs here")
    options = parser.parse_args(arguments)
    print(f"sink soak of {options.minutes:g} minutes, seed {options.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="kstore-sink-soak-") as made:
        report = sink_soak(
            Path(options.folder or made),
            options.minutes * 60,
            options.seed,
            lambda line: print(line, file=sys.stderr, flush=True),
            kill_every_s=options.kill_every,
        )
    killed = ", ".join(f"{count} {kind}s" for kind, count in sorted(report.killed.items()))
    print(f"killed: {killed}; {report.applications} applications, {report.micro_batches} batches")
    print(f"{report.records} records, {report.acknowledged} of them acknowledged")
    for problem in report.problems[:20]:
        print(f"FAILED  {problem}")
    for name, rows in (("missing", report.missing), ("doubled", report.doubled)):
        if rows:
            print(f"FAILED  {len(rows)} {name}: {rows[:5]}")
    if report.is_good:
        print("every record is in the target once")
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
