"""Streams groups of KIP-1071: topologies, tasks and their assignment. It never changes a group
but by records.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
