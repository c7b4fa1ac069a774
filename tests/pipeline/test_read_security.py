"""The kafka.* options apply to every client of a read. Here: a listener with SASL, and an
authorizer.
"""

from __future__ import annotations

import pytest

from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.clients import AdminClient, NewTopic
from kstore.pipeline.errors import PipelineError
from kstore.testing.brokers import Broker
from tests.broker.runtime.security.sasl_harness import PASSWORD, addresses, plain_login
from tests.pipeline.reading import Query, batch_rows, values, write


def as_spark(password: str) -> dict[str, str]:
    """Options of user spark."""
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": plain_login("spark", password),
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
            batch_rows(servers, "orders", **as_spark(PASSWORD))
        user = "User:spark"
        admin.create_acls([Acl(AclResourceType.TOPIC, "orders", user, AclOperation.READ)])
    assert values(batch_rows(servers, "orders", **as_spark(PASSWORD))) == [0, 1, 2, 3]
    query = Query(servers, "orders", **as_spark(PASSWORD))
    assert [values(query.step()), values(query.step())] == [[0, 1, 2], [3]]
    query.close()
    with pytest.raises(PipelineError, match=r"Check kafka\.sasl\.\*") as refused:
        batch_rows(servers, "orders", **as_spark("wr0ng"))
    assert "wr0ng" not in str(refused.value)
