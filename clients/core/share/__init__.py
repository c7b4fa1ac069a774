"""A share consumer's decisions (KIP-932): its membership, its sessions with brokers, which records
it holds, and how acknowledgements are put together. It has no socket, clock or thread.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core, kstore.errors,
    kstore.protocol, kstore.types.
"""
