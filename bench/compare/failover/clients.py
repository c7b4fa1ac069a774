"""Clients that send a record every few milliseconds and note the time of each acknowledgement: the
producers of librdkafka, Java and kstore, with acks=all and no other setting.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tests.conformance.kafka_broker import tool_command
from tests.conformance.kafka_jars import KafkaUnavailableError, fetch_jars, java_program

if TYPE_CHECKING:
    from kstore._fast.clients.producer_batch import Delivery

__all__ = ["BROKERS", "OTHERS", "TOPIC", "Client", "Make", "usable_clients"]

BROKERS = 3
TOPIC = "kept"
OTHERS = "others"
"""A topic with a partition on each broker."""
PAUSE_S = 0.005
"""The time between two records of a client."""
VERIFIABLE = "org.apache.kafka.tools.VerifiableProducer"


class Client(Protocol):
    """Sends a record every few milliseconds, and notes the time of each acknowledgement."""

    acks: list[float]

    def close(self) -> None:
        """Stop sending."""


Make = Callable[[str], Client]


class _Sender:
    """A client in this process. Subclasses implement `_send`."""

    def __init__(self) -> None:
        self.acks: list[float] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """See Client."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(PAUSE_S):
            self._send()

    def _send(self) -> None:
        raise NotImplementedError

    def _acknowledged(self) -> None:
        self.acks.append(time.monotonic())


class LibrdkafkaSender(_Sender):
    """confluent-kafka's producer with acks=all and no other setting. It writes to the other brokers
    first: a client that is connected only to the leader that dies asks no other broker before its
    next timer of a second.
    """

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        for partition in range(BROKERS):
            self._producer.produce(OTHERS, b"x", partition=partition)
        self._producer.flush(10)
        super().__init__()

    def _send(self) -> None:
        def on_delivery(error: object, message: object) -> None:
            if error is None:
                self._acknowledged()

        self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=on_delivery)
        self._producer.poll(0)

    def _run(self) -> None:
        polls = threading.Thread(target=self._poll, daemon=True)
        polls.start()
        super()._run()
        polls.join()

    def _poll(self) -> None:
        while not self._ends.is_set():
            self._producer.poll(0.05)


class KstoreSender(_Sender):
    """The producer of kstore.clients, without settings."""

    def __init__(self, bootstrap: str) -> None:
        from kstore.clients import Producer

        self._producer = Producer(bootstrap)
        super().__init__()

    def _send(self) -> None:
        self._producer.send(TOPIC, b"x" * 100, partition=0, on_delivery=self._note)

    def _note(self, delivery: Delivery) -> None:
        if delivery.error is None:
            self._acknowledged()

    def close(self) -> None:
        """See Client."""
        super().close()
        self._producer.close(5)


class JavaSender:
    """Java's producer in Kafka's VerifiableProducer, with acks=all."""

    def __init__(self, bootstrap: str) -> None:
        self.acks: list[float] = []
        args = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--acks", "-1"]
        args += ["--throughput", str(int(1 / PAUSE_S))]
        self._process = subprocess.Popen(
            tool_command(VERIFIABLE, args), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """See Client."""
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{") and json.loads(line)["name"] == "producer_send_success":
                self.acks.append(time.monotonic())


CLIENTS: dict[str, Make] = {
    "librdkafka": LibrdkafkaSender,
    "Java": JavaSender,
    "kstore": KstoreSender,
}
"""Each function creates a client. Every kill gets new clients: a client that has seen a broker down
waits up to ten seconds before it connects to that broker again, even if it leads by then.
"""


def usable_clients() -> tuple[dict[str, Make], str]:
    """By name, how each client is created, and why one is missing; "" if none is."""
    try:
        java_program()
        fetch_jars()
    except KafkaUnavailableError as error:
        return {name: make for name, make in CLIENTS.items() if name != "Java"}, str(error)
    return CLIENTS, ""
