"""GetTelemetrySubscriptions and PushTelemetry. Nothing is decoded before the limits are checked.

May import: kstore._fast.record, kstore.broker.api, kstore.broker.coordination,
    kstore.broker.runtime, kstore.broker.state.telemetry, kstore.errors, kstore.protocol.
"""
