"""`kstore backup` of a cluster with a real ZooKeeper, restored to another path and to a folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.cli.cluster_folder import ClusterFolder
from kstore.clients import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    AdminClient,
    NewTopic,
    Producer,
    quota_entity,
)
from kstore.types import TopicPartition
from tests.cli.backup.test_backup_commands import Run, kstore, shell
from tests.conformance.broker_process import free_ports

if TYPE_CHECKING:
    from tests.conformance.zookeeper_server import ZooKeeperServer

__all__ = ["kstore", "shell"]
pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.thorough]

RULE = Acl(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ, AclPermission.ALLOW)
ALICE = quota_entity(user="alice")


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[list[Path]]:
    """Folders of clusters, whose brokers are ended."""
    found = [tmp_path / name for name in ("cluster", "there", "here")]
    yield found
    for folder in found:
        for broker in ClusterFolder(folder).brokers():
            broker.end(signal.SIGKILL)


def test_a_cluster_with_zookeeper_comes_back(
    zookeeper_server: ZooKeeperServer, folders: list[Path], tmp_path: Path, kstore: Run
) -> None:
    cluster, there, here = map(str, folders)
    port, backups = free_ports(2), str(tmp_path / "backups")
    overrides = [
        f"zookeeper.connect={zookeeper_server.bootstrap}/first",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    ]
    words = [f"--override={each}" for each in overrides]
    kstore("cluster", "start", "--brokers", "2", "--dir", cluster, "--port", str(port), *words)
    servers = f"localhost:{port}"
    with AdminClient({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic("orders", 2)])
        admin.alter_configs("orders", {"retention.ms": "123456789"})
        admin.create_acls([RULE])
        admin.alter_client_quotas({ALICE: {"producer_byte_rate": 1000.0}})
    with Producer(servers) as producer:
        producer.send_many("orders", [b"a", b"b", b"c"])
    kstore("backup", "create", backups, "--folder", cluster)
    kstore("cluster", "stop", "--dir", cluster)
    for folder, more in (
        (there, ["--zookeeper", f"{zookeeper_server.bootstrap}/second"]),
        (here, []),
    ):
        kstore("backup", "restore", backups, "--to", folder, *more)
        kstore("cluster", "start", "--dir", folder)
        check(servers)
        kstore("cluster", "stop", "--dir", folder)


def check(servers: str) -> None:
    """All that was in the store, and the records."""
    with AdminClient({"bootstrap.servers": servers}) as admin:
        assert admin.describe_configs("orders")["retention.ms"].value == "123456789"
        assert list(admin.describe_acls()) == [RULE]
        assert admin.describe_client_quotas()[ALICE] == {"producer_byte_rate": 1000.0}
        places = [TopicPartition("orders", index) for index in (0, 1)]
        ends = admin.list_offsets(dict.fromkeys(places, "latest"))
        assert sum(found.offset for found in ends.values()) == 3
