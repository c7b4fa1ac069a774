"""GetTelemetrySubscriptions and PushTelemetry (KIP-714): metrics that clients send."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Uuid,
    field,
)

__all__ = [
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
    "PushTelemetryRequest",
    "PushTelemetryResponse",
]


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    """Asks which metrics the broker wants."""

    client_instance_id: Uuid = field("0+", default=ZERO_UUID)


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    """The answer to GetTelemetrySubscriptionsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    client_instance_id: Uuid = field("0+", default=ZERO_UUID)
    subscription_id: Int32 = field("0+", default=0)
    accepted_compression_types: list[Int8] = field("0+", default=[])
    push_interval_ms: Int32 = field("0+", default=0)
    telemetry_max_bytes: Int32 = field("0+", default=0)
    delta_temporality: Bool = field("0+", default=False)
    requested_metrics: list[String] = field("0+", default=[])


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    """Sends metrics in OTLP format."""

    client_instance_id: Uuid = field("0+", default=ZERO_UUID)
    subscription_id: Int32 = field("0+", default=0)
    terminating: Bool = field("0+", default=False)
    compression_type: Int8 = field("0+", default=0)
    metrics: Bytes = field("0+", default=b"")


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    """The answer to PushTelemetryRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
