"""kafka.* options reach every client of a read: here a listener with SASL, and an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.clients import AdminClient, NewTopic
from kstore.pipeline.errors import PipelineError
from kstore.testing.brokers import Broker
from tests.broker.sasl_harness import addresses
from tests.pipeline.reading import Query, batch_rows, values, write

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Broker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_spark="s3cret";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(tmp_path / "secured", settings) as started:
        yield started


def as_spark(password: str) -> dict[str, str]:
    """Options of the user spark."""
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN} username="spark" password="{password}";',
        "fetchOffset.retryIntervalMs": "10",
    }


def test_a_user_with_read_on_the_topic_reads_it_and_nobody_else_does(secured: Broker) -> None:
    servers, there = addresses(secured)["SASL_PLAINTEXT"], secured.bootstrap_servers
    with AdminClient(bootstrap_servers=there) as admin:
        admin.create_topics([NewTopic("orders", 1)])
        write(there, "orders", range(3))
        admin.create_partitions({"orders": 2})
        write(there, "orders", [3], partition=1)
        with pytest.raises(PipelineError, match=r"AUTHORIZATION_FAILED.*allow this user READ"):
            batch_rows(servers, "orders", **as_spark("s3cret"))
        user = "User:spark"
        admin.create_acls([Acl(AclResourceType.TOPIC, "orders", user, AclOperation.READ)])
    assert values(batch_rows(servers, "orders", **as_spark("s3cret"))) == [0, 1, 2, 3]
    query = Query(servers, "orders", **as_spark("s3cret"))
    assert [values(query.step()), values(query.step())] == [[0, 1, 2], [3]]
    query.close()
    with pytest.raises(PipelineError, match=r"Check kafka\.sasl\.\*") as refused:
        batch_rows(servers, "orders", **as_spark("wr0ng"))
    assert "wr0ng" not in str(refused.value)
