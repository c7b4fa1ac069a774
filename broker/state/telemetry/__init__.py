"""Client metrics (KIP-714): who pushes what, and OpenTelemetry's form of it. It keeps no values.

May import: kstore.broker.state, kstore.errors.
"""
