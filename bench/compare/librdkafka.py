"""librdkafka (through confluent-kafka) in a separate process: produce, consume and transactions at
full speed with its own defaults. `run` starts the process. As a program, the module does one task,
given as JSON, and prints its figures as JSON.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.brokers import Broker

__all__ = ["run"]

TIMEOUT_S = 300
NO_SECURITY: Mapping[str, str] = {}
# By default, a consumer with 100,000 records of a partition in its queue requests no more of that
# partition for a second. It has used up records of 100 B long before, and waits: of 3 to 4 s, only
# 0.8 s were work of the client, and 0.1 s the broker's. The rate would then show only that pause.
FETCH_PAUSE_MS = 5
ROOT = Path(__file__).parents[2]


def run(broker: Broker, task: str, **options: Any) -> dict[str, float]:
    """Do a task in a new process. Raises RuntimeError with its error."""
    requested = json.dumps({"task": task, "bootstrap": broker.bootstrap, **options})
    with subprocess.Popen(
        [sys.executable, "-m", "bench.compare.librdkafka", requested],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()  # also on Ctrl-C and after a timeout
    if process.returncode:
        last = errors.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise RuntimeError(f"librdkafka, {task}: {last[0]}")
    found: dict[str, float] = json.loads(output)
    return found


def _produce(
    bootstrap: str,
    topic: str,
    records: int,
    record_bytes: int,
    acks: str,
    security: Mapping[str, str] = NO_SECURITY,
) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 << 10,
            "log_level": 0,
            **security,
        }
    )
    value = bytes(range(256)) * (record_bytes // 256 + 1)
    value = value[:record_bytes]
    producer.list_topics(topic, timeout=30)
    begin = time.monotonic()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.005)
    left = producer.flush(TIMEOUT_S)
    elapsed = time.monotonic() - begin
    if left:
        raise RuntimeError(f"{left} records were not delivered")
    return {"MB/s": records * record_bytes / elapsed / 1e6, "records/s": records / elapsed}


def _consume(
    bootstrap: str,
    topic: str,
    records: int,
    partitions: int,
    security: Mapping[str, str] = NO_SECURITY,
) -> dict[str, float]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": FETCH_PAUSE_MS,
            "log_level": 0,
            **security,
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    count = size = 0
    begin = 0.0
    deadline = time.monotonic() + TIMEOUT_S
    while count < records and time.monotonic() < deadline:
        messages = consumer.consume(500, timeout=1.0)
        if messages and not begin:
            begin = time.monotonic()
            first, first_size = len(messages), sum(len(m.value() or b"") for m in messages)
        count += len(messages)
        size += sum(len(m.value() or b"") for m in messages)
        for message in messages:
            if message.error():
                raise RuntimeError(str(message.error()))
    elapsed = time.monotonic() - begin
    consumer.close()
    if count != records:
        raise RuntimeError(f"read {count} of {records} records")
    return {
        "MB/s": (size - first_size) / elapsed / 1e6,
        "records/s": (count - first) / elapsed,
    }


def _transactions(
    bootstrap: str, topic: str, producers: int, seconds: float, name: str
) -> dict[str, float]:
    """Each producer runs transactions of one record, one after the other, in a thread."""
    from confluent_kafka import Producer

    counts = [0] * producers
    failures: list[BaseException] = []
    ready = threading.Barrier(producers + 1)

    def work(index: int) -> None:
        try:
            settings = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0}
            producer = Producer(settings | {"transactional.id": f"{name}-{index}"})
            producer.init_transactions(60)
            ready.wait(60)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                producer.begin_transaction()
                producer.produce(topic, b"x" * 100, partition=index % 4)
                producer.commit_transaction(60)
                counts[index] += 1
        except BaseException as error:  # noqa: BLE001 (raised again in the main thread)
            failures.append(error)
            ready.abort()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(producers)]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        ready.wait(60)
    begin = time.monotonic()
    for thread in threads:
        thread.join()
    elapsed = time.monotonic() - begin
    if failures:
        raise failures[0]
    return {"transactions": sum(counts), "transactions/s": sum(counts) / elapsed}


_TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "produce": _produce,
    "consume": _consume,
    "transactions": _transactions,
}


if __name__ == "__main__":
    requested = json.loads(sys.argv[1])
    print(json.dumps(_TASKS[requested.pop("task")](**requested)))
