"""The table of APIs: key, name, versions, message classes; and frames of header and message.

Message modules are imported when an API's class is first used. The broker's table of handlers is
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from kstore._fast.protocol.encoder import encode_frame, encode_pieces
from kstore._fast.protocol.plan import Plan
from kstore.errors import ProtocolError
from kstore.protocol.headers import RequestHeader, ResponseHeader
from kstore.protocol.schema import Message

__all__ = [
    "APIS",
    "API_VERSIONS",
    "Api",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "request_header_version",
    "request_pieces",
    "response_header_version",
]

M = TypeVar("M", bound=Message)

API_VERSIONS = 18


class Api:
    """One API: its key and name, its version range, and its two message classes."""

    __slots__ = ("_request", "_response", "flexible_from", "key", "max_version", "min_version",
                 "module", "name")  # fmt: skip

    def __init__(
        self, key: int, name: str, versions: tuple[int, int], flexible_from: int, module: str
    ) -> None:
        self.key = key
        self.name = name
        self.min_version, self.max_version = versions
        self.flexible_from = flexible_from
        self.module = module
        self._request: type[Message] | None = None
        self._response: type[Message] | None = None

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name!r}, {self.min_version}-{self.max_version})"

    @property
    def request(self) -> type[Message]:
        """The request's class."""
        if self._request is None:
            self._request = self._load("Request")
        return self._request

    @property
    def response(self) -> type[Message]:
        """The response's class."""
        if self._response is None:
            self._response = self._load("Response")
        return self._response

    def _load(self, suffix: str) -> type[Message]:
        module = import_module(f"kstore.protocol.{self.module}")
        cls: type[Message] = getattr(module, self.name + suffix)
        return cls


# A flexible_from above the last version: never flexible.
NEVER = 32767
APIS: dict[int, Api] = {
    row[0]: Api(*row)
    for row in (
        (0, "Produce", (3, 13), 9, "logs.produce"),
        (1, "Fetch", (4, 18), 12, "logs.fetch"),
        (2, "ListOffsets", (1, 11), 6, "logs.list_offsets"),
        (3, "Metadata", (0, 13), 9, "metadata.metadata"),
        (4, "LeaderAndIsr", (7, 7), 4, "controller.broker_requests"),
        (5, "StopReplica", (4, 4), 2, "controller.broker_requests"),
        (6, "UpdateMetadata", (8, 8), 6, "controller.broker_requests"),
        (7, "ControlledShutdown", (3, 3), 3, "controller.broker_requests"),
        (8, "OffsetCommit", (2, 10), 8, "groups.offsets"),
        (9, "OffsetFetch", (1, 10), 6, "groups.offsets"),
        (10, "FindCoordinator", (0, 6), 3, "groups.find_coordinator"),
        (11, "JoinGroup", (0, 9), 6, "groups.classic"),
        (12, "Heartbeat", (0, 4), 4, "groups.classic"),
        (13, "LeaveGroup", (0, 5), 4, "groups.classic"),
        (14, "SyncGroup", (0, 5), 4, "groups.classic"),
        (15, "DescribeGroups", (0, 6), 5, "groups.group_admin"),
        (16, "ListGroups", (0, 5), 3, "groups.group_admin"),
        (17, "SaslHandshake", (0, 1), NEVER, "security.sasl"),
        (18, "ApiVersions", (0, 4), 3, "metadata.api_versions"),
        (19, "CreateTopics", (2, 7), 5, "metadata.topics"),
        (20, "DeleteTopics", (1, 6), 4, "metadata.topics"),
        (21, "DeleteRecords", (0, 2), 2, "logs.delete_records"),
        (22, "InitProducerId", (0, 6), 2, "transactions.producer_ids"),
        (23, "OffsetForLeaderEpoch", (2, 4), 4, "logs.list_offsets"),
        (24, "AddPartitionsToTxn", (0, 5), 3, "transactions.transactions"),
        (25, "AddOffsetsToTxn", (0, 4), 3, "transactions.transactions"),
        (26, "EndTxn", (0, 5), 3, "transactions.transactions"),
        (27, "WriteTxnMarkers", (1, 2), 1, "transactions.transactions"),
        (28, "TxnOffsetCommit", (0, 5), 3, "transactions.transactions"),
        (29, "DescribeAcls", (1, 3), 2, "security.acls"),
        (30, "CreateAcls", (1, 3), 2, "security.acls"),
        (31, "DeleteAcls", (1, 3), 2, "security.acls"),
        (32, "DescribeConfigs", (1, 4), 4, "metadata.configs"),
        (33, "AlterConfigs", (0, 2), 2, "metadata.config_resources"),
        (34, "AlterReplicaLogDirs", (1, 2), 2, "logs.log_dirs"),
        (35, "DescribeLogDirs", (1, 5), 2, "logs.log_dirs"),
        (36, "SaslAuthenticate", (0, 2), 2, "security.sasl"),
        (37, "CreatePartitions", (0, 3), 2, "metadata.topics"),
        (38, "CreateDelegationToken", (1, 3), 2, "security.delegation_tokens"),
        (39, "RenewDelegationToken", (1, 2), 2, "security.delegation_tokens"),
        (40, "ExpireDelegationToken", (1, 2), 2, "security.delegation_tokens"),
        (41, "DescribeDelegationToken", (1, 3), 2, "security.delegation_tokens"),
        (42, "DeleteGroups", (0, 2), 2, "groups.group_admin"),
        (43, "ElectLeaders", (0, 2), 2, "controller.reassignments"),
        (44, "IncrementalAlterConfigs", (0, 1), 1, "metadata.configs"),
        (45, "AlterPartitionReassignments", (0, 1), 0, "controller.reassignments"),
        (46, "ListPartitionReassignments", (0, 0), 0, "controller.reassignments"),
        (47, "OffsetDelete", (0, 0), NEVER, "groups.offset_delete"),
        (48, "DescribeClientQuotas", (0, 1), 1, "quotas"),
        (49, "AlterClientQuotas", (0, 1), 1, "quotas"),
        (50, "DescribeUserScramCredentials", (0, 0), 0, "security.scram"),
        (51, "AlterUserScramCredentials", (0, 0), 0, "security.scram"),
        (55, "DescribeQuorum", (0, 2), 0, "metadata.features"),
        (56, "AlterPartition", (2, 3), 0, "controller.broker_requests"),
        (57, "UpdateFeatures", (0, 2), 0, "metadata.features"),
        (58, "Envelope", (0, 0), 0, "controller.envelope"),
        (60, "DescribeCluster", (0, 2), 0, "metadata.describe_cluster"),
        (61, "DescribeProducers", (0, 0), 0, "transactions.admin"),
        (63, "BrokerHeartbeat", (0, 2), 0, "controller.broker_requests"),
        (64, "UnregisterBroker", (0, 0), 0, "metadata.features"),
        (65, "DescribeTransactions", (0, 0), 0, "transactions.admin"),
        (66, "ListTransactions", (0, 2), 0, "transactions.admin"),
        (68, "ConsumerGroupHeartbeat", (0, 1), 0, "groups.consumer_groups"),
        (69, "ConsumerGroupDescribe", (0, 1), 0, "groups.consumer_groups"),
        (71, "GetTelemetrySubscriptions", (0, 0), 0, "telemetry"),
        (72, "PushTelemetry", (0, 0), 0, "telemetry"),
        (74, "ListConfigResources", (0, 1), 0, "metadata.config_resources"),
        (75, "DescribeTopicPartitions", (0, 0), 0, "metadata.metadata"),
        (76, "ShareGroupHeartbeat", (1, 1), 0, "shares.heartbeat"),
        (77, "ShareGroupDescribe", (1, 1), 0, "shares.describe"),
        (78, "ShareFetch", (1, 2), 0, "shares.fetch"),
        (79, "ShareAcknowledge", (1, 2), 0, "shares.acknowledge"),
        (80, "AddRaftVoter", (0, 1), 0, "controller.raft_voters"),
        (81, "RemoveRaftVoter", (0, 0), 0, "controller.raft_voters"),
        (83, "InitializeShareGroupState", (0, 0), 0, "shares.state"),
        (84, "ReadShareGroupState", (0, 0), 0, "shares.state"),
        (85, "WriteShareGroupState", (0, 1), 0, "shares.state"),
        (86, "DeleteShareGroupState", (0, 0), 0, "shares.state"),
        (87, "ReadShareGroupStateSummary", (0, 1), 0, "shares.state"),
        (88, "StreamsGroupHeartbeat", (0, 0), 0, "groups.streams_groups"),
        (89, "StreamsGroupDescribe", (0, 0), 0, "groups.streams_groups"),
        (90, "DescribeShareGroupOffsets", (0, 1), 0, "shares.offsets"),
        (91, "AlterShareGroupOffsets", (0, 0), 0, "shares.offsets"),
        (92, "DeleteShareGroupOffsets", (0, 0), 0, "shares.offsets"),
        (25300, "LeaderEpochForPartition", (0, 0), 0, "logs.leader_epoch_for_partition"),
        (25301, "CopyBatches", (0, 0), 0, "logs.copy_batches"),
        (25302, "GroupsBehind", (0, 0), 0, "groups.groups_behind"),
    )
}


def request_header_version(api_key: int, version: int) -> int:
    """2 for flexible versions, else 1."""
    return 2 if version >= APIS[api_key].flexible_from else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 for flexible versions, else 0; always 0 for ApiVersions, which any client must be able to
    read.
    """
    return 1 if version >= APIS[api_key].flexible_from and api_key != API_VERSIONS else 0


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """A whole request frame: length, header, message."""
    header, header_plan = _request_header(message, version, correlation_id, client_id)
    return encode_frame(message.plan_for(version), message, header_plan, header)


def request_pieces(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Any]:
    """A request frame in pieces to be written in order: large records are passed as objects, not
    copied.
    """
    header, header_plan = _request_header(message, version, correlation_id, client_id)
    return encode_pieces(message.plan_for(version), message, header_plan, header)


def _request_header(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> tuple[RequestHeader, Plan]:
    key = message.API_KEY
    header = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return header, RequestHeader.plan_for(request_header_version(key, version))


def encode_response(message: Message, version: int, correlation_id: int) -> bytes:
    """A whole response frame: length, header, message."""
    header_plan = ResponseHeader.plan_for(response_header_version(message.API_KEY, version))
    header = ResponseHeader(correlation_id=correlation_id)
    return encode_frame(message.plan_for(version), message, header_plan, header)


def decode_request(
    frame: bytes, max_elements: Callable[[int], int] | None = None
) -> tuple[RequestHeader, Message]:
    """Parse the header and message of a request frame without its length prefix.

    ``max_elements`` maps the API's key to the maximum number of elements of all arrays in the
    message. Raises ProtocolError, also for an API or version that is not in the table.
    """
    prefix, _ = RequestHeader.decode_prefix(frame, 1)
    api = APIS.get(prefix.request_api_key)
    version = prefix.request_api_version
    if api is None:
        raise ProtocolError(f"there is no API with key {prefix.request_api_key}")
    header, offset = RequestHeader.decode_prefix(frame, request_header_version(api.key, version))
    limit = -1 if max_elements is None else max_elements(api.key)
    return header, api.request.decode(frame, version, offset=offset, max_elements=limit)


def decode_response(frame: bytes, response: type[M], version: int) -> tuple[int, M]:
    """Correlation id and message of a response frame without its length prefix."""
    header_version = response_header_version(response.API_KEY, version)
    header, offset = ResponseHeader.decode_prefix(frame, header_version)
    return header.correlation_id, response.decode(frame, version, offset=offset)
