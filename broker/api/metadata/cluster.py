"""DescribeCluster 0-2 (KIP-700, KIP-919): the brokers and the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.api import RequestContext
from kstore.broker.api.metadata.metadata import cluster_operations
from kstore.errors import ErrorCode
from kstore.protocol.metadata.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from kstore.broker.api.metadata.metadata import ImageParts

__all__ = ["handle_describe_cluster"]

BROKERS = 1
CONTROLLERS = 2


def handle_describe_cluster(
    broker: ImageParts, request: DescribeClusterRequest, ctx: RequestContext
) -> DescribeClusterResponse:
    """List the brokers with the addresses of the client's listener. Controllers have no separate
    endpoints.
    """
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This endpoint is of type BROKER; the request asked for another type.",
            endpoint_type=BROKERS,
        )
    image = broker.image
    response = DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id if image.controller_id in image.brokers else -1,
    )
    for node in image.brokers.values():
        endpoint = node.endpoint(ctx.listener)
        if endpoint is not None:
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack
                )
            )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(broker, ctx)
    return response
