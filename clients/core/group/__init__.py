"""A member of a group, of the classic or the consumer protocol: its states and requests, the
assignors of leaders, and the gate of expansion (KIP-253). It has no socket, clock or thread, and
knows nothing of fetching.

May import: kstore.clients.core, kstore.config, kstore.errors, kstore.protocol, kstore.types.
"""
