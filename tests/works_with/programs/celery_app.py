"""Celery over kombu's transport for Kafka: a worker adds numbers that this program sends.

Arguments: bootstrap servers ("host:port"), queue, folder for results. Prints the sums, as JSON.
"""

from __future__ import annotations

import json
import sys

from celery import Celery
from celery.contrib.testing.worker import start_worker

bootstrap, queue, folder = sys.argv[1:]
app = Celery("sums", broker=f"confluentkafka://{bootstrap}", backend=f"file://{folder}")
app.conf.update(task_default_queue=queue, worker_enable_remote_control=False,
                worker_send_task_events=False, broker_connection_retry_on_startup=True)  # fmt: skip


@app.task
def add(left: int, right: int) -> int:
    return left + right


if __name__ == "__main__":
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
        results = [add.delay(number, number) for number in range(10)]
        print(json.dumps([result.get(timeout=60) for result in results]))
