"""Denials in the log of a running broker: which responses are worth a line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kstore.clients import AdminClient, Producer
from kstore.errors import KafkaError
from kstore.testing.brokers import Broker

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    with Broker(tmp_path_factory.mktemp("audit"), settings) as broker:
        yield broker


def denials(broker: Broker) -> list[str]:
    """The part of the lines after the keyword, for clients without a name."""
    lines = broker.log_path.read_text().splitlines()
    found = [line.partition(" INFO authorizer: denied ")[2] for line in lines]
    start = 'principal="User:ANONYMOUS" host="127.0.0.1" request='
    return [line.removeprefix(start) for line in found if line.startswith(start)]


@pytest.mark.slow
def test_what_a_client_was_refused_is_in_the_log(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with AdminClient(bootstrap_servers=servers) as admin:
        assert admin.list_topics() == []
        assert admin.list_groups() == []
        assert denials(broker) == [], "what is only not shown was denied to nobody"
        with pytest.raises(KafkaError, match="is not authorized"):
            admin.describe_acls()
    assert denials(broker) == [
        'DescribeAcls operation=DESCRIBE resource=CLUSTER:"kafka-cluster" rule=none'
    ]
    with (
        Producer(bootstrap_servers=servers, enable_idempotence=False) as producer,
        pytest.raises(KafkaError),
    ):
        producer.send("orders", b"x").result()
    assert 'Metadata operation=DESCRIBE resource=TOPIC:"orders" rule=none' in denials(broker)
