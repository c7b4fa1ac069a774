"""DescribeCluster: the cluster's id, brokers and controller."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
]


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    """Asks for the brokers (or controllers) of the cluster."""

    include_cluster_authorized_operations: Bool = field("0+", default=False)
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)


class DescribeClusterBroker(Struct):
    """One entry of `brokers` in DescribeClusterResponse."""

    broker_id: Int32 = field("0+", default=0)
    host: String = field("0+", default="")
    port: Int32 = field("0+", default=0)
    rack: String | None = field("0+", default=None, nullable="0+")
    is_fenced: Bool = field("2+", default=False)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    """The answer to DescribeClusterRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String = field("0+", default="")
    controller_id: Int32 = field("0+", default=-1)
    brokers: list[DescribeClusterBroker] = field("0+", default=[])
    cluster_authorized_operations: Int32 = field("0+", default=-2147483648)
