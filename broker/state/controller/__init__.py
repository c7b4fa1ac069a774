"""The controller's decisions: elections, in-sync replicas, reassignments, and messages to brokers.
It sends and stores nothing.

May import: kstore.broker.state.metadata, kstore.errors, kstore.protocol.
"""
