"""The cost of TLS, compared with Kafka's: producing and consuming with librdkafka and Java's perf
tools, small requests, and new connections. It starts its own pair. Each broker has a TLS listener
in addition to the plain one, and both have the same key and certificate.
"""

from __future__ import annotations

import copy
import itertools
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bench import brokers, frames
from bench.brokers import KAFKA, Broker, create_topic, delete_topic
from bench.compare import librdkafka, perf_tools
from bench.compare.pair import LESS, MORE, Pair, compared, end_offset
from bench.load import Load
from bench.measure import Figures, Settings, cpu_seconds, percentile, progress, take_turns
from bench.report import Row
from tests.conformance.broker_process import free_port
from tests.conformance.wire import exchange

__all__ = ["Certificates", "rows", "with_tls"]

PARTITIONS = 4
RECORD_BYTES = 1000
CONNECTIONS = 16
TOPIC = "tls-small"


class Certificates:
    """A key that both brokers have, and their clients trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA(key_type=trustme.KeyType.RSA)
        leaf = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        # Kafka reads keys only in this format.
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.key, self.trust = folder / "broker.pem", folder / "ca.pem"
        self.key.write_bytes(text + b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        authority.cert_pem.write_to_path(str(self.trust))
        self.context = ssl.create_default_context(cafile=str(self.trust))

    def of_broker(self) -> dict[str, str]:
        """The settings of a broker."""
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.key)}

    def of_java(self) -> dict[str, str]:
        """The settings of a Java client."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }

    def of_librdkafka(self) -> dict[str, str]:
        """The settings of librdkafka."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.trust)}


def with_tls(broker: Broker, certificates: Certificates) -> Broker:
    """Add a second listener to the broker, which does not run yet. Returns the same broker with the
    address of that listener.
    """
    door = copy.copy(broker)
    door.port = free_port()
    where = f"PLAINTEXT://{broker.bootstrap},SSL://{door.bootstrap}"
    broker.overrides |= certificates.of_broker() | {
        "listeners": where,
        "advertised.listeners": where,
    }
    if isinstance(broker, brokers.KafkaBroker):
        controller = f"CONTROLLER://{broker.host}:{broker.controller_port}"
        broker.overrides["listeners"] += f",{controller}"
        protocols = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
        broker.overrides["listener.security.protocol.map"] = protocols
    return door


class _Side:
    """A broker, and the same broker with the address of its TLS listener."""

    def __init__(self, broker: Broker, certificates: Certificates) -> None:
        self.broker = broker
        self.certificates = certificates
        self.door = with_tls(broker, certificates)
        self._numbers = itertools.count()

    def stream(self, client: str, records: int) -> Figures:
        """The figures of a producer, and those of a consumer with the prefix "read "."""
        topic = f"tls-{client.lower()}-{next(self._numbers)}"
        create_topic(self.broker, topic, PARTITIONS)
        produce, consume = self._clients(client, topic, records)
        found = self._metered(records, produce)
        stored = end_offset(self.broker, topic, PARTITIONS)
        if stored != records:
            raise RuntimeError(f"{stored} of {records} records were stored, by log end offsets")
        read = self._metered(records, consume)
        delete_topic(self.broker, topic)
        return found | {f"read {name}": value for name, value in read.items()}

    def _clients(
        self, client: str, topic: str, records: int
    ) -> tuple[Callable[[], Figures], Callable[[], Figures]]:
        if client == "Java":
            own = self.certificates.of_java()
            return (
                lambda: perf_tools.produce(
                    self.door, topic, records, RECORD_BYTES, own | {"acks": "all"}
                ),
                lambda: perf_tools.consume(self.door, topic, records, own),
            )
        secured: Mapping[str, object] = {
            "topic": topic,
            "records": records,
            "security": self.certificates.of_librdkafka(),
        }
        return (
            lambda: librdkafka.run(
                self.door, "produce", record_bytes=RECORD_BYTES, acks="all", **secured
            ),
            lambda: librdkafka.run(self.door, "consume", partitions=PARTITIONS, **secured),
        )

    def _metered(self, records: int, work: Callable[[], Figures]) -> dict[str, float]:
        before = cpu_seconds(self.broker.pid)
        found = dict(work())
        used = cpu_seconds(self.broker.pid) - before
        return found | {"CPU-s/GB": used / (records * RECORD_BYTES / 1e9)}

    def small(self, seconds: float) -> Figures:
        """Produce of one record of 100 B, one in flight on each connection."""
        batch = frames.record_batch([random.Random(1).randbytes(100)])
        requests = [frames.produce(TOPIC, i % PARTITIONS, batch) for i in range(CONNECTIONS)]

        def check(answer: bytes) -> None:
            if code := frames.produce_error(answer, TOPIC):
                raise RuntimeError(f"Produce was answered with error {code}")

        address = (self.door.host, self.door.port)
        with Load(address, requests, check, tls=self.certificates.context) as load:
            load.run(1)
            before = cpu_seconds(self.broker.pid)
            answers, elapsed = load.run(seconds)
            used = cpu_seconds(self.broker.pid) - before
        return {
            "rate": answers / elapsed,
            "cost": used / answers * 1e6,
            "p99": percentile(load.latencies, 0.99) * 1e3,
        }

    def connections(self, count: int) -> Figures:
        """New connections, one after the other, each with a full handshake and one answer."""
        before, begin = cpu_seconds(self.broker.pid), time.monotonic()
        for _ in range(count):
            plain = socket.create_connection((self.door.host, self.door.port), timeout=30)
            with self.certificates.context.wrap_socket(
                plain, server_hostname=self.door.host
            ) as connection:
                frames.api_versions_answer(exchange(connection, frames.api_versions()))
        elapsed = time.monotonic() - begin
        used = cpu_seconds(self.broker.pid) - before
        return {"rate": count / elapsed, "cost": used / count * 1e3}


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Rate and CPU of streams, small requests and connections, all over TLS."""
    del pair
    folder = settings.scratch / "tls"
    certificates = Certificates(folder)
    made = brokers.make(folder, settings)
    sides = {name: _Side(broker, certificates) for name, broker in made.items()}
    try:
        for side in sides.values():
            side.broker.start()
            create_topic(side.broker, TOPIC, PARTITIONS)
        yield from _streams(sides, settings)
        yield from _small(sides, settings)
    finally:
        for side in sides.values():
            side.broker.stop()


def _streams(sides: Mapping[str, _Side], settings: Settings) -> Iterator[Row]:
    records = settings.pick(250_000_000, 40_000_000) // RECORD_BYTES
    for client in ("librdkafka", "Java"):
        case = f"{client}, 1 KB, TLS"
        if not settings.wants(case):
            continue
        progress(f"  {case}")
        if KAFKA in sides:
            sides[KAFKA].stream(client, records)  # the JVM compiles at run time
        turns = {n: lambda s=s, c=client: s.stream(c, records) for n, s in sides.items()}  # type: ignore[misc]
        found = take_turns(case, turns, settings.pick(3, 1))
        for prefix, what in (("", "producer"), ("read ", "consumer")):
            name = f"{client} {what}, 1 KB, TLS"
            yield compared("tls", name, found, f"{prefix}MB/s", "MB/s", MORE)
            yield compared("tls", name, found, f"{prefix}CPU-s/GB", "broker CPU-s/GB", LESS)


def _small(sides: Mapping[str, _Side], settings: Settings) -> Iterator[Row]:
    case = f"Produce 100 B, {CONNECTIONS} connections, TLS"
    if settings.wants(case):
        progress(f"  {case}")
        small = {n: lambda s=s: s.small(settings.pick(3, 1)) for n, s in sides.items()}  # type: ignore[misc]
        if KAFKA in sides:
            sides[KAFKA].small(settings.pick(4, 2))
        found = take_turns(case, small, settings.pick(3, 1))
        yield compared("tls", case, found, "cost", "us CPU/request", LESS)
        yield compared("tls", case, found, "rate", "requests/s", MORE)
        yield compared("tls", case, found, "p99", "ms p99", LESS)
    case = "new connections, TLS"
    if settings.wants(case):
        progress(f"  {case}")
        count = settings.pick(1000, 200)
        if KAFKA in sides:
            sides[KAFKA].connections(count)
        new = {n: lambda s=s: s.connections(count) for n, s in sides.items()}  # type: ignore[misc]
        found = take_turns(case, new, settings.pick(3, 1))
        yield compared("tls", case, found, "cost", "ms CPU/connection", LESS)
        yield compared("tls", case, found, "rate", "connections/s", MORE)
