"""The latency of small records from end to end, measured in a separate process.

One connection sends a record of 100 B 250 times a second, whether or not earlier ones have arrived.
Another connection fetches. A latency is the time from before a record is sent until a waiting fetch
has it, so a broker that stops for half a second delays 125 records, not one. `Probe` starts the
process. As a program, the module takes its task as JSON, reads commands from stdin, and prints its
results as JSON. It requests real-time priority, because a probe that waits for a core would measure
its own wait.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from bench import frames
from bench.brokers import Broker
from bench.compare.pair import end_offset
from bench.frames import Answer
from bench.measure import percentile
from tests.conformance.wire import read_frame

__all__ = ["Probe", "fetched_offsets"]

INTERVAL_S = 0.004
"""Long enough for either broker to answer one record before the next is sent, even on a busy
machine. Otherwise this would be the latency of a queue.
"""
RECORD_BYTES = 100
SEND_BUFFER_BYTES = 4 << 20
"""Large enough for what is sent while a broker is stopped for some seconds."""
END_TIMEOUT_S = 120.0
ROOT = Path(__file__).parents[3]


class Probe:
    """The process, from the first record that arrived to `finish`.

    Use it as a context manager. Only records that are sent between `begin` and `finish` count.
    """

    def __init__(self, broker: Broker, topic: str) -> None:
        requested = json.dumps(
            {
                "host": broker.host,
                "port": broker.port,
                "topic": topic,
                "first": end_offset(broker, topic),
            }
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.compare.isolation.probe", requested],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def begin(self) -> None:
        """Wait until records arrive. Records that are sent from now on count."""
        if self._output.readline().strip() != "ready":
            self._fail()
        self._say("begin\n")

    def finish(self) -> dict[str, float]:
        """End it when everything that was sent has arrived. Returns milliseconds as `p50`, `p99`,
        `p99.9` and `max`, the seconds until the record with the highest latency (`max at`), the
        number of `records`, and whether it had its `priority`.
        """
        self._say("end\n")
        line = self._output.readline()
        if not line:
            self._fail()
        found: dict[str, float] = json.loads(line)
        return found

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), word.encode())  # nothing is left in a buffer
        except BrokenPipeError:
            self._fail()

    def _fail(self) -> None:
        self._process.kill()
        assert self._process.stderr is not None
        output = self._process.stderr.read().strip().splitlines()[-1:]
        raise RuntimeError(f"the probe of small records failed: {''.join(output) or 'no output'}")

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._process as process:  # closes its pipes, and waits for it
            process.kill()


def fetched_offsets(answer: bytes) -> tuple[int, bytes]:
    """The base offset of the first batch (-1 for no batch), and all batches of one partition in the
    answer to `frames.fetch`. Raises RuntimeError for an error code.
    """
    found = Answer(answer, flexible_header=True)
    found.skip(4)
    code = found.take("h")
    found.skip(4)
    if found.unsigned() > 1 and not code:
        found.compact()
        found.unsigned()
        found.skip(4)
        code = found.take("h")
        found.skip(24)  # high watermark, last stable offset, log start offset
        for _ in range(found.unsigned() - 1):
            found.skip(17)
        found.skip(4)
    if code:
        raise RuntimeError(f"Fetch was answered with error {code}")
    batches = found.bytes(found.unsigned() - 1)
    return (int.from_bytes(batches[:8], "big") if batches else -1), batches


class _Watch:
    """The program's loop."""

    def __init__(self, host: str, port: int, topic: str, first: int) -> None:
        self._topic, self._first = topic, first
        self._batch = frames.record_batch([bytes(range(RECORD_BYTES))])
        self._request = frames.produce(topic, 0, self._batch, acks=1)
        self._sender = socket.create_connection((host, port), timeout=END_TIMEOUT_S)
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._reader = socket.create_connection((host, port), timeout=END_TIMEOUT_S)
        for connection in (self._sender, self._reader):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent: list[float] = []
        self.taken: list[float] = []

    def _send(self) -> None:
        self.sent.append(time.perf_counter())
        self._sender.sendall(self._request)

    def _ask(self) -> None:
        offset = self._first + len(self.taken)
        self._reader.sendall(frames.fetch(self._topic, 0, offset, max_bytes=1 << 20))

    def _take_fetched(self) -> None:
        answer = read_frame(self._reader)
        now = time.perf_counter()
        base, batches = fetched_offsets(answer)
        expected = self._first + len(self.taken)
        if base not in (-1, expected):
            raise RuntimeError(f"the fetch at offset {expected} was answered from {base} on")
        for _ in range(len(batches) // len(self._batch)):
            self.taken.append(now - self.sent[len(self.taken)])
        self._ask()

    def _turn(self, wait_s: float) -> list[object]:
        """Read what arrives within this time. Returns the other ready sources, such as stdin."""
        ready, _, _ = select.select([self._sender, self._reader, sys.stdin], [], [], wait_s)
        if self._reader in ready:
            self._take_fetched()
        if self._sender in ready and (
            code := frames.produce_error(read_frame(self._sender), self._topic)
        ):
            raise RuntimeError(f"Produce was answered with error {code}")
        return [each for each in ready if each is sys.stdin]

    def run(self) -> list[float]:
        """The latencies of the records that were sent between the two commands, in order."""
        self._ask()
        self._send()
        while not self.taken:
            self._turn(END_TIMEOUT_S)
        print("ready", flush=True)
        marks: list[int] = []
        due = time.perf_counter()
        while len(marks) < 2:
            now = time.perf_counter()
            if now >= due:
                self._send()
                due = max(due + INTERVAL_S, now)
            if self._turn(max(0.0, due - time.perf_counter())):
                if not sys.stdin.readline():
                    raise RuntimeError("the bench has ended")
                marks.append(len(self.sent))
        while len(self.taken) < len(self.sent):
            if time.perf_counter() - self.sent[-1] > END_TIMEOUT_S:
                raise RuntimeError(f"{len(self.sent) - len(self.taken)} records did not come back")
            self._turn(1.0)
        return self.taken[marks[0] : marks[1]]


def _has_priority() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False  # reported in the results
    return True


def _main(task: str) -> None:
    gc.disable()
    priority = _has_priority()
    taken = _Watch(**json.loads(task)).run()
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    found = {name: percentile(taken, share) * 1e3 for name, share in shares.items()}
    found |= {"records": len(taken), "priority": int(priority)}
    found["max at"] = taken.index(max(taken)) * INTERVAL_S
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
