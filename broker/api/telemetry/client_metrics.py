"""GetTelemetrySubscriptions 0 and PushTelemetry 0 (KIP-714): which metrics a client should push,
and the metrics that it pushes.

Kafka advertises the two APIs if a receiver is configured. kstore always has one: the broker's own
metrics. The rules are in state/telemetry/client_metrics.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID, uuid4

from kstore.broker.api import RequestContext
from kstore.broker.state.telemetry.client_metrics import ACCEPTED_COMPRESSION, ClientInstance
from kstore.broker.state.telemetry.otlp import OtlpError, OtlpTooLargeError
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.schema import ZERO_UUID
from kstore.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.telemetry.client_metrics import Telemetry

__all__ = ["TelemetryParts", "handle_get_telemetry_subscriptions", "handle_push_telemetry"]

NO_COMPRESSION = 0
MAX_RATIO = 100
"""The largest accepted compression ratio. Real metrics are compressed to a tenth."""
FREE_BYTES = 16_384
"""The size in bytes up to which the ratio is not checked."""


class TelemetryParts(Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def node(self) -> Node:
        """The broker's settings and clock."""

    @property
    def configs(self) -> DynamicConfigs:
        """The subscriptions."""

    @property
    def telemetry(self) -> Lazy[Telemetry]:
        """The metrics that clients push."""


def handle_get_telemetry_subscriptions(
    broker: TelemetryParts, request: GetTelemetrySubscriptionsRequest, ctx: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Return what the client should push. A client without an id gets one."""
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = uuid4()
    instance = _instance(broker, instance_id, ctx)
    if not instance.may_get(broker.node.now_ms()):
        instance.last_error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return GetTelemetrySubscriptionsResponse(error_code=instance.last_error)
    instance.last_error = ErrorCode.NONE
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=broker.node.config["telemetry.max.bytes"],
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


async def handle_push_telemetry(
    broker: TelemetryParts, request: PushTelemetryRequest, ctx: RequestContext
) -> PushTelemetryResponse:
    """Receive a client's metrics."""
    if request.client_instance_id == ZERO_UUID:
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    instance = _instance(broker, request.client_instance_id, ctx)
    max_bytes = broker.node.config["telemetry.max.bytes"]
    code = instance.refuse_push(
        broker.node.now_ms(), request.subscription_id, request.compression_type,
        len(request.metrics), max_bytes, terminating=request.terminating,
    )  # fmt: skip
    if code == ErrorCode.NONE and len(request.metrics):
        code = await _take(broker.telemetry(), request, ctx.client_id or "", max_bytes)
    instance.last_error = code
    return PushTelemetryResponse(error_code=code)


async def _take(
    telemetry: Telemetry, request: PushTelemetryRequest, client_id: str, max_bytes: int
) -> int:
    from kstore._fast.record.compression import CompressionError, decompress

    data: bytes | bytearray = bytes(request.metrics)
    try:
        if request.compression_type != NO_COMPRESSION:
            most = min(max_bytes, FREE_BYTES + MAX_RATIO * len(data))
            data = decompress(request.compression_type, data, most)
        await telemetry.take(request.client_instance_id, client_id, data)
    except CompressionError:
        return ErrorCode.INVALID_RECORD
    except OtlpTooLargeError:
        return ErrorCode.TELEMETRY_TOO_LARGE
    except OtlpError:
        telemetry.unreadable += 1  # an error of the receiver: Kafka does not parse the metrics
    return ErrorCode.NONE


def _instance(broker: TelemetryParts, instance_id: UUID, ctx: RequestContext) -> ClientInstance:
    configs = broker.configs
    return broker.telemetry().instances.instance(
        instance_id,
        _client(instance_id, ctx),
        configs.client_metrics(),
        configs.subscriptions_version,
        broker.node.now_ms(),
    )


def _client(instance_id: UUID, ctx: RequestContext) -> dict[str, str]:
    """The client's attributes that subscriptions can match."""
    from kstore.broker.coordination.znodes import encode_id

    name, version = _software(ctx)
    return {
        "client_instance_id": encode_id(instance_id),
        "client_id": ctx.client_id or "",
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": ctx.client_host,
        "client_source_port": ctx.connection_id.rpartition("-")[0].rpartition(":")[2],
    }


def _software(ctx: RequestContext) -> tuple[str, str]:
    """The software name and version that the client sent in ApiVersions. Before version 3 they are
    unknown.
    """
    from kstore.protocol.metadata.api_versions import ApiVersionsRequest

    connection = ctx.connection
    if connection is None or connection.hello is None or connection.hello_version < 3:
        return "unknown", "unknown"
    try:
        versions = ApiVersionsRequest.decode(
            connection.hello, connection.hello_version, allow_trailing=True
        )
    except ProtocolError:
        return "unknown", "unknown"
    return versions.client_software_name, versions.client_software_version
