"""GetTelemetrySubscriptions and PushTelemetry. It decodes nothing before the limits are checked.

May import: kstore._fast.record, kstore.broker.api, kstore.broker.coordination,
    kstore.broker.runtime.broker, kstore.broker.runtime.telemetry, kstore.broker.state.telemetry,
    kstore.errors, kstore.protocol, kstore.protocol.metadata.
"""
