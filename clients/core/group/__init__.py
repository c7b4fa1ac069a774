"""A member of a group, with the classic or the consumer protocol: its states and requests, the
assignors of leaders, and the gate for expanded topics (KIP-253). It has no socket, clock or thread,
and does not fetch.

May import: kstore.clients.core, kstore.config, kstore.errors, kstore.protocol, kstore.types.
"""
