"""Client metrics (KIP-714): which client pushes which metrics, and OpenTelemetry's format. It
stores no values.

May import: kstore.broker.state, kstore.errors.
"""
