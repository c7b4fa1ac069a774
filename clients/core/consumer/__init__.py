"""A consumer's decisions: membership, assignment, positions, fetch plans, commits. It has no
socket, clock or thread.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core, kstore.config,
    kstore.errors, kstore.protocol, kstore.protocol.groups, kstore.protocol.logs, kstore.types.
"""
