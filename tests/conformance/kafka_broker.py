"""Runs a real single-node Apache Kafka broker (KRaft, broker and controller in one JVM) and Kafka's
Java tools.

`KafkaBroker(folder)` formats its storage, picks free ports, starts, waits for the first answer, and
is stopped by leaving the `with`. Measurements give it the JVM flags of Kafka's own start scripts.
`run_tool` runs any main class of the distribution, in a JVM that the tests share.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.broker_process import BrokerProcess, free_port
from tests.conformance.java_tools import run_in_server
from tests.conformance.kafka_jars import classpath, java_program

# What kafka-server-start.sh and kafka-run-class.sh pass.
SERVER_FLAGS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]

LIGHT = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# Starting and stopping takes half the CPU time (3.7 instead of 7.1 s) that the scripts' flags take.
TEST_FLAGS = ["-Xmx1G", "-Xms128M", *LIGHT, "-Djava.awt.headless=true"]

# The scripts' names and the classes that they run.
TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
}


# It works in a hook of the JVM's end (most have theirs through Kafka's Exit).
OWN_JVM = {"org.apache.kafka.tools.VerifiableProducer"}


def tool_command(tool: str, args: Sequence[str]) -> list[str]:
    """The command line of a tool of `TOOLS` (or any main class), as kafka-run-class.sh would run
    it.
    """
    flags = ["-Xmx256M", *LIGHT]
    return [java_program(), *flags, "-cp", classpath(), TOOLS.get(tool, tool), *args]


def run_tool(
    tool: str,
    args: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    timeout_s: float = 90,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end; stdout and stderr as text. A non-zero exit raises with both unless
    `check` is False.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin
    text = _ended(tool, args, data, timeout_s)
    if check and text.returncode != 0:
        raise RuntimeError(
            f"{tool} {' '.join(args)} exited {text.returncode}:\n"
            f"{text.stdout[-3000:]}\n{text.stderr[-3000:]}"
        )
    return text


def ask_tool(
    broker: Any, tool: str, *args: str, stdin: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    server = ["--bootstrap-server", broker.bootstrap]
    # This one takes the command first.
    said = [*args, *server] if tool == "kafka-cluster" else [*server, *args]
    return run_tool(tool, said, stdin=stdin, check=check)


def _ended(
    tool: str, args: Sequence[str], data: bytes | None, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """In the JVM that all tests share; benchmarks, and who sets options of the JVM, have a JVM for
    each tool.
    """
    shared = "PYTEST_VERSION" in os.environ and "JAVA_TOOL_OPTIONS" not in os.environ
    if shared and tool not in OWN_JVM:
        status, *printed = run_in_server(TOOLS.get(tool, tool), args, data or b"", timeout_s)
    else:
        done = subprocess.run(
            tool_command(tool, args),
            check=False,
            input=data,
            capture_output=True,
            timeout=timeout_s,
        )
        status, printed = done.returncode, [done.stdout, done.stderr]
    output, errors = (text.decode(errors="replace") for text in printed)
    return subprocess.CompletedProcess([tool, *args], status, output, errors)


class KafkaBroker(BrokerProcess):
    """One Kafka node below `folder`."""

    LOG_FOLDER = "kafka-logs"
    OUTPUT = "kafka.out"

    def __init__(
        self,
        folder: Path,
        *,
        overrides: Mapping[str, str] | None = None,
        jvm: Sequence[str] = TEST_FLAGS,
        flags: Sequence[str] = (),
    ) -> None:
        """``jvm``: instead of the flags of tests; ``flags``: more of them."""
        super().__init__(folder, overrides)
        self.controller_port = free_port()
        self.cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self.flags = [*jvm, *flags]
        self._properties = self.folder / "server.properties"

    def settings(self) -> dict[str, str]:
        """server.properties: those of a small single node, and what the test overrides."""
        controller = f"{self.host}:{self.controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.log_dir),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | self.overrides

    def prepare(self) -> None:
        """Formats the log dir, once."""
        if not (self.log_dir / "meta.properties").exists():
            self.format()
        classpath()  # looked up before the clock starts: it is the harness's cost

    def format(self) -> None:
        """Writes server.properties and formats the log dir, as `kafka-storage format` does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        values = {name: value.replace("\\", r"\\") for name, value in self.settings().items()}
        lines = [f"{name}={value}" for name, value in values.items()]
        self._properties.write_text("\n".join(lines) + "\n")
        args = [f"--cluster-id={self.cluster_id}", "-c", str(self._properties)]
        run_tool("kafka-storage", ["format", *args])

    def command(self) -> list[str]:
        java = [java_program(), *self.flags, "-cp", classpath()]
        return [*java, "kafka.Kafka", str(self._properties)]
