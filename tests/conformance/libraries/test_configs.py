"""Settings changed and shown by unmodified tools: kafka-configs and kafka-topics, confluent-kafka's
and kafka-python's admin clients.
"""

from __future__ import annotations

import re
import uuid

import pytest
from confluent_kafka import admin
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from tests.conformance.kafka_broker import ask_tool

pytestmark = [pytest.mark.slow]


def configs(peer, *args: str, check: bool = True):
    return ask_tool(peer, "kafka-configs", *args, check=check)


def shown(text: str) -> dict[str, str]:
    """What `--describe` prints: name to value, sources and synonyms."""
    rows = re.findall(r"^\s+([\w.-]+)=(.*)$", text, re.MULTILINE)
    return dict(rows)


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
class TestKafkaConfigs:
    """kafka-configs, entity by entity."""

    def test_topics(self, peer, topic):
        made = ["--create", "--topic", topic, "--config", "retention.ms=1000"]
        ask_tool(peer, "kafka-topics", *made)
        entity = ("--entity-type", "topics", "--entity-name", topic)
        done = configs(
            peer, *entity, "--alter", "--add-config", "flush.ms=7,cleanup.policy=[compact,delete]"
        )
        assert f"Completed updating config for topic {topic}." in done.stdout
        configs(peer, *entity, "--alter", "--delete-config", "retention.ms")
        rows = shown(configs(peer, *entity, "--describe").stdout)
        assert rows.keys() == {"flush.ms", "cleanup.policy"}
        assert rows["flush.ms"].startswith(
            "7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:flush.ms=7"
        )
        everything = shown(configs(peer, *entity, "--describe", "--all").stdout)
        assert len([name for name in everything if not name.startswith("kstore.")]) == 33
        assert everything["max.message.bytes"] == (
            "1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}"
        )
        refused = configs(peer, *entity, "--alter", "--add-config", "flush.ms=soon", check=False)
        assert refused.returncode == 1
        assert "InvalidConfigurationException" in refused.stdout + refused.stderr

    @pytest.mark.thorough
    def test_a_broker_and_all_brokers(self, peer):
        entity = ("--entity-type", "brokers", "--entity-name", "1")
        everyone = ("--entity-type", "brokers", "--entity-default")
        configs(peer, *everyone, "--alter", "--add-config", "log.cleaner.backoff.ms=14000")
        configs(peer, *entity, "--alter", "--add-config", "log.cleaner.backoff.ms=13000")
        rows = shown(configs(peer, *entity, "--describe").stdout)
        assert rows["log.cleaner.backoff.ms"] == (
            "13000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=13000, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=14000, "
            "DEFAULT_CONFIG:log.cleaner.backoff.ms=15000}"
        )
        assert len(shown(configs(peer, *entity, "--describe", "--all").stdout)) >= 340
        configs(peer, *entity, "--alter", "--delete-config", "log.cleaner.backoff.ms")
        configs(peer, *everyone, "--alter", "--delete-config", "log.cleaner.backoff.ms")
        assert shown(configs(peer, *everyone, "--describe").stdout).keys() == {
            "min.insync.replicas"
        }
        refused = configs(peer, *entity, "--alter", "--add-config", "node.id=7", check=False)
        assert "InvalidRequestException" in refused.stdout + refused.stderr

    @pytest.mark.thorough
    def test_groups(self, peer, group):
        entity = ("--entity-type", "groups", "--entity-name", group)
        configs(peer, *entity, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
        rows = shown(configs(peer, *entity, "--describe").stdout)
        assert rows["consumer.session.timeout.ms"].startswith(
            "50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000"
        )
        configs(peer, *entity, "--alter", "--delete-config", "consumer.session.timeout.ms")
        assert not shown(configs(peer, *entity, "--describe").stdout)

    @pytest.mark.thorough
    def test_client_metrics(self, peer, group):
        entity = ("--entity-type", "client-metrics", "--entity-name", group)
        given = "interval.ms=60000,metrics=[a.b,c],match=[client_id=x.*]"
        configs(peer, *entity, "--alter", "--add-config", given)
        rows = shown(configs(peer, *entity, "--describe").stdout)
        assert {name: value.split(" ")[0] for name, value in rows.items()} == {
            "interval.ms": "60000", "metrics": "a.b,c", "match": "client_id=x.*",
        }  # fmt: skip
        configs(peer, *entity, "--alter", "--delete-config", "interval.ms,metrics,match")

    @pytest.mark.thorough
    def test_loggers(self, peer):
        entity = ("--entity-type", "broker-loggers", "--entity-name", "1")
        configs(peer, *entity, "--alter", "--add-config", "root=ERROR")
        assert shown(configs(peer, *entity, "--describe").stdout)["root"].startswith("ERROR ")
        refused = configs(peer, *entity, "--alter", "--add-config", "root=LOUD", check=False)
        assert refused.returncode == 1


def test_confluent_kafka_describes_and_alters(peer, topic):
    client = admin.AdminClient({"bootstrap.servers": peer.bootstrap})
    client.create_topics([admin.NewTopic(topic, 1, 1)])[topic].result(20)

    def change(kind, name, *entries):
        resource = admin.ConfigResource(kind, name, incremental_configs=list(entries))
        [future] = client.incremental_alter_configs([resource]).values()
        return future.result(20)

    def describe(kind, name):
        [future] = client.describe_configs([admin.ConfigResource(kind, name)]).values()
        return future.result(20)

    incremental = admin.AlterConfigOpType
    change(
        admin.ResourceType.TOPIC, topic,
        admin.ConfigEntry("retention.ms", "9000", incremental_operation=incremental.SET),
        admin.ConfigEntry("cleanup.policy", "compact", incremental_operation=incremental.APPEND),
    )  # fmt: skip
    rows = describe(admin.ResourceType.TOPIC, topic)
    assert (rows["retention.ms"].value, rows["retention.ms"].source) == (
        "9000", admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    )  # fmt: skip
    assert rows["cleanup.policy"].value == "delete,compact"
    change(
        admin.ResourceType.TOPIC, topic,
        admin.ConfigEntry("retention.ms", "", incremental_operation=incremental.DELETE),
        admin.ConfigEntry("cleanup.policy", "delete", incremental_operation=incremental.SUBTRACT),
    )  # fmt: skip
    rows = describe(admin.ResourceType.TOPIC, topic)
    assert rows["retention.ms"].value == "604800000"
    assert rows["cleanup.policy"].value == "compact"
    broker = describe(admin.ResourceType.BROKER, "1")
    assert broker["num.network.threads"].value == "3"
    assert broker["node.id"].is_read_only
    assert broker["ssl.keystore.password"].is_sensitive


def test_kafka_python_describes_and_alters(peer, topic):
    client = KafkaAdminClient(bootstrap_servers=peer.bootstrap)
    client.create_topics([NewTopic(topic, 1, 1)])
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"flush.ms": "9"})])
    described = client.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {"flush.ms": None, "segment.ms": None})]
    )
    assert "9" in str(described)
    client.close()
