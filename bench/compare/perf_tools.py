"""Kafka's own perf tools (producer, consumer, end to end) as processes, with their output as
numbers. The rates are the tools' own. The stored records are counted elsewhere, by log end offsets.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.conformance.kafka_jars import classpath, java_program

__all__ = ["consume", "end_to_end", "parse_consumer", "parse_end_to_end", "parse_producer"]
__all__ += ["produce"]

# As kafka-run-class.sh starts a tool.
FLAGS = ["-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
PACKAGE = "org.apache.kafka.tools."
TIMEOUT_S = 300

_SENT = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec \((?P<mb>[\d.]+) MB/sec\), "
    r"(?P<mean>[\d.]+) ms avg latency, (?P<max>[\d.]+) ms max latency, (?P<p50>\d+) ms 50th, "
    r"\d+ ms 95th, (?P<p99>\d+) ms 99th"
)
_AVERAGE = re.compile(r"Avg latency: (?P<mean>[\d.]+) ms")


class Served(Protocol):
    """A broker, or a cluster of them."""

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers."""


def _run(tool: str, args: Sequence[str]) -> str:
    command = [java_program(), *FLAGS, "-cp", classpath(), PACKAGE + tool, *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()  # also on Ctrl-C and after a timeout
    if process.returncode:
        raise RuntimeError(f"{tool} exited {process.returncode}: {(errors or output)[-600:]}")
    return output


def produce(
    broker: Served, topic: str, records: int, record_bytes: int, properties: Mapping[str, str]
) -> dict[str, float]:
    """Run ProducerPerformance as fast as possible; see `parse_producer`."""
    args = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--throughput", "-1"]
    args += ["--num-records", str(records), "--record-size", str(record_bytes)]
    args += ["--command-property", *(f"{name}={value}" for name, value in properties.items())]
    return parse_producer(_run("ProducerPerformance", args), records)


def consume(
    broker: Served, topic: str, records: int, properties: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Run ConsumerPerformance until it has read this many records; see `parse_consumer`."""
    args = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    args += ["--num-records", str(records), "--timeout", "30000"]
    for name, value in (properties or {}).items():
        args += ["--command-property", f"{name}={value}"]
    return parse_consumer(_run("ConsumerPerformance", args), records)


def end_to_end(broker: Served, topic: str, records: int, record_bytes: int) -> dict[str, float]:
    """Run EndToEndLatency with acks=1; see `parse_end_to_end`."""
    args = [broker.bootstrap, topic, str(records), "1", str(record_bytes)]
    return parse_end_to_end(_run("EndToEndLatency", args))


def parse_producer(output: str, records: int) -> dict[str, float]:
    """MB/s (of 10^6 bytes), records/s and mean latency (ms) in ProducerPerformance's last line.
    Raises RuntimeError if it did not send all records.
    """
    found = list(_SENT.finditer(output))
    if not found:
        raise RuntimeError(f"kafka-producer-perf-test gave no result: {output[-300:]!r}")
    last = found[-1]
    if int(last["records"]) != records:
        raise RuntimeError(f"kafka-producer-perf-test sent {last['records']} of {records} records")
    return {
        "MB/s": float(last["mb"]) * (1 << 20) / 1e6,
        "records/s": float(last["rate"]),
        "latency ms": float(last["mean"]),
    }


def parse_consumer(output: str, records: int) -> dict[str, float]:
    """MB/s (of 10^6 bytes) and records/s while fetching, in ConsumerPerformance's table. Raises
    RuntimeError if it did not read all records.
    """
    lines = [line.split(", ") for line in output.splitlines() if ", " in line]
    heads = [i for i, cells in enumerate(lines) if cells[0] == "start.time"]
    if not heads or heads[-1] + 1 >= len(lines):
        raise RuntimeError(f"kafka-consumer-perf-test gave no result: {output[-300:]!r}")
    found = dict(zip(lines[heads[-1]], lines[heads[-1] + 1], strict=False))
    read = int(found["data.consumed.in.nMsg"])
    if read < records:
        raise RuntimeError(f"kafka-consumer-perf-test read {read} of {records} records")
    return {
        "MB/s": float(found["fetch.MB.sec"]) * (1 << 20) / 1e6,
        "records/s": float(found["fetch.nMsg.sec"]),
    }


def parse_end_to_end(output: str) -> dict[str, float]:
    """The mean latency in ms of EndToEndLatency, whose percentiles are whole milliseconds."""
    found = _AVERAGE.search(output)
    if found is None:
        raise RuntimeError(f"EndToEndLatency gave no result: {output[-300:]!r}")
    return {"mean ms": float(found["mean"])}
