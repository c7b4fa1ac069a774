"""AIOAdminClient, and AdminClient, which runs it on a loop in its own thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from kstore.clients.admin.acls import AclsAdmin
from kstore.clients.admin.cluster import ClusterAdmin
from kstore.clients.admin.configs import ConfigsAdmin
from kstore.clients.admin.credentials import CredentialsAdmin
from kstore.clients.admin.delegation_tokens import DelegationTokensAdmin
from kstore.clients.admin.group_verification import GroupVerification
from kstore.clients.admin.groups import GroupsAdmin
from kstore.clients.admin.quotas import QuotasAdmin
from kstore.clients.admin.replicas import ReplicasAdmin
from kstore.clients.admin.share_offsets import ShareOffsetsAdmin
from kstore.clients.admin.topics import TopicsAdmin
from kstore.clients.admin.transactions import TransactionsAdmin
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.loop_thread import LoopThread
from kstore.config.client.configs import client_settings
from kstore.items import Items

__all__ = ["AIOAdminClient", "AdminClient"]

P = ParamSpec("P")
T = TypeVar("T")


class AIOAdminClient(
    TopicsAdmin,
    ConfigsAdmin,
    GroupsAdmin,
    GroupVerification,
    ShareOffsetsAdmin,
    AclsAdmin,
    CredentialsAdmin,
    DelegationTokensAdmin,
    QuotasAdmin,
    TransactionsAdmin,
    ReplicasAdmin,
    ClusterAdmin,
):
    """Manages a cluster with Kafka's admin APIs, for asyncio.

    A request for several items returns Results: a dict of the items that succeeded, with the errors
    of the others in `errors`. By default the error of the first item that failed is raised. With
    raise_errors=False none is raised. Items that reached the wrong broker, or came too early, are
    sent again until default.api.timeout.ms.

    Settings are Kafka's: a mapping with dotted names, or keywords with underscores. A str or a list
    instead of the mapping is bootstrap.servers. Raises ConfigError, a ValueError.
    """

    def __init__(
        self, config: Mapping[str, Any] | str | Items[str] | None = None, /, **keywords: Any
    ) -> None:
        settings = client_settings("admin", config, keywords)
        super().__init__(ClusterClient(settings), settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()


def _blocking(
    method: Callable[Concatenate[AIOAdminClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AdminClient, P], T]:
    """The method of AdminClient that waits for the coroutine of AIOAdminClient."""

    @wraps(method)
    def call(self: AdminClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._client, *args, **kwargs))

    return call


class AdminClient:
    """Manages a cluster: the same methods as AIOAdminClient, but each waits for its result. Any
    number of threads may use it. Its own thread runs until it is closed. Example: ``with
    AdminClient("localhost:9092") as admin: admin.create_topics({"orders": 3})``.
    """

    def __init__(
        self, config: Mapping[str, Any] | str | Items[str] | None = None, /, **keywords: Any
    ) -> None:
        self._client = AIOAdminClient(config, **keywords)
        self._thread = LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and stop the thread. Closing a closed client has no effect."""
        if not self._thread.is_closed:
            self._thread.run(self._client.close())
            self._thread.close()

    create_topics = _blocking(AIOAdminClient.create_topics)
    delete_topics = _blocking(AIOAdminClient.delete_topics)
    create_partitions = _blocking(AIOAdminClient.create_partitions)
    list_topics = _blocking(AIOAdminClient.list_topics)
    describe_topics = _blocking(AIOAdminClient.describe_topics)

    list_offsets = _blocking(AIOAdminClient.list_offsets)
    delete_records = _blocking(AIOAdminClient.delete_records)

    describe_configs = _blocking(AIOAdminClient.describe_configs)
    describe_resource_configs = _blocking(AIOAdminClient.describe_resource_configs)
    alter_configs = _blocking(AIOAdminClient.alter_configs)
    alter_resource_configs = _blocking(AIOAdminClient.alter_resource_configs)
    list_config_resources = _blocking(AIOAdminClient.list_config_resources)

    list_groups = _blocking(AIOAdminClient.list_groups)
    describe_groups = _blocking(AIOAdminClient.describe_groups)
    delete_groups = _blocking(AIOAdminClient.delete_groups)
    remove_members = _blocking(AIOAdminClient.remove_members)
    list_group_offsets = _blocking(AIOAdminClient.list_group_offsets)
    alter_group_offsets = _blocking(AIOAdminClient.alter_group_offsets)
    delete_group_offsets = _blocking(AIOAdminClient.delete_group_offsets)
    verify_group_offsets = _blocking(AIOAdminClient.verify_group_offsets)
    describe_share_groups = _blocking(AIOAdminClient.describe_share_groups)
    list_share_group_offsets = _blocking(AIOAdminClient.list_share_group_offsets)
    alter_share_group_offsets = _blocking(AIOAdminClient.alter_share_group_offsets)
    delete_share_group_offsets = _blocking(AIOAdminClient.delete_share_group_offsets)

    create_acls = _blocking(AIOAdminClient.create_acls)
    describe_acls = _blocking(AIOAdminClient.describe_acls)
    delete_acls = _blocking(AIOAdminClient.delete_acls)
    describe_scram_credentials = _blocking(AIOAdminClient.describe_scram_credentials)
    alter_scram_credentials = _blocking(AIOAdminClient.alter_scram_credentials)
    create_delegation_token = _blocking(AIOAdminClient.create_delegation_token)
    renew_delegation_token = _blocking(AIOAdminClient.renew_delegation_token)
    expire_delegation_token = _blocking(AIOAdminClient.expire_delegation_token)
    describe_delegation_tokens = _blocking(AIOAdminClient.describe_delegation_tokens)
    describe_client_quotas = _blocking(AIOAdminClient.describe_client_quotas)
    alter_client_quotas = _blocking(AIOAdminClient.alter_client_quotas)

    list_transactions = _blocking(AIOAdminClient.list_transactions)
    describe_transactions = _blocking(AIOAdminClient.describe_transactions)
    describe_producers = _blocking(AIOAdminClient.describe_producers)
    abort_transaction = _blocking(AIOAdminClient.abort_transaction)
    fence_producers = _blocking(AIOAdminClient.fence_producers)
    find_hanging_transactions = _blocking(AIOAdminClient.find_hanging_transactions)

    alter_partition_reassignments = _blocking(AIOAdminClient.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AIOAdminClient.list_partition_reassignments)
    elect_leaders = _blocking(AIOAdminClient.elect_leaders)
    describe_log_dirs = _blocking(AIOAdminClient.describe_log_dirs)
    alter_replica_log_dirs = _blocking(AIOAdminClient.alter_replica_log_dirs)

    describe_cluster = _blocking(AIOAdminClient.describe_cluster)
    describe_features = _blocking(AIOAdminClient.describe_features)
    describe_api_versions = _blocking(AIOAdminClient.describe_api_versions)
    update_features = _blocking(AIOAdminClient.update_features)
