"""The Spark sink without Spark: task processes encode and stage rows, and this process commits, as
the driver does. Its peers, in turns: the sink's former design, in which every byte passed through
the driver; tasks that write directly to the topic (at least once); and the same bytes written to
files twice, as exactly once does. CPU is that of tasks, driver and broker together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, cast

from bench.brokers import kstore_broker
from bench.measure import Figures, Settings, Side, cpu_seconds, progress, take_turns, touch_memory
from bench.report import Goal, Row
from bench.sink import former
from bench.sink.answers import from_text
from kstore.clients import AdminClient, Consumer
from kstore.clients.admin import NewTopic
from kstore.pipeline.sink.commit import commit, prepare
from kstore.types import TopicPartition
from tests.conformance.kstore_broker import ROOT, KstoreBroker

__all__ = ["rows"]

PARTITIONS = 4
TURNS = 5
SIZE = 1000
ROWS = 400_000
TASKS = (1, 4)
FORMER, DIRECT, FILES = "former", "direct", "files"
PEERS = {FORMER: "through the driver", DIRECT: "at least once", FILES: "files written twice"}
FIGURES = (
    ("rate", "rows/s", "1/s"),
    ("per_cpu_s", "rows per CPU s", "1/s"),
    ("stage_s", "s until all is staged, per million rows", "s"),
    ("commit_s", "s of the commit, per million rows", "s"),
    ("tasks_s", "CPU s of tasks per million rows", "s"),
    ("driver_s", "CPU s of the driver per million rows", "s"),
    ("broker_s", "CPU s of the broker per million rows", "s"),
    ("copying_s", "of these, during the commit", "s"),
)
GOALS = {1: 1.0, 4: 3.0}
"""The goals in ratio to the former design's rows per second, by number of tasks."""


def rows(settings: Settings) -> list[Row]:
    """All rows of the group, on one broker."""
    found: list[Row] = []
    with kstore_broker(settings.scratch / "broker") as broker:
        count = settings.pick(ROWS, ROWS // 10)
        for tasks in TASKS:
            label = f"{tasks} task{'s' * (tasks > 1)}"
            if settings.wants(label):
                progress(f"  {label}")
                found += _compared(label, broker, tasks, count, settings)
    return found


def _compared(
    label: str, broker: KstoreBroker, tasks: int, count: int, settings: Settings
) -> list[Row]:
    with _Tasks(broker, tasks, count, settings.scratch) as sink:
        cases: dict[str, Callable[[], Figures]] = {
            way: lambda way=way: sink.run(way)  # type: ignore[misc]
            for way in ("", FORMER, DIRECT)
        }
        cases[FILES] = sink.write_files
        take_turns(f"{label}, warming up", cases, 1)
        sides = take_turns(label, cases, settings.pick(TURNS, 2))
    found = _rows(label, sides[""], FORMER, sides[FORMER], Goal(GOALS[tasks]), FIGURES)
    for way in (DIRECT, FILES):
        found += _rows(label, sides[""], way, sides[way], None, FIGURES[:2])
    return found


def _rows(
    label: str,
    ours: Side,
    way: str,
    theirs: Side,
    goal: Goal | None,
    figures: Sequence[tuple[str, str, str]],
) -> list[Row]:
    return [
        Row(
            "sink", f"{label}: {words}", ours.median(figure), unit, PEERS[way],
            theirs.median(figure), goal if figure == "rate" else None,
            spread=ours.spread(figure), peer_spread=theirs.spread(figure), state=ours.state,
            peer_state=theirs.state,
        )
        for figure, words, unit in figures
    ]  # fmt: skip


class _Tasks:
    """A context: processes that wait for jobs, each with its part of the rows."""

    def __init__(self, broker: KstoreBroker, tasks: int, count: int, scratch: Path) -> None:
        self._broker = broker
        self._count = count
        self._scratch = scratch
        self._each = count // tasks
        self._tasks = tasks

    def __enter__(self) -> _Tasks:
        command = [
            sys.executable, "-m", "bench.sink.worker", self._broker.bootstrap, str(self._each),
            str(SIZE),
        ]  # fmt: skip
        self._processes = [
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(self._tasks)
        ]
        for process in self._processes:
            _answer(process)
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            cast("IO[str]", process.stdin).close()
            process.wait(60)

    def run(self, way: str) -> Figures:
        """The figures of one write to a new topic, from the first job to the end of the commit."""
        touch_memory(2 * self._count * SIZE, self._scratch)
        name = uuid.uuid4().hex[:8]
        topic, sink = f"rows-{name}", f"bench-{name}"
        servers = self._broker.bootstrap
        settings = former.settings_for(servers, topic)
        with AdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS)])
        if way != DIRECT:
            prepare(settings, sink)
        used, broker, begin = time.process_time(), cpu_seconds(self._broker.pid), time.monotonic()
        job = json.dumps({"way": way, "topic": topic, "sink": sink})
        for process in self._processes:
            stream = cast("IO[str]", process.stdin)
            stream.write(job + "\n")
            stream.flush()
        answers = [json.loads(_answer(process)) for process in self._processes]
        staged, broker_staged = time.monotonic(), cpu_seconds(self._broker.pid)
        made: list[Any] = [from_text(each["made"]) for each in answers]
        if way == FORMER:
            former.commit(settings, sink, made)
        elif way != DIRECT:
            commit(settings, made, is_last=True)
        end = time.monotonic()
        parts = {
            "tasks_s": sum(each["cpu_s"] for each in answers),
            "driver_s": time.process_time() - used,
            "broker_s": cpu_seconds(self._broker.pid) - broker,
        }
        copying = cpu_seconds(self._broker.pid) - broker_staged
        times = {"stage_s": staged - begin, "commit_s": end - staged, "copying_s": copying}
        self._check(topic)
        return {
            "rate": self._count / (end - begin),
            "per_cpu_s": self._count / sum(parts.values()),
        } | {figure: value / self._count * 1e6 for figure, value in (times | parts).items()}

    def write_files(self) -> Figures:
        """The limit of the machine: this process writes as many bytes twice, without
        reading them.
        """
        touch_memory(2 * self._count * SIZE, self._scratch)
        data = os.urandom(1 << 20)
        path = self._scratch / "raw"
        used, begin = time.process_time(), time.monotonic()
        with path.open("wb", buffering=0) as file:
            for _ in range(0, 2 * self._count * SIZE, len(data)):
                file.write(data)
        took, used = time.monotonic() - begin, time.process_time() - used
        path.unlink()
        return {"rate": self._count / took, "per_cpu_s": self._count / used}

    def _check(self, topic: str) -> None:
        """Check that all rows exist, by log end offsets. Then delete the topic."""
        every = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        with Consumer({"bootstrap.servers": self._broker.bootstrap}) as consumer:
            found = sum(consumer.end_offsets(every).values())
        with AdminClient(bootstrap_servers=self._broker.bootstrap) as admin:
            admin.delete_topics([topic])
        if found != self._count:
            raise RuntimeError(f"{found} rows are in {topic}, and {self._count} were written")


def _answer(process: subprocess.Popen[str]) -> str:
    line = cast("IO[str]", process.stdout).readline()
    if not line:
        raise RuntimeError(f"a task ended with {process.wait()}")
    return line
