"""Decisions of a consumer: subscription, positions, fetch plans, fetched records, commits. It has
no socket, clock or thread.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core, kstore.errors,
    kstore.protocol, kstore.types.
"""
