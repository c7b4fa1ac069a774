"""Large batches in ready-made requests: the broker's CPU time per request and per GB. A bare server
takes turns with kstore and Kafka. It only receives the same frames, writes them to a file and
answers. So it shows what these bytes cost the kernel on this machine at this time.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import frames
from bench.brokers import KSTORE, create_topic, delete_topic
from bench.compare.pair import MORE, Pair, compared, end_offset
from bench.load import Load
from bench.measure import (
    Figures,
    Settings,
    Side,
    cpu_seconds,
    progress,
    take_turns,
    touch_memory,
)
from bench.report import Goal, Row

__all__ = ["rows"]

TOPIC = "bulk-batches"
BARE = "a bare server"
RECORD_BYTES = 1000
ROOT = Path(__file__).parents[3]


class _Case(NamedTuple):
    """A number of records per batch, of connections, and of requests in flight on each."""

    name: str
    records: int
    connections: int
    depth: int
    figure: str
    unit: str
    goal: float


CASES = [
    _Case("Produce 16 KB, 6 connections, 5 in flight", 16, 6, 5, "us", "CPU us/request", 12.0),
    _Case("Produce 900 KB, 2 connections", 900, 2, 1, "CPU-s/GB", "CPU-s/GB", 0.6),
]


class _BareServer:
    """The bare server in a separate process."""

    def __init__(self, path: Path, answer_bytes: int) -> None:
        self._path = path
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.compare.bulk.bare_server", str(path), str(answer_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.address = ("127.0.0.1", int(self.process.stdout.readline()))

    def close(self) -> None:
        """End it and remove its file."""
        self.process.kill()
        self.process.communicate()
        self._path.unlink(missing_ok=True)


class _Turn:
    """One side under its load."""

    def __init__(
        self, load: Load, pid: int, batch_bytes: int, stored: Callable[[], int], folder: Path
    ) -> None:
        self._load, self._pid, self._batch_bytes = load, pid, batch_bytes
        self._stored, self._folder = stored, folder
        load.run(1, at_most=500)

    def __call__(self, requests: int, records: int) -> Figures:
        touch_memory(int(requests * self._batch_bytes * 1.1), self._folder)
        stored, before = self._stored(), cpu_seconds(self._pid)
        answers, elapsed = self._load.run(600, at_most=requests)
        used = cpu_seconds(self._pid) - before
        if stored >= 0 and self._stored() - stored != answers * records:
            raise RuntimeError(f"{answers} answers to {records} records each, by log end offsets")
        size_bytes = answers * self._batch_bytes
        return {
            "us": used / answers * 1e6,
            "CPU-s/GB": used / (size_bytes / 1e9),
            "MB/s": size_bytes / 1e6 / elapsed,
        }


def _check(answer: bytes) -> None:
    if code := frames.produce_error(answer, TOPIC):
        raise RuntimeError(f"Produce was answered with error {code}")


def _measure(pair: Pair, settings: Settings, case: _Case) -> dict[str, Side]:
    values = [random.Random(i).randbytes(RECORD_BYTES) for i in range(case.records)]
    batch = frames.record_batch(values)
    requests = [frames.produce(TOPIC, 0, batch)] * case.connections
    size = settings.pick(500, 100) * 1_000_000
    sides: dict[str, Callable[[], Figures]] = {}
    pair.start()
    with ExitStack() as stack:

        def side(
            name: str,
            pid: int,
            address: tuple[str, int],
            check: Callable[[bytes], None],
            stored: Callable[[], int],
        ) -> int:
            load = stack.enter_context(Load(address, requests, check, depth=case.depth))
            turn = _Turn(load, pid, len(batch), stored, settings.scratch)
            sides[name] = lambda: turn(size // len(batch), case.records)
            return load.answer_bytes

        for name, broker in pair.running.items():
            address = (broker.host, broker.port)
            answer_bytes = side(
                name, broker.pid, address, _check, lambda each=broker: end_offset(each, TOPIC)
            )
        bare = _BareServer(settings.scratch / "bare", answer_bytes)
        stack.callback(bare.close)
        side(BARE, bare.process.pid, bare.address, lambda _: None, lambda: -1)
        return take_turns(case.name, sides, settings.pick(7, 2))


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """CPU and rate of each case."""
    for case in CASES:
        if not settings.wants(case.name):
            continue
        progress(f"  {case.name}")
        pair.start()
        for broker in pair.running.values():
            create_topic(broker, TOPIC, 1)
        sides = _measure(pair, settings, case)
        ours, bare = sides[KSTORE].median(case.figure), sides[BARE].median(case.figure)
        note = "" if not ours or not bare else (
            f"a bare server, which only receives, writes and answers: {bare:.3g}; "
            f"kstore is {ours / bare:.2f} times that"
        )  # fmt: skip
        limit = Goal(case.goal, at_least=False, of="value")
        yield compared("bulk", case.name, sides, case.figure, case.unit, limit, note)
        yield compared("bulk", case.name, sides, "MB/s", "MB/s", MORE)
        for broker in pair.running.values():
            delete_topic(broker, TOPIC)
