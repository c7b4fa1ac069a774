"""kafka-share-groups of Kafka 4.3.1, unmodified, against the broker: offsets set, described and
deleted, groups listed and deleted.
"""

from __future__ import annotations

import pytest

from tests.conformance.java.test_java_tools import create
from tests.conformance.kafka_broker import ask_tool

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.usefixtures("kafka_jars"),
]


def tool(peer, *args: str) -> list[list[str]]:
    """The words of the lines that the tool prints."""
    done = ask_tool(peer, "kafka-share-groups", *args)
    return [line.split() for line in done.stdout.splitlines() if line.strip()]


def test_offsets_of_a_group_are_set_described_and_deleted_with_it(peer, topic):
    group = f"{topic}-g"
    create(peer, topic, 2)
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"]
    assert [group, topic, "1", "0"] in tool(peer, *reset)
    assert [group, topic, "0", "0", "0"] in tool(peer, "--describe", "--group", group)
    assert [group, "Empty"] in tool(peer, "--list", "--state")
    tool(peer, "--delete-offsets", "--group", group, "--topic", topic)
    assert [group, topic, "0", "0", "0"] not in tool(peer, "--describe", "--group", group)
    tool(peer, "--delete", "--group", group)
    assert [group] not in tool(peer, "--list")
