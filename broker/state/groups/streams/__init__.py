"""Streams groups (KIP-1071): topologies, tasks and their assignment. Only records change a group.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
