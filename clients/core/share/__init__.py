"""Decisions of a share consumer (KIP-932): its membership, its sessions with brokers, the records
that it holds, and acknowledgements. It has no socket, clock or thread.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core, kstore.errors,
    kstore.protocol, kstore.types.
"""
