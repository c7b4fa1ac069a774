"""The clients that run at the same time as the small records, each in a separate process. One reads
a log from its start, one only opens new TLS connections, and a librdkafka producer runs until its
time is over. `run` starts them. As a program, the module does one task, given as JSON.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import frames
from bench.compare.isolation.probe import fetched_offsets
from tests.conformance.wire import exchange

__all__ = ["run"]

TIMEOUT_S = 600
PARTITION_BYTES = 1 << 20
"""The fetch size of consumers: max.partition.fetch.bytes."""
HANDSHAKE_THREADS = 8
ROOT = Path(__file__).parents[3]


def run(task: str, count: int = 1, **options: Any) -> list[dict[str, float]]:
    """Do a task in several new processes at once. Returns the result of each. Raises RuntimeError
    with the error of one.
    """
    processes: list[subprocess.Popen[str]] = []
    found = []
    try:
        for _ in range(count):
            requested = json.dumps({"task": task, **options})
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "bench.compare.isolation.clients", requested],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                )
            )
        for process in processes:
            output, errors = process.communicate(timeout=TIMEOUT_S)
            if process.returncode:
                last = errors.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
                raise RuntimeError(f"{task}: {last[0]}")
            found.append(json.loads(output))
    finally:
        for process in processes:
            process.kill()  # also on Ctrl-C and after a timeout
            process.communicate()
    return found


def _produce(bootstrap: str, topic: str, record_bytes: int, seconds: float) -> dict[str, float]:
    """Produce as fast as possible with librdkafka's defaults. Returns the number of records, and
    the time until the last one was acknowledged.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 64 << 10,
            "log_level": 0,
        }
    )
    value = (bytes(range(256)) * (record_bytes // 256 + 1))[:record_bytes]
    producer.list_topics(topic, timeout=30)
    begin = time.monotonic()
    sent = 0
    while time.monotonic() - begin < seconds:
        try:
            for _ in range(500):
                producer.produce(topic, value)
                sent += 1
        except BufferError:
            producer.poll(0.005)
    left = producer.flush(TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} of {sent} records were not delivered")
    return {"records": sent, "seconds": time.monotonic() - begin}


def _read(host: str, port: int, topic: str, offsets: int) -> dict[str, float]:
    """Read one partition from its start to an offset, one fetch after the other."""
    offset = size = 0
    begin = time.monotonic()
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
        while offset < offsets:
            request = frames.fetch(topic, 0, offset, max_bytes=PARTITION_BYTES)
            _, batches = fetched_offsets(exchange(connection, request))
            size += len(batches)
            offset = _behind(batches, offset)
    return {"MB": size / 1e6, "seconds": time.monotonic() - begin}


def _behind(batches: bytes, offset: int) -> int:
    """The offset after the last whole batch."""
    place = 0
    while place + 27 <= len(batches):
        end = place + 12 + int.from_bytes(batches[place + 8 : place + 12], "big")
        if end > len(batches):
            break
        base = int.from_bytes(batches[place : place + 8], "big")
        offset = base + int.from_bytes(batches[place + 23 : place + 27], "big") + 1
        place = end
    return offset


def _handshakes(
    host: str, port: int, trust: str, per_second: int, seconds: float
) -> dict[str, float]:
    """Open connections at a fixed rate, each with a full handshake and one answer."""
    context = ssl.create_default_context(cafile=trust)
    begin = time.monotonic()
    counts = [0] * HANDSHAKE_THREADS
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for turn in range(index, int(per_second * seconds), HANDSHAKE_THREADS):
                time.sleep(max(0.0, begin + turn / per_second - time.monotonic()))
                plain = socket.create_connection((host, port), timeout=30)
                with context.wrap_socket(plain, server_hostname=host) as connection:
                    frames.api_versions_answer(exchange(connection, frames.api_versions()))
                counts[index] += 1
        except BaseException as error:  # noqa: BLE001 (raised again in the main thread)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(HANDSHAKE_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return {"per second": sum(counts) / (time.monotonic() - begin)}


_TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "produce": _produce,
    "read": _read,
    "handshakes": _handshakes,
}


def _main(arguments: Sequence[str]) -> None:
    requested = json.loads(arguments[1])
    print(json.dumps(_TASKS[requested.pop("task")](**requested)))


if __name__ == "__main__":
    _main(sys.argv)
