"""The table of APIs that the broker serves, one row for each API key, and the context that handlers
receive.

A row names its handler as "module:function", so that a broker imports no handler before its first
request. A new API needs one row here, one row in permissions.py, and one handler. ApiVersions
advertises exactly these rows, limited to the versions that the protocol registry can decode.
Produce and Fetch have no Python handler: kstore._fast handles them completely.

May import: kstore._fast.network.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection

__all__ = ["API_TABLE", "ApiRow", "Handler", "RequestContext", "resolve_handler"]


class RequestContext(NamedTuple):
    """What a handler knows in addition to the request: the client and its connection."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    connection_id: str
    """``local_host:local_port-client_host:client_port-n``, as Kafka writes it."""
    listener: str
    principal: str
    """``User:ANONYMOUS`` on a listener without authentication."""
    connection: Connection | None = None
    """The connection itself; None if a handler is called without one."""

    @property
    def extended(self) -> bool:
        """Whether the client asks for kstore's tagged fields in responses."""
        return self.connection is not None and self.connection.extended


Handler = Callable[[Any, Any, RequestContext], "Any | Awaitable[Any]"]
"""A handler: ``handle_x(broker, request, ctx) -> response``, or an awaitable of it. Each handler
declares in a Protocol class which parts of the broker it uses.

It runs on the loop, so it must return or await within 2 ms. While it awaits, later requests of the
connection are handled; only their responses wait. ``None`` means that no response is sent.
"""


class ApiRow(NamedTuple):
    """One API: the versions served and where its handler is."""

    handler: str
    """``module:function`` below kstore.broker.api, or ``fast`` if kstore._fast answers."""
    min_version: int
    max_version: int
    cached: bool = False
    """The response depends only on the request's bytes and the metadata image, so it is encoded
    once for each image.
    """
    internal: bool = False
    """A request between brokers of a cluster. It is not advertised, and only brokers may send it,
    on the inter-broker listener (between_brokers.py).
    """
    controller_only: bool = False
    """In a cluster the controller answers it, and other brokers forward it (forwarding.py)."""
    shared_configs: bool = False
    """As ``controller_only``, except for settings of one broker."""
    waits_for_members: bool = False
    """Its response may wait for other members, for a time that the client chooses."""
    in_turns: bool = False
    """All members of a group may send it at the same time. All such requests, of all connections,
    share a slice of each turn of the loop.
    """


FAST = "fast"

API_TABLE: dict[int, ApiRow] = {
    0: ApiRow(FAST, 3, 13),
    1: ApiRow(FAST, 4, 18),
    2: ApiRow("logs.list_offsets:handle_list_offsets", 1, 11),
    3: ApiRow("metadata.metadata:handle_metadata", 0, 13, cached=True),
    4: ApiRow("controller.broker_requests:handle_leader_and_isr", 7, 7, internal=True),
    5: ApiRow("controller.broker_requests:handle_stop_replica", 4, 4, internal=True),
    6: ApiRow("controller.broker_requests:handle_update_metadata", 8, 8, internal=True),
    7: ApiRow("controller.broker_requests:handle_controlled_shutdown", 3, 3, internal=True),
    8: ApiRow("groups.offsets:handle_offset_commit", 2, 10, in_turns=True),
    9: ApiRow("groups.offsets:handle_offset_fetch", 1, 10, in_turns=True),
    10: ApiRow("groups.find_coordinator:handle_find_coordinator", 0, 6),
    11: ApiRow("groups.classic:handle_join_group", 0, 9, waits_for_members=True, in_turns=True),
    12: ApiRow("groups.classic:handle_heartbeat", 0, 4, in_turns=True),
    13: ApiRow("groups.classic:handle_leave_group", 0, 5, in_turns=True),
    14: ApiRow("groups.classic:handle_sync_group", 0, 5, waits_for_members=True, in_turns=True),
    15: ApiRow("groups.classic:handle_describe_groups", 0, 6),
    16: ApiRow("groups.classic:handle_list_groups", 0, 5),
    17: ApiRow("security.sasl:handle_sasl_handshake", 0, 1),
    18: ApiRow("metadata.api_versions:handle_api_versions", 0, 4, cached=True),
    19: ApiRow("topics.topics:handle_create_topics", 2, 7, controller_only=True),
    20: ApiRow("topics.topics:handle_delete_topics", 1, 6, controller_only=True),
    21: ApiRow("topics.delete_records:handle_delete_records", 0, 2),
    22: ApiRow("transactions.producer_ids:handle_init_producer_id", 0, 5),
    23: ApiRow("logs.leader_epochs:handle_offset_for_leader_epoch", 2, 4),
    24: ApiRow("transactions.add_partitions:handle_add_partitions_to_txn", 0, 5),
    25: ApiRow("transactions.transactions:handle_add_offsets_to_txn", 0, 4),
    26: ApiRow("transactions.transactions:handle_end_txn", 0, 5),
    27: ApiRow("transactions.admin:handle_write_txn_markers", 1, 2),
    28: ApiRow("transactions.transactions:handle_txn_offset_commit", 0, 5),
    29: ApiRow("security.acls:handle_describe_acls", 1, 3),
    30: ApiRow("security.acls:handle_create_acls", 1, 3),
    31: ApiRow("security.acls:handle_delete_acls", 1, 3),
    32: ApiRow("metadata.configs:handle_describe_configs", 1, 4),
    33: ApiRow("metadata.alter_configs:handle_alter_configs", 0, 2, shared_configs=True),
    34: ApiRow("logs.log_dirs:handle_alter_replica_log_dirs", 1, 2),
    35: ApiRow("logs.log_dirs:handle_describe_log_dirs", 1, 5),
    36: ApiRow("security.sasl:handle_sasl_authenticate", 0, 2),
    37: ApiRow("topics.topics:handle_create_partitions", 0, 3, controller_only=True),
    38: ApiRow("security.delegation_tokens:handle_create_delegation_token", 1, 3),
    39: ApiRow("security.delegation_tokens:handle_renew_delegation_token", 1, 2),
    40: ApiRow("security.delegation_tokens:handle_expire_delegation_token", 1, 2),
    41: ApiRow("security.delegation_tokens:handle_describe_delegation_token", 1, 3),
    42: ApiRow("groups.classic:handle_delete_groups", 0, 2),
    43: ApiRow("controller.reassignments:handle_elect_leaders", 0, 2, controller_only=True),
    44: ApiRow(
        "metadata.alter_configs:handle_incremental_alter_configs", 0, 1, shared_configs=True
    ),
    45: ApiRow(
        "controller.reassignments:handle_alter_partition_reassignments", 0, 1, controller_only=True
    ),
    46: ApiRow(
        "controller.reassignments:handle_list_partition_reassignments", 0, 0, controller_only=True
    ),
    47: ApiRow("groups.offsets:handle_offset_delete", 0, 0),
    48: ApiRow("quotas.client_quotas:handle_describe_client_quotas", 0, 1),
    49: ApiRow("quotas.client_quotas:handle_alter_client_quotas", 0, 1, controller_only=True),
    50: ApiRow("security.scram:handle_describe_user_scram_credentials", 0, 0),
    51: ApiRow("security.scram:handle_alter_user_scram_credentials", 0, 0, controller_only=True),
    55: ApiRow("controller.quorum:handle_describe_quorum", 0, 2),
    56: ApiRow("controller.broker_requests:handle_alter_partition", 2, 3, internal=True),
    57: ApiRow("metadata.features:handle_update_features", 0, 2, controller_only=True),
    58: ApiRow("controller.broker_requests:handle_envelope", 0, 0, internal=True),
    60: ApiRow("metadata.cluster:handle_describe_cluster", 0, 2),
    61: ApiRow("transactions.admin:handle_describe_producers", 0, 0),
    63: ApiRow("controller.broker_requests:handle_broker_heartbeat", 0, 2, internal=True),
    64: ApiRow("controller.quorum:handle_unregister_broker", 0, 0),
    65: ApiRow("transactions.admin:handle_describe_transactions", 0, 0),
    66: ApiRow("transactions.admin:handle_list_transactions", 0, 2),
    68: ApiRow("groups.consumer:handle_consumer_group_heartbeat", 0, 1, in_turns=True),
    69: ApiRow("groups.consumer:handle_consumer_group_describe", 0, 1),
    71: ApiRow("telemetry.client_metrics:handle_get_telemetry_subscriptions", 0, 0),
    72: ApiRow("telemetry.client_metrics:handle_push_telemetry", 0, 0),
    74: ApiRow("metadata.alter_configs:handle_list_config_resources", 0, 1),
    75: ApiRow("metadata.metadata:handle_describe_topic_partitions", 0, 0),
    76: ApiRow("groups.share:handle_share_group_heartbeat", 1, 1, in_turns=True),
    77: ApiRow("groups.share:handle_share_group_describe", 1, 1),
    78: ApiRow("shares.share_fetch:handle_share_fetch", 1, 2),
    79: ApiRow("shares.share_acknowledge:handle_share_acknowledge", 1, 2),
    80: ApiRow("controller.quorum:handle_add_raft_voter", 0, 1),
    81: ApiRow("controller.quorum:handle_remove_raft_voter", 0, 0),
    83: ApiRow("shares.state:handle_initialize_share_group_state", 0, 0),
    84: ApiRow("shares.state:handle_read_share_group_state", 0, 0),
    85: ApiRow("shares.state:handle_write_share_group_state", 0, 1),
    86: ApiRow("shares.state:handle_delete_share_group_state", 0, 0),
    87: ApiRow("shares.state:handle_read_share_group_state_summary", 0, 1),
    88: ApiRow("groups.streams:handle_streams_group_heartbeat", 0, 0, in_turns=True),
    89: ApiRow("groups.streams:handle_streams_group_describe", 0, 0),
    90: ApiRow("groups.share_offsets:handle_describe_share_group_offsets", 0, 1),
    91: ApiRow("groups.share_offsets:handle_alter_share_group_offsets", 0, 0),
    92: ApiRow("groups.share_offsets:handle_delete_share_group_offsets", 0, 0),
    25300: ApiRow("logs.leader_epochs:handle_leader_epoch_for_partition", 0, 0),
    25301: ApiRow("logs.copy_batches:handle_copy_batches", 0, 0),
    25302: ApiRow("groups.behind:handle_groups_behind", 0, 0, internal=True),
}
"""API key to row, sorted by key. The versions are those of Kafka 4.3, as far as kstore serves them.
"""


def resolve_handler(row: ApiRow) -> Handler:
    """Import the row's handler. Raises ImportError or AttributeError if there is none."""
    module_name, _, function_name = row.handler.partition(":")
    module = import_module(f"kstore.broker.api.{module_name}")
    handler: Handler = getattr(module, function_name)
    return handler
