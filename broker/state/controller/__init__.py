"""The controller's decisions: elections, in-sync replicas, reassignments, and what brokers are
told. It sends nothing and stores nothing.

May import: kstore.broker.state.metadata, kstore.errors, kstore.protocol.
"""
