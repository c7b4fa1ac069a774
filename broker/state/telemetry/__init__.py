"""Client metrics (KIP-714): which client pushes which metrics, and how OpenTelemetry's format is
read. It stores no values.

May import: kstore.broker.state, kstore.errors.
"""
