"""A consumer's decisions: subscription, positions, fetch plans, what waits for the user, commits.
It has no socket, clock or thread.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core, kstore.errors,
    kstore.protocol, kstore.types.
"""
