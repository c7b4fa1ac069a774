"""Kafka 4.3.1's admin tools, unmodified, against the broker: log dirs, leader election,
reassignment, features, cluster, quorum, ACLs, quotas, SCRAM, client metrics; and Java clients that
push telemetry.
"""

from __future__ import annotations

import json
import re
import urllib.request

import pytest

from tests.conformance.java.test_java_tools import create
from tests.conformance.kafka_broker import ask_tool, free_port, run_tool
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]


def tool(peer, name: str, *args: str, check: bool = True) -> str:
    """What a tool prints, standard output only; with check=False its errors too."""
    done = ask_tool(peer, name, *args, check=check)
    return done.stdout if check else done.stdout + done.stderr


def log_dirs(peer, topic: str) -> dict[str, dict[str, object]]:
    """Partition to its entry in what kafka-log-dirs prints, with the log dir in it."""
    text = tool(peer, "kafka-log-dirs", "--describe", "--topic-list", topic)
    said = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    [broker] = said["brokers"]
    return {
        row["partition"]: row | {"logDir": folder["logDir"]}
        for folder in broker["logDirs"]
        for row in folder["partitions"]
        if folder["error"] is None
    }


def test_log_dirs_are_described(peer, topic):
    create(peer, topic, 2)
    found = log_dirs(peer, topic)
    assert sorted(found) == [f"{topic}-0", f"{topic}-1"]
    assert all((row["size"], row["offsetLag"]) == (0, 0) for row in found.values())


def test_leaders_are_elected_already(peer, topic):
    create(peer, topic)
    kind = ["--election-type", "preferred"]
    said = tool(peer, "kafka-leader-election", *kind, "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in said
    assert tool(peer, "kafka-leader-election", *kind, "--all-topic-partitions").strip() == ""


@pytest.mark.thorough
def test_a_reassignment_to_the_same_broker_is_generated_executed_and_verified(
    peer, topic, tmp_path
):
    create(peer, topic, 2)
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    broker = "1"
    said = tool(
        peer, "kafka-reassign-partitions", "--generate", "--broker-list", broker,
        "--topics-to-move-json-file", str(topics),
    )  # fmt: skip
    plan.write_text(next(line for line in reversed(said.splitlines()) if line.startswith("{")))
    asked = ["--reassignment-json-file", str(plan)]
    said = tool(peer, "kafka-reassign-partitions", "--execute", *asked)
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in said
    said = tool(peer, "kafka-reassign-partitions", "--verify", *asked)
    for index in (0, 1):
        assert f"Reassignment of partition {topic}-{index} is completed." in said
    said = tool(peer, "kafka-reassign-partitions", "--list")
    assert "No partition reassignments found." in said


@pytest.mark.thorough
def test_a_partition_is_moved_to_the_other_log_dir(tmp_path, topic):
    folders = f"{tmp_path}/a,{tmp_path}/b"
    with KstoreBroker(tmp_path, overrides={"log.dirs": folders}) as kstore:
        create(kstore, topic)
        here = str(log_dirs(kstore, topic)[f"{topic}-0"]["logDir"])
        there = next(folder for folder in folders.split(",") if folder != here)
        row = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [there]}
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
        asked = ["--reassignment-json-file", str(plan)]
        said = tool(kstore, "kafka-reassign-partitions", "--execute", *asked)
        assert f"Successfully started moving log directory to {there}" in said
        said = tool(kstore, "kafka-reassign-partitions", "--verify", *asked)
        assert f"Reassignment of replica {topic}-0-1 completed successfully." in said
        assert log_dirs(kstore, topic)[f"{topic}-0"]["logDir"] == there


@pytest.mark.thorough
def test_features_are_described_and_changed(own_broker):
    levels = dict(
        re.findall(
            r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)",
            tool(own_broker, "kafka-features", "describe"),
        )
    )
    assert levels["metadata.version"] == "4.3-IV0"
    assert levels["kraft.version"] == "0"
    name = "eligible.leader.replicas.version"
    assert levels[name] == "1"
    tool(own_broker, "kafka-features", "downgrade", "--feature", f"{name}=0")
    said = tool(own_broker, "kafka-features", "describe")
    assert re.search(rf"Feature: {name}\s.*FinalizedVersionLevel: 0", said)
    said = tool(own_broker, "kafka-features", "upgrade", "--feature", f"{name}=7", check=False)
    assert "Could not" in said
    tool(own_broker, "kafka-features", "upgrade", "--feature", f"{name}=1")
    said = tool(own_broker, "kafka-features", "upgrade", "--release-version", "4.3")
    assert {"kraft.version was upgraded to 1.", "metadata.version was upgraded to 30."} <= {
        *said.splitlines()
    }
    said = tool(own_broker, "kafka-features", "describe")
    assert re.search(r"Feature: kraft.version\s.*FinalizedVersionLevel: 1", said)
    back = ["downgrade", "--feature", "kraft.version=0"]
    assert "Could not" in tool(own_broker, "kafka-features", *back, check=False)


def test_the_cluster_and_its_quorum_are_described(peer):
    cluster_id = tool(peer, "kafka-cluster", "cluster-id").split()[-1]
    status = tool(peer, "kafka-metadata-quorum", "describe", "--status")
    assert re.search(rf"ClusterId:\s+{re.escape(cluster_id)}\b", status)
    assert re.search(r"LeaderId:\s+1\b", status)
    assert re.search(r'CurrentVoters:\s+\[\{"id": 1, ', status)
    replication = tool(peer, "kafka-metadata-quorum", "describe", "--replication")
    assert "Leader" in replication.splitlines()[-1]
    endpoints = tool(peer, "kafka-cluster", "list-endpoints").splitlines()
    assert endpoints[-1].split()[0] == "1"


def test_acls_need_an_authorizer(peer):
    said = tool(peer, "kafka-acls", "--list", check=False)
    assert "SecurityDisabledException: " in said


QUOTAS = [
    pytest.param(["clients", None], "the default client-id", marks=pytest.mark.thorough),
    (["users", "al ice", "clients", "c"], "user-principal 'al ice', client-id 'c'"),
]


@pytest.mark.parametrize(("entity", "shown"), QUOTAS)
def test_client_quotas_are_set_described_and_removed(peer, entity, shown):
    named: list[str] = []
    for kind, name in zip(entity[::2], entity[1::2], strict=True):
        named += ["--entity-type", kind]
        named += ["--entity-default"] if name is None else ["--entity-name", name]
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
    tool(peer, "kafka-configs", "--alter", "--add-config", rates, *named)
    said = tool(peer, "kafka-configs", "--describe", *named)
    expected = f"Quota configs for {shown} are consumer_byte_rate=2048.0, producer_byte_rate=1024.0"
    assert expected in said
    keys = "producer_byte_rate,consumer_byte_rate"
    tool(peer, "kafka-configs", "--alter", "--delete-config", keys, *named)


@pytest.mark.thorough
def test_quotas_of_addresses_and_scram_credentials(peer):
    address = ["--entity-type", "ips", "--entity-name", "127.0.0.77"]
    tool(peer, "kafka-configs", "--alter", "--add-config", "connection_creation_rate=9", *address)
    said = tool(peer, "kafka-configs", "--describe", "--entity-type", "ips")
    assert "Quota configs for ip '127.0.0.77' are connection_creation_rate=9.0" in said
    gone = ["--delete-config", "connection_creation_rate"]
    tool(peer, "kafka-configs", "--alter", *gone, *address)
    user = ["--entity-type", "users", "--entity-name", "bob"]
    secret = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    tool(peer, "kafka-configs", "--alter", "--add-config", secret, *user)
    said = tool(peer, "kafka-configs", "--describe", *user)
    assert "user-principal 'bob' are SCRAM-SHA-256=iterations=8192" in said
    tool(peer, "kafka-configs", "--alter", "--delete-config", "SCRAM-SHA-256", *user)


@pytest.mark.thorough
def test_client_metrics_subscriptions(peer):
    name = ["--name", "conformance"]
    what = ["--metrics", "org.apache.kafka.producer.", "--interval", "1000"]
    tool(peer, "kafka-client-metrics", "--alter", *name, *what, "--match", "client_id=x")
    said = tool(peer, "kafka-client-metrics", "--describe", *name).split()
    shown = ["interval.ms=1000", "match=client_id=x", "metrics=org.apache.kafka.producer."]
    assert [word for word in said if "=" in word] == shown
    assert "conformance" in tool(peer, "kafka-client-metrics", "--list")
    tool(peer, "kafka-client-metrics", "--delete", *name)


@pytest.mark.thorough
def test_java_clients_push_their_metrics(tmp_path, topic):
    url = f"http://127.0.0.1:{free_port()}"
    with KstoreBroker(tmp_path, overrides={"kstore.metrics.listener": url}) as kstore:
        create(kstore, topic)
        every = ["--name", "all", "--metrics", "*", "--interval", "100"]
        tool(kstore, "kafka-client-metrics", "--alter", *every)
        load = ["--num-records", "3000", "--record-size", "100", "--throughput", "1000"]
        about = [f"bootstrap.servers={kstore.bootstrap}", "client.id=loader"]
        produce = ["--topic", topic, *load, "--producer-props", *about]
        consume = ["--topic", topic, "--from-beginning", "--max-messages", "3000"]
        clients = {
            'producer_record_send_total{.*client_id="loader"': lambda: run_tool(
                "kafka-producer-perf-test", produce
            ),
            'consumer_fetch_manager_.*client_id="console-consumer"': lambda: tool(
                kstore, "kafka-console-consumer", *consume
            ),
        }
        for wanted, run in clients.items():
            pattern = f"(?m)^kafka_client_org_apache_kafka_{wanted}"
            # A client that is starved of processor time may end before it has pushed.
            assert any(run() and re.search(pattern, _metrics(url)) for _ in range(4)), wanted


def _metrics(url: str) -> str:
    """What the broker returns about itself and its clients."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
    return text
