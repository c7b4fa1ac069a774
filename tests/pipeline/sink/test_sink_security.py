"""The kafka.* options apply to every client of the sink. Here: a listener with SASL, and an
authorizer that requires REPLICATOR_WRITE for given offsets.
"""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from kstore.acls import Acl, AclFilter, AclOperation, AclPatternType, AclResourceType
from kstore.clients import AdminClient
from kstore.clients.admin.topics import NewTopic
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.commit import commit
from kstore.pipeline.sink.settings import SinkSettings
from kstore.pipeline.sink.tasks import Task
from kstore.pipeline.sink.written import Written
from kstore.testing.brokers import Broker
from tests.beside.topic_records import values_of
from tests.broker.runtime.security.sasl_harness import addresses, plain_login

CLUSTER = "kafka-cluster"
NEEDED = (
    (AclResourceType.TOPIC, "orders", AclOperation.WRITE),
    (AclResourceType.TOPIC, "orders", AclOperation.READ),
    (AclResourceType.TOPIC, "__kstore_sink_", AclOperation.ALL),
    (AclResourceType.CLUSTER, CLUSTER, AclOperation.REPLICATOR_WRITE),
)
"""What README says that a sink's user needs."""


def write(broker: Broker) -> None:
    """Run a task and its commit as user spark."""
    clients = {
        "bootstrap.servers": addresses(broker)["SASL_PLAINTEXT"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",  # librdkafka's name for it
        "sasl.jaas.config": plain_login("spark"),
        "delivery.timeout.ms": "40000",
    }
    settings = SinkSettings(clients, "orders", exactly_once=True)
    batch = pa.RecordBatch.from_pydict({"value": [b"1", b"2"]})
    written: Written = Task(settings, uuid.uuid4().hex, 0).write([batch])
    commit(settings, [written])


@pytest.mark.slow
def test_a_user_with_the_rights_that_are_named_writes(secured: Broker) -> None:
    with AdminClient(bootstrap_servers=secured.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 1)])
        for missing in NEEDED:
            admin.create_acls([acl(*row) for row in NEEDED if row != missing])
            if missing[2] == AclOperation.REPLICATOR_WRITE:
                with pytest.raises(PipelineError, match="REPLICATOR_WRITE"):
                    write(secured)
            elif missing[2] == AclOperation.READ:  # only a restart needs this right
                write(secured)
            else:
                with pytest.raises(PipelineError, match="AUTHORIZATION_FAILED"):
                    write(secured)
            admin.delete_acls([AclFilter(principal="User:spark")])
        admin.create_acls([acl(*row) for row in NEEDED])
    write(secured)
    assert values_of(secured.bootstrap_servers, "orders") == [b"1", b"1", b"2", b"2"]


def acl(kind: AclResourceType, name: str, operation: AclOperation) -> Acl:
    """A rule for user spark; names that end in _ are prefixes."""
    is_prefix = name.endswith("_")
    pattern = AclPatternType.PREFIXED if is_prefix else AclPatternType.LITERAL
    return Acl(kind, name, "User:spark", operation, pattern_type=pattern)
